"""Selection in torch operations is numpy's, bit for bit; here on CPU tensors, through the same
code.
"""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import modelkin
import modelkin.selection
from modelkin.core.layout import Layout
from modelkin.core.selection.entries import Entries, HostEntries
from modelkin.core.selection.selection import SmallSupportWarning, select, select_support
from modelkin.errors import InvalidImportance
from modelkin.torch import selection
from modelkin.torch.selection import DeviceEntries, host_indices
from tests.support.repetitions import repetitions

Floats = npt.NDArray[np.float32]

TIED = st.sampled_from([0.0, -0.0, 1e-45, 3e-45, 1.1754944e-38, 0.5, 1.0, 1.0000001, 3.4e38])
ANY = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
importances = hnp.arrays(np.float32, st.integers(1, 60), elements=TIED | ANY).filter(np.any)
properties = settings(
    max_examples=repetitions(60, few=20),
)


@pytest.fixture(params=[1, 7, 1 << 23])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many entries are read together: one, a few so that ties cross chunks, all."""
    monkeypatch.setattr(selection, "CHUNK_SIZE", request.param)
    size: int = request.param
    return size


def on_device(values: Floats) -> DeviceEntries:
    return DeviceEntries.of(torch.from_numpy(values))


def same(values: Floats, **how: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        assert select(values, **how) == select(on_device(values), **how)


@pytest.mark.slow
@properties
@given(values=importances, data=st.data())
def test_any_selection_is_the_same(chunk: int, values: Floats, data: st.DataObject) -> None:
    """By k, coverage and a cap, with ties, zeros of both signs and denormals: the same support,
    and the same coverage to the last bit.
    """
    same(values, k=data.draw(st.integers(1, values.size)))
    coverage = data.draw(st.fractions(Fraction(1, 1000), 1, max_denominator=1000))
    same(values, coverage=coverage, k_max=1.0)
    same(values, coverage=coverage, k_max=data.draw(st.integers(1, values.size)))


@pytest.mark.slow
@properties
@given(values=importances)
def test_histograms_are_the_same(chunk: int, values: Floats) -> None:
    """Counts, masses and counts within a bin are those of the kernels."""
    device, host = on_device(values), HostEntries.of(values)
    assert np.array_equal(host.histogram(), device.histogram())
    assert np.array_equal(host.histogram_mass(), device.histogram_mass())
    for upper in {int(bits) >> 16 for bits in values.view(np.uint32)}:
        assert np.array_equal(host.histogram_within(upper), device.histogram_within(upper))


@pytest.mark.parametrize("how", [{"k": 12_345}, {"k": 100_000}, {"coverage": 0.8, "k_max": 1.0}])
@pytest.mark.parametrize("values", [np.full(100_000, 3.0), np.arange(100_000) % 3])
def test_many_ties_are_the_same(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], values: Any
) -> None:
    """Where all or a third are equal the first by index are taken, over many chunks; K may be M."""
    monkeypatch.setattr(selection, "CHUNK_SIZE", 4096)
    same(values.astype(np.float32), **how)


def test_a_full_chunk_of_one_value_is_counted() -> None:
    """2^23 equal entries of the largest lower half fill a cell to its sign bit."""
    bits = torch.full((selection.CHUNK_SIZE,), 0x3F80FFFF, dtype=torch.int32)
    counts, low = DeviceEntries.of(bits.view(torch.float32)).histogram_mass()
    assert (1 << 23, (1 << 23) * 0xFFFF) == (counts[0x3F80], low[0x3F80])
    assert (1 << 23, (1 << 23) * 0xFFFF) == (counts.sum(), low.sum())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision_and_stride(chunk: int, dtype: torch.dtype) -> None:
    """A tensor of any precision, strided or part of a graph, selects what its values say."""
    values = torch.randperm(60).to(dtype)[::2].requires_grad_()
    expected = select_support(values, coverage=0.5)
    assert expected == select_support(DeviceEntries.of(values), coverage=0.5)


def test_budgets_and_stability_are_the_same(chunk: int) -> None:
    """Tensors' budgets and resamples go through the device too."""
    layout = Layout.of([("a", (20,)), ("b", (3, 7)), ("c", (1,))])
    values, other = (np.random.default_rng(s).random(42, dtype=np.float32) for s in (0, 1))
    expected = select(values, layout=layout, budgets=0.2, resamples=[values, other])
    resamples = [on_device(values), on_device(other)]
    assert expected == select(on_device(values), layout=layout, budgets=0.2, resamples=resamples)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, -1e-45])
