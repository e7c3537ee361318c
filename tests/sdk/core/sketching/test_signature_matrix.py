"""All pairs of signatures: the same counts from both kernels, and the similarities they mean."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.kernels import fast, reference
from modelkin.core.sketching import signature_matrix
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.signature_matrix import estimated_matrix, match_table
from modelkin.core.support import Support
from modelkin.errors import InvalidSignature, SpaceMismatch
from tests.support.signatures import value_rows


def drawn(n: int, h: int, dtype: Any, seed: int) -> npt.NDArray[Any]:
    """Values of few kinds, so that many agree."""
    return np.random.default_rng(seed).integers(0, 3, (n, h)).astype(dtype)


@given(
    a=st.integers(0, 40),
    b=st.integers(0, 140),
    h=st.sampled_from([1, 63, 256, 300]),
    dtype=st.sampled_from([np.uint8, np.uint32, np.uint64]),
    seed=st.integers(0, 99),
)
def test_kernels_agree(a: int, b: int, h: int, dtype: Any, seed: int) -> None:
    """Any number of rows and columns of any width give the same table."""
    rows, columns = drawn(a, h, dtype, seed), drawn(b, h, dtype, seed + 1)
    expected, actual = reference.match_table(rows, columns), fast.match_table(rows, columns)
    assert expected.dtype == actual.dtype
    assert np.array_equal(expected, actual)


@given(
    n=st.integers(1, 60),
    h=st.sampled_from([1, 8, 63, 256, 300]),
    k=st.integers(1, 9),
    steps=st.lists(st.integers(0, 60), max_size=3),
    dtype=st.sampled_from([np.uint32, np.uint64]),
    seed=st.integers(0, 99),
)
def test_kernels_keep_the_same_nearest(
    n: int, h: int, k: int, steps: list[int], dtype: Any, seed: int
) -> None:
    """However the rows are cut into steps, also where values differ above their lowest bytes."""
    values = drawn(n, h, dtype, seed) << np.random.default_rng(seed).integers(0, 9, h).astype(dtype)
    low = np.zeros((n, -(-h // 8) * 8), np.uint8)
    low[:, :h] = values.astype(np.uint8)
    found = []
    for kernels in (reference, fast):
        keys = np.full((n, k), -1, np.int64)
        for begin, end in pairwise([0, *sorted(min(n, step) for step in steps), n]):
            kernels.keep_nearest(values, low.view(np.uint64), begin, end, keys)
        found.append(np.sort(keys, axis=1))
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("scheme", ["affine32", "affine64"])
def test_every_pair_is_what_two_signatures_say(
    each_kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Across the seams of tiles, each entry is the similarity of its two signatures."""
    monkeypatch.setattr(signature_matrix, "TILE_SIZE", 4)
    rng = np.random.default_rng(3)
    signed: list[Signature] = []
    for _ in range(9):
        indices = np.sort(rng.choice(300, 90, replace=False))
        signed.append(Support.from_indices(indices, 300).signature(64, scheme=scheme))
    expected = np.array([[a.similarity(b) for b in signed] for a in signed], np.float32)
    values = value_rows(signed)
    matrix = estimated_matrix(values)
    assert np.array_equal(expected, matrix)
    assert np.array_equal(np.ones(9), np.diag(matrix))


def test_no_signatures_make_an_empty_matrix() -> None:
    """Nothing in, nothing out."""
    assert (0, 0) == estimated_matrix(np.empty((0, 8), np.uint32)).shape


@pytest.mark.parametrize("shape", [(3,), (2, 0), (2, 4097), (1, 2, 3)])
def test_what_are_no_signatures(shape: tuple[int, ...]) -> None:
    """Arrays of another shape are refused, and the message gives their shape."""
    with pytest.raises(InvalidSignature, match="shape") as caught:
        estimated_matrix(np.zeros(shape, np.uint32))
    assert "values" == caught.value.field


@pytest.mark.parametrize("other", [np.zeros((1, 5), np.uint32), np.zeros((1, 4), np.uint64)])
def test_signatures_of_other_shapes_are_not_compared(other: npt.NDArray[Any]) -> None:
    """Another h or another width of values is an error, never a count."""
    with pytest.raises(SpaceMismatch, match="cannot be compared"):
        match_table(np.zeros((1, 4), np.uint32), other)
