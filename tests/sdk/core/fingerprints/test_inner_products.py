"""Inner products see a rotated stream, where no line is left, and no kinship between strangers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.core.fingerprints.inner_products import (
    InnerProducts,
    Points,
    inner_products,
    points_of_tensor,
)
from modelkin.core.fingerprints.matrices import part_of
from tests.sdk.core.fingerprints.planted import DERIVED, Tensors, model
from tests.sdk.core.fingerprints.stored import STORED

Matrix = npt.NDArray[np.float32]
HIDDEN = sorted(f"layers.{i}.{kind}" for i in range(4) for kind in ("up", "down"))


def points(tensors: Tensors) -> list[Points]:
    found = (point(values, name) for name, values in tensors.items())
    return [each for each in found if each is not None]


def point(values: Matrix, name: str = "", stretch: int = 1 << 18) -> Points | None:
    return points_of_tensor(name, values.shape, part_of(values), stretch)


def compared(first: Tensors, second: Tensors) -> InnerProducts:
    return inner_products(points(first), points(second))


def gains(base: Tensors) -> Tensors:
    """Gains as a real model of 135 M parameters has them: a quarter of their mean more or less."""
    draw = np.random.default_rng(3)
    return {
        name: values * np.exp(0.25 * draw.standard_normal(values.shape[1], np.float32))
        if name.endswith("up")
        else values
        for name, values in base.items()
    }


@pytest.mark.parametrize(
    ("change", "least"),
    [(lambda base: base, 0.95), (DERIVED["noise .2"], 0.5), (gains, 0.4), (STORED["Q4_0"], 0.6)],
)
def test_a_rotated_stream_is_seen(change: Callable[[Tensors], Tensors], least: float) -> None:
    """Of fine-tuned and rounded models too, and where gains were folded in before."""
    found = compared(STORED["rotated"](change(model(0))), model(0))
    assert ["embed", *HIDDEN] == sorted(each.tensor for each in found.alike)
    assert all(each.tensor == each.other and each.kappa >= least for each in found.alike)
    assert (9, True) == (found.compared, found.is_evidence)


@pytest.mark.parametrize("change", [lambda base: base, DERIVED["permuted units"]])
def test_strangers_have_none(change: Callable[[Tensors], Tensors]) -> None:
    """Nor has a model whose units stand in another order, but for its embedding."""
    found = compared(change(model(1)), model(0))
    assert ((), False) == (found.alike, found.is_evidence)
    moved = compared(DERIVED["permuted units"](model(0)), model(0))
    assert (["embed"], False) == ([each.tensor for each in moved.alike], moved.is_evidence)


def test_of_equal_tensors_the_one_of_the_same_name_is_named() -> None:
    """As of experts that grew from one unit."""
    one = model(0)["layers.0.up"]
    experts = {f"experts.{i}.up": one for i in range(3)}
    found = compared(experts, experts)
    assert {name: name for name in experts} == {each.tensor: each.other for each in found.alike}
    renamed = compared({"up": one}, experts)
    assert ["experts.0.up"] == [each.other for each in renamed.alike]


def test_two_tables_are_no_evidence() -> None:
    """Strangers of one vocabulary may have an embedding and a head that are alike."""
    shared = np.random.default_rng(0).standard_normal((600, 128), np.float32)
    first, second = (model(seed) | {"embed": shared, "head": shared[::-1]} for seed in (0, 1))
    found = compared(first, second)
    assert {"embed": "embed", "head": "head"} == {each.tensor: each.other for each in found.alike}
    assert not found.is_evidence
    assert "too little: strangers may share 2 tables of tokens" == found.words


@pytest.mark.parametrize("shape", [(300, 100), (20, 300, 100), (128, 96, 5)])
def test_storage_does_not_matter(shape: tuple[int, ...]) -> None:
    """Transposed matrices, scales, signs of all, and stretches of any size have one signature."""
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    expected = point(values)
    assert expected is not None
    moved = np.ascontiguousarray(np.swapaxes(values, -1, -2) if shape[0] != 128 else values)
    assert expected == point(moved) == point(values * np.float32(-8))
    assert expected == point(values, stretch=1) == point(moved, stretch=1)
    assert max(shape) == expected.points


@pytest.mark.parametrize(
    "values",
    [
        np.ones((300,), np.float32),
        np.ones((128, 128), np.float32),  # square
        np.ones((1030, 128), np.float32),  # a table of tokens
        np.ones((100, 63), np.float32),
        np.zeros((300, 128), np.float32),
        np.zeros((0, 128), np.float32),
        np.full((300, 128), np.nan, np.float32),
    ],
)
def test_what_says_nothing_is_left_out(values: Matrix) -> None:
    """Vectors, squares, tables of tokens, short sides, zeros, and values that are not finite."""
    assert point(values) is None


@pytest.mark.parametrize("shape", [(3000, 500), (500, 3000)])
def test_little_of_a_tensor_is_read_at_a_time(shape: tuple[int, int]) -> None:
    """Each value twice, and no more than a stretch, or 16 rows where these are more."""
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    read = list[int]()

    def part(begin: int, end: int) -> Matrix:
        read.append(end - begin)
        return values.reshape(-1)[begin:end]

    assert points_of_tensor("w", shape, part, 1 << 12) is not None
    assert (2 * values.size, 16 * shape[1]) == (sum(read), max(read))
