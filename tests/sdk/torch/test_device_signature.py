"""Signatures in torch operations are those of numpy's kernels, bit for bit; here on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import modelkin
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSignature, InvalidSupport
from modelkin.torch import minima, select_signature, selection, signature_of

properties = settings(max_examples=60)


@pytest.fixture(params=[1, 50, 1 << 24])
def cells(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many hashes are held at once: one, a few, all."""
    monkeypatch.setattr(minima, "MAX_HASHES", request.param)
    held: int = request.param
    return held


@pytest.mark.slow
@properties
@given(
    indices=st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=60),
    scheme=st.sampled_from(["affine32", "affine64"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_signatures_of_indices(cells: int, indices: set[int], scheme: str, seed: int) -> None:
    """Any indices below 2^32, under any seed, have the signature of the same support."""
    ordered = sorted(indices)
    expected = Support.from_indices(ordered, 2**32).signature(17, seed, scheme)
    actual = signature_of(torch.tensor(ordered), 2**32, num_perm=17, seed=seed, scheme=scheme)
    assert expected == actual


@pytest.mark.slow
@properties
@given(indices=st.sets(st.integers(0, 2**63 - 2), min_size=1, max_size=40))
def test_signatures_of_large_indices(cells: int, indices: set[int]) -> None:
    """Indices that need more than 32 bits go through affine64, as on the host."""
    ordered = sorted(indices)
    expected = Support.from_indices(ordered, 2**63 - 1).signature(8)
    assert "affine64" == expected.scheme
    assert expected == signature_of(torch.tensor(ordered), 2**63 - 1, num_perm=8)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"k": 321},
        {"fraction": 0.3},
        {"coverage": 0.6, "k_max": 0.5},
        {"budgets": {"a": 5, "b": 0.2}, "layout": Layout.of([("a", (700,)), ("b", (300,))])},
    ],
)
@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
def test_select_signature_is_select_and_signature(
    monkeypatch: pytest.MonkeyPatch, how: dict[str, Any], scheme: str
) -> None:
    """It is the signature of the support that the same arguments select, whatever the chunks."""
    monkeypatch.setattr(selection, "CHUNK_SIZE", 64)
    importance = torch.rand(1000) ** 8
    expected = modelkin.select_support(importance, **how).signature(32, 9, scheme)
    assert expected == select_signature(importance, num_perm=32, seed=9, scheme=scheme, **how)


def test_select_signature_looks_for_a_stable_k() -> None:
    """A stability target chooses the same K as select does."""
    importance = torch.tensor([9.0, 8, 7, 6, 5, 1, 1, 1, 1, 1])
    resamples = torch.stack([importance, importance[[0, 1, 3, 2, 4, 5, 6, 7, 8, 9]]])
    how: dict[str, Any] = {"coverage": 0.6, "k_max": 1.0, "stability": 0.9, "resamples": resamples}
    assert 4 == select_signature(importance, **how).support_size
    assert modelkin.select(importance, **how).support.signature() == select_signature(
        importance, **how
    )


def test_int32_indices_are_read_as_they_are() -> None:
    """Indices of another integer type than int64 give the same signature."""
    indices = torch.arange(0, 3000, 7)
    expected = signature_of(indices, 3000)
    assert expected == signature_of(indices.to(torch.int32), 3000)


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (torch.tensor([1.0]), r"torch\.float32 of shape \(1,\)"),
        (torch.tensor([True]), r"torch\.bool"),
        (torch.tensor([[1]]), r"shape \(1, 1\)"),
        (torch.tensor([], dtype=torch.int64), r"shape \(0,\)"),
        (torch.tensor([3, 3]), "not sorted, or repeated"),
        (torch.tensor([4, 3]), "not sorted, or repeated"),
        (torch.tensor([-1, 3]), "-1 to 3 are out of range for 9 parameters"),
        (torch.tensor([1, 9]), "1 to 9 are out of range for 9 parameters"),
    ],
)
def test_indices_that_are_no_support(indices: torch.Tensor, message: str) -> None:
    """Floats, matrices, nothing, disorder and indices out of range are refused, saying which."""
    with pytest.raises(InvalidSupport, match=message):
        signature_of(indices, 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_perm": 0}, "num_perm must be 1 to 4096"),
        ({"seed": -1}, "seed must be 0"),
        ({"scheme": "md5"}, "scheme must be"),
    ],
)
def test_signatures_that_there_are_not(arguments: dict[str, Any], message: str) -> None:
    """h, seed and scheme are checked as on the host, before any work."""
    calls: list[Callable[[], object]] = [
        lambda: signature_of(torch.tensor([1]), 9, **arguments),
        lambda: select_signature(torch.ones(9), k=1, **arguments),
    ]
    for make in calls:
        with pytest.raises(InvalidSignature, match=message):
            make()


def test_arguments_of_the_selection_are_checked() -> None:
    """How K is chosen is refused in select_support's words, and unknown arguments by Python."""
    with pytest.raises(InvalidParameter, match="k must be 1 to 3"):
        select_signature(torch.ones(3), k=4)
    with pytest.raises(TypeError, match="top_k"):
        select_signature(torch.ones(3), top_k=4)  # type: ignore[call-arg]


@pytest.mark.gpu
@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
def test_cuda_signs_what_the_cpu_does(scheme: str) -> None:
    """On a CUDA device the signature is that of the CPU, from importance and from indices."""
    values = np.random.default_rng(0).lognormal(sigma=3, size=3_000_000).astype(np.float32)
    support = modelkin.select_support(values, coverage=0.8)
    expected = support.signature(scheme=scheme)
    cuda = torch.from_numpy(values).to("cuda")
    assert expected == select_signature(cuda, coverage=0.8, scheme=scheme)
    for k in (1, 100, support.k):
        some = Support.from_indices(support.indices[:k], values.size)
        indices = torch.from_numpy(some.indices.astype(np.int64)).to("cuda")
        assert some.signature(scheme=scheme) == signature_of(indices, values.size, scheme=scheme)
