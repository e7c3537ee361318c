"""What moves lines about, or scales them, leaves their keys: by any matrices that are drawn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sdk.core.fingerprints.planted import Tensors, fingerprint

Matrix = npt.NDArray[np.float32]

SEEDS = st.integers(0, 2**32 - 1)
SIDES = st.integers(64, 150)
MATRICES = {"seed": SEEDS, "rows": SIDES, "columns": SIDES}


def drawn(seed: int, rows: int, columns: int) -> tuple[Matrix, np.random.Generator]:
    draw = np.random.default_rng(seed)
    scales = draw.lognormal(0, 1, columns)
    return (scales * draw.standard_t(4, (rows, columns))).astype(np.float32), draw


def keys(*matrices: Matrix, **named: Matrix) -> set[int]:
    """All keys of a checkpoint of some tensors."""
    tensors: Tensors = {str(number): values for number, values in enumerate(matrices)}
    return set(fingerprint(tensors | named).distinct.tolist())


def share(of: set[int], others: set[int]) -> float:
    return len(of & others) / len(of)


def signs(draw: np.random.Generator, *shape: int) -> Matrix:
    return draw.choice(np.array([-1, 1], np.float32), shape)


@settings(max_examples=8, deadline=None)
@given(**MATRICES)
def test_names_orders_signs_and_sides_are_nothing(seed: int, rows: int, columns: int) -> None:
    """Nor is the scale of a tensor, by powers of two exactly; nor that one is stored twice."""
    one, draw = drawn(seed, rows, columns)
    other, _ = drawn(seed + 1, columns, rows)
    expected = keys(one, other)
    power = np.float32(2.0 ** draw.integers(-40, 40))
    assert expected == keys(b=other, a=one) == keys(one, other, one.copy())
    assert expected == keys(np.ascontiguousarray(one.T), other * power)
    flipped = signs(draw, rows, 1) * one * signs(draw, 1, columns)
    assert expected == keys(flipped, np.asfortranarray(-other))
    assert share(expected, keys(one * np.float32(draw.uniform(0.1, 10)), other)) > 0.98


@settings(max_examples=8, deadline=None)
@given(**MATRICES)
def test_rows_of_one_place_scales_are_known_anywhere(seed: int, rows: int, columns: int) -> None:
    """In another order, or scaled by rows and by places, by powers of two exactly."""
    one, draw = drawn(seed, rows, columns)
    powers = (np.float32(2) ** draw.integers(-9, 9, (1, columns))).astype(np.float32)
    rows_of = keys(one) & keys(one[draw.permutation(rows)])
    assert len(rows_of) > 0.9 * rows  # two of one key are rare, and not never
    assert rows_of <= keys(one * powers)
    gains = draw.lognormal(0, 1, (1, columns)).astype(np.float32)
    assert share(rows_of, keys(one * gains)) > 0.9


@settings(max_examples=8, deadline=None)
@given(**MATRICES)
def test_what_is_fused_can_be_split(seed: int, rows: int, columns: int) -> None:
    """Rows keep their keys exactly where the parts have one size by places, else most of them."""
    one, draw = drawn(seed, rows, columns)
    half = signs(draw, rows, 1) * one[draw.permutation(rows)]
    rows_of = keys(one) & keys(half)
    assert len(rows_of) > 0.9 * rows  # two of one key are rare, and not never
    assert rows_of <= keys(np.concatenate([one, half]))
    scales = np.sqrt(np.square(one, dtype=np.float64).mean(0))
    stranger = (scales * draw.standard_normal((2 * rows, columns))).astype(np.float32)
    assert share(rows_of, keys(np.concatenate([one, stranger]))) > 0.3


@settings(max_examples=8, deadline=None)
@given(**MATRICES, scale=st.integers(0, 6))
def test_a_sample_is_part_of_the_whole(seed: int, rows: int, columns: int, scale: int) -> None:
    """That of a scale is the coarse part of any finer one, whoever makes it."""
    one, _ = drawn(seed, rows, columns)
    whole, coarse = fingerprint({"w": one}), fingerprint({"w": one}, 1 << scale)
    assert whole.at(1 << scale) == coarse
    assert whole.at(1 << scale // 2).at(1 << scale) == coarse
    below = 2**64 >> scale
    assert [key for key in whole.keys.tolist() if key < below] == coarse.keys.tolist()
