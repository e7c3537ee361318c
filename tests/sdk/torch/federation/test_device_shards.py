"""Shards on tensors are numpy's, bit for bit: on CPU tensors both ways, and on a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modelkin.federation.shards import combine, draws
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.quantization import quantize
from modelkin.federation.shards.thinning import Thinning
from modelkin.torch.federation import shards as _shards

properties = settings(max_examples=60)
seeds = st.integers(0, 2**64 - 1)
CPU = torch.device("cpu")


@pytest.fixture(params=["host", "device", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loops of the core; torch's operations, on the CPU; and on a device. In small steps."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if request.param == "device":
        monkeypatch.setattr(_shards, "on_host", lambda values: False)
    monkeypatch.setattr(_shards, "STEP", 64)
    return "cuda" if request.param == "cuda" else "cpu"


def values_of(size: int, seed: int) -> Tensor:
    """Of any bits but those of NaN and infinity: denormals and zeros of both signs, too."""
    bits = np.random.default_rng(seed).integers(0, 2**32, size, dtype=np.uint32)
    values = bits.view(np.float32)
    return torch.from_numpy(np.where(np.isfinite(values), values, np.float32(-0.0)))


def same(found: Tensor, expected: np.ndarray[tuple[int], np.dtype[np.float32]]) -> bool:
    return found.cpu().numpy().tobytes() == expected.tobytes()


@properties
@given(
    seed=seeds, first=st.integers(0, 2**40), count=st.integers(0, 200), bound=st.integers(1, 2**31)
)
def test_draws_are_the_same(seed: int, first: int, count: int, bound: int) -> None:
    """All 64 bits, and what is drawn below a bound."""
    expected = draws.draws(seed, count, first)
    found = _shards.draws(seed, count, first, CPU)
    assert found.numpy().view(np.uint64).tolist() == expected.tolist()
    assert _shards.below(found, bound).tolist() == draws.below(expected, bound).tolist()


@properties
@given(
    size=st.integers(1, 300),
    shards=st.integers(1, 40),
    seed=seeds,
    first=st.integers(0, 1000),
)
def test_stretches_are_split_and_joined_alike(
    device: str, size: int, shards: int, seed: int, first: int
) -> None:
    """Any number of shards, a last block that is short, and any first block."""
    partition = Partition(max(size, shards) + first * shards, shards, seed)
    values = values_of(size, seed)
    parts = _shards.split_stretch(partition, values.to(device), first)
    expected = partition.split_stretch(values.numpy(), first)
    assert len(parts) == shards
    assert all(same(*pair) for pair in zip(parts, expected, strict=True))
    assert same(_shards.join_stretch(partition, parts, first), values.numpy())


@properties
@given(size=st.integers(1, 300), one_in=st.integers(1, 50), seed=seeds, first=st.integers(0, 2**33))
def test_the_same_values_are_kept(
    device: str, size: int, one_in: int, seed: int, first: int
) -> None:
    """Their places, the values, and zeros elsewhere."""
    thinning = Thinning(size, one_in, seed, first)
    values = values_of(size, seed)
    assert _shards.positions(thinning, torch.device(device)).tolist() == (
        thinning.positions.tolist()
    )
    kept = _shards.take(thinning, values.to(device))
    assert same(kept, thinning.take(values.numpy()))
    assert same(_shards.spread(thinning, kept), thinning.spread(thinning.take(values.numpy())))


@properties
@given(size=st.integers(1, 2000), seed=seeds, scale=st.sampled_from([0.0, 1e-42, 1.0, 1e37]))
def test_values_are_rounded_alike(device: str, size: int, seed: int, scale: float) -> None:
    """Codes, scales and the rounded values; zeros and the smallest numbers too."""
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed % 2**63)) * scale
    codes, scales = _shards.quantize(values.to(device), seed)
    expected = quantize(values.numpy(), seed)
    assert codes.tolist() == expected.codes.tolist()
    assert same(scales, expected.scales)
    assert same(_shards.dequantize(codes, scales), expected.values())


@properties
@given(size=st.integers(1, 300), members=st.integers(1, 20), seed=seeds)
def test_means_are_the_same(device: str, size: int, members: int, seed: int) -> None:
    """In float64 in the given order, rounded once."""
    random = np.random.default_rng(seed)
    cells = [random.normal(size=size).astype(np.float32) for _ in range(members)]
    weights = (random.random(members) * 1000).tolist()
    found = _shards.mean([torch.from_numpy(cell).to(device) for cell in cells], weights)
    assert same(found, combine.mean(cells, weights))


def test_a_long_vector_is_split_alike_in_real_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """More values than one step has, seven shards and a short last block."""
    monkeypatch.setattr(_shards, "on_host", lambda values: False)
    monkeypatch.setattr(_shards, "STEP", 1 << 12)
    partition = Partition(100_003, 7, 11)
    values = values_of(100_003, 1)
    parts = _shards.split_stretch(partition, values, 0)
    expected = partition.split(values.numpy())
    assert all(same(*pair) for pair in zip(parts, expected, strict=True))
    assert same(_shards.join_stretch(partition, parts, 0), values.numpy())
