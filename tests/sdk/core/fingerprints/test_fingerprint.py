"""Fingerprints: nested samples, equal tensors, and why a tensor is not compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelkin.core.fingerprints.fingerprint import (
    Fingerprint,
    FingerprintMaker,
    LinesOfTensor,
    NotComparable,
)
from modelkin.core.fingerprints.matrix_keys import line_keys
from modelkin.errors import InvalidImportance, InvalidParameter
from tests.sdk.core.fingerprints.planted import Tensors, fingerprint, model


def parts(made: Fingerprint) -> tuple[object, ...]:
    return (made.scale, made.tensors, made.lines, made.keys.tolist(), made.owners.tolist())


@pytest.mark.parametrize("scale", [1, 2, 8, 64])
def test_a_fine_fingerprint_holds_the_coarse_ones(scale: int) -> None:
    """That of a scale is the same whether it is made, or taken from a finer one."""
    tensors = model(0)
    whole = fingerprint(tensors)
    coarse = fingerprint(tensors, scale)
    assert parts(coarse) == parts(whole.at(scale))
    assert coarse.keys.size == pytest.approx(whole.keys.size / scale, rel=0.2)
    with pytest.raises(InvalidParameter, match=f"at least {scale}"):
        coarse.at(scale // 2)
    with pytest.raises(InvalidParameter, match="power of two"):
        coarse.at(3 * scale)


@pytest.mark.parametrize("scale", [0, -4, 3, 8.0, True, "8", 1 << 64])
def test_a_scale_is_a_power_of_two(scale: Any) -> None:
    """What is none, no integer, or beyond what the format holds, is refused by its name."""
    with pytest.raises(InvalidParameter, match="scale must be a power of two") as refused:
        fingerprint({"w": np.eye(64, dtype=np.float32)}, scale)
    assert "scale" == refused.value.field


def test_a_scale_may_be_of_numpy() -> None:
    """An integer of any type is one."""
    tensors = {"w": np.random.default_rng(0).standard_normal((80, 80), np.float32)}
    scale: Any = np.int64(8)
    assert fingerprint(tensors, 8) == fingerprint(tensors, scale)


def test_the_scale_leaves_few_keys() -> None:
    """4,096 at most, and more than half of that."""
    made = fingerprint(model(0), None)
    assert 2048 < made.keys.size <= 4096
    assert 4 == made.scale


def test_keys_are_those_of_the_lines() -> None:
    """Each with its tensor, ascending; the lines of each length are counted before the sample."""
    tensors = model(0)
    made = fingerprint(tensors)
    expected = {
        (key, number)
        for number, values in enumerate(tensors.values())
        if values.ndim == 2
        for each in line_keys(values)
        for key in each.keys.tolist()
    }
    assert sorted(expected) == list(zip(made.keys.tolist(), made.owners.tolist(), strict=True))
    assert {128: 600 + 4 * (8 * 128 + 2 * 384), 384: 4 * 256, 600: 128} == made.lines


def test_equal_tensors_are_one() -> None:
    """A tied head has both names."""
    tensors = model(0)
    made = fingerprint(tensors | {"head": tensors["embed"].copy()})
    assert ("embed", "head") == made.tensors[0].names
    assert len(tensors) == len(made.tensors)


def test_what_is_not_compared_says_why() -> None:
    """Vectors, small matrices, tables, few values, and lines that are repeated too often."""
    draw = np.random.default_rng(0)
    one = draw.standard_normal((80, 100)).astype(np.float32)
    tensors: Tensors = {
        "vector": draw.standard_normal(500).astype(np.float32),
        "number": np.ones((), np.float32),
        "small": draw.standard_normal((63, 500)).astype(np.float32),
        "table": np.cos(np.arange(300)[:, None] * np.arange(1, 129) / 300).astype(np.float32),
        "ternary": draw.integers(-1, 2, (200, 200)).astype(np.float32),
        "repeated": np.stack([one] * 17),
    }
    made = fingerprint(tensors)
    assert {
        "vector": NotComparable.SHORT,
        "number": NotComparable.SHORT,
        "small": NotComparable.SHORT,
        "table": NotComparable.STRUCTURED,
        "ternary": NotComparable.FEW_VALUES,
        "repeated": NotComparable.NO_KEYS,
    } == {each.name: each.reason for each in made.tensors}
    assert (0, {}) == (made.keys.size, made.lines)


def test_lines_of_copied_experts_are_kept() -> None:
    """Eight copies have the keys of one; of nine no row has."""
    one = np.random.default_rng(0).standard_normal((80, 100)).astype(np.float32)
    kept = {n: fingerprint({"experts": np.stack([one] * n)}).keys for n in (1, 8, 17)}
    assert np.array_equal(kept[1], kept[8])
    assert 180 == kept[1].size
    assert 0 == kept[17].size


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    """By the tensor's name, and nothing of it is kept."""
    maker = FingerprintMaker()
    values = model(0)["embed"].copy()
    values[70, 3] = value
    with pytest.raises(InvalidImportance, match="'embed' has values that are NaN or infinite"):
        maker.add("embed", values)
    assert () == maker.finish().tensors


def test_values_beyond_a_float_are_infinite() -> None:
    """Of a float64; those that fit have the keys of its float32."""
    values = model(0)["layers.0.q"].astype(np.float64)
    maker = FingerprintMaker()
    maker.add("w", values)
    assert fingerprint({"w": values.astype(np.float32)}) == maker.finish(1)
    values[3, 5] = 1e300
    with pytest.raises(InvalidImportance, match="'w' has values that are NaN or infinite"):
        maker.add("w", values)


@pytest.mark.parametrize("dtype", [np.complex64, object, "U3", "m8[s]"])
def test_values_that_are_no_numbers_are_refused(dtype: Any) -> None:
    """By the tensor's name and their dtype."""
    values = np.zeros((64, 64), dtype)
    with pytest.raises(InvalidParameter, match=r"'w' has values of .+: give floats"):
        FingerprintMaker().add("w", values)


@pytest.mark.parametrize(
    "shape", [(), (0,), (0, 64), (64, 0, 64), (0, 3, 3, 64), (1,), (64,), (63, 63, 63), (1,) * 20]
)
def test_tensors_without_lines_are_named(shape: tuple[int, ...]) -> None:
    """Empty ones, numbers, vectors and small ones: they are listed, with the reason."""
    made = fingerprint({"w": np.ones(shape, np.float32)})
    [tensor] = made.tensors
    assert ("w", shape, NotComparable.SHORT) == (tensor.name, tensor.shape, tensor.reason)
    assert 0 == made.keys.size


def test_extreme_values_have_keys() -> None:
    """Up to the greatest float32; denormal ones count as zeros, and have none."""
    draw = np.random.default_rng(0).uniform(-1, 1, (80, 100))
    for scale, reason in ((3.4e38, None), (1e-30, None), (1e-40, NotComparable.NO_KEYS)):
        made = fingerprint({"w": (scale * draw).astype(np.float32)})
        assert reason == made.tensors[0].reason
        assert made.keys.size == (0 if reason else 180)


def test_sizes_beyond_64_bits_are_counted() -> None:
    """A file may declare what no machine holds; its sides are numbers all the same."""
    tensor = LinesOfTensor(("w",), (2**40, 2**41, 3), {}, NotComparable.NO_KEYS)
    assert (3 * 2**81, 2**41) == (tensor.size, tensor.row_length)