@pytest.mark.parametrize("how", [{"k": 1}, {"coverage": 0.5}])
def test_refusals_are_the_same(chunk: int, value: float, how: dict[str, Any]) -> None:
    """Invalid importance is refused in the same words, with the first index and how many."""
    values = np.array([1, 0, 2, 3, -0.0, 1, 1, 1, value, -0.0, value], np.float32)
    messages = []
    for entries in (HostEntries.of(values), on_device(values)):
        with pytest.raises(InvalidImportance, match=r"importance\[8\] = .*2 of 11") as caught:
            select(entries, **how)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -1e-60], r"importance\[1\] = -1e-60"),
        ([1.0, 1e300], r"importance\[1\] = 1e\+300"),
    ],
)
def test_float64_out_of_range(values: list[float], message: str) -> None:
    """A negative float64 that float32 rounds to zero, and one beyond it, are refused."""
    with pytest.raises(InvalidImportance, match=message):
        select(DeviceEntries.of(torch.tensor(values, dtype=torch.float64)), k=1)


@pytest.mark.parametrize(
    ("importance", "message"),
    [
        (torch.zeros(4), "all 4 entries"),
        (torch.ones(2, 2), r"shape \(2, 2\)"),
        (torch.ones(0), r"shape \(0,\)"),
        (torch.ones(2, dtype=torch.int32), r"holds torch\.int32"),
        (
            torch.ones(2).to_sparse(),
            r"not a plain tensor but of layout torch\.sparse_coo.*to_dense",
        ),
        (torch.ones(2, device="meta"), "not a plain tensor but without data"),
    ],
)
def test_what_is_no_importance(importance: Any, message: str) -> None:
    """All zeros, no vector, no floats and no plain tensor are refused, saying which."""
    with pytest.raises(InvalidImportance, match=message):
        select(DeviceEntries.of(importance), k=1)


def test_host_indices_are_unsigned() -> None:
    """Indices from 2^31 on cross over in four bytes, from 2^32 parameters on in eight."""
    indices = torch.tensor([0, 2**31 - 1, 2**31, 2**32 - 1])
    for m, dtype in ((2**32, np.uint32), (2**32 + 1, np.uint64)):
        actual = host_indices(indices, m)
        assert (indices.tolist(), np.dtype(dtype)) == (actual.tolist(), actual.dtype)


def test_entries_are_entries() -> None:
    """Both ways to hold an importance are what a selection takes."""
    values = np.ones(3, np.float32)
    assert isinstance(on_device(values), Entries)
    assert isinstance(HostEntries.of(values), Entries)
    assert not isinstance(torch.ones(3), Entries)


def test_select_reads_a_tensor_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """modelkin.select and select_support send tensors of a device, and resamples, to the device."""
    seen: list[int] = []
    of = DeviceEntries.of
    monkeypatch.setattr(modelkin.selection, "DEVICE_TYPES", {"cpu"})

    def recorded(values: torch.Tensor) -> DeviceEntries:
        seen.append(values.numel())
        return of(values)

    monkeypatch.setattr(DeviceEntries, "of", recorded)
    values = torch.rand(30)
    expected = select_support(values.numpy(), k=4)
    assert expected == modelkin.select_support(values, k=4)
    assert expected == modelkin.select(values, k=4, resamples=torch.stack([values] * 2)).support
    assert expected == modelkin.select_support(values.numpy(), k=4)
    assert [30] * 4 == seen


@pytest.mark.gpu
@pytest.mark.parametrize("how", [{"k": 200_000}, {"coverage": 0.8}, {"coverage": 0.5, "k_max": 9}])
def test_cuda_selects_what_the_cpu_does(how: dict[str, Any]) -> None:
    """On a CUDA device a support of ties, zeros and denormals is that of the CPU."""
    values = np.random.default_rng(0).lognormal(sigma=30, size=3_000_000).astype(np.float32)
    values[::3] = values[0]
    values[::7] = -0.0
    cuda = torch.from_numpy(values).to("cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSupportWarning)
        assert modelkin.select(values, **how) == modelkin.select(cuda, **how)
