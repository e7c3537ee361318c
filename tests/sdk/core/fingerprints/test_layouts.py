"""Whatever the layout of a file, its tensors are found where they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from modelkin.core.fingerprints.anatomy import anatomy
from modelkin.core.fingerprints.fingerprint import Fingerprint, NotComparable
from tests.sdk.core.fingerprints.planted import Tensors, fingerprint, model

KERNELS = {
    "square": (128, 72, 3, 3),
    "point": (96, 80, 1, 1),
    "patches": (192, 3, 16, 16),
    "line": (128, 96, 5),
    "volume": (80, 72, 2, 3, 3),
    "depthwise": (192, 1, 9, 9),
    "deep line": (192, 1, 65),
}
ORDERS: dict[str, Callable[[Any], Any]] = {
    "outputs first": lambda kernel: kernel,
    "outputs last": lambda kernel: np.moveaxis(kernel, 0, -1),
    "inputs first": lambda kernel: np.swapaxes(kernel, 0, 1),
    "places first": lambda kernel: np.moveaxis(kernel, (0, 1), (-1, -2)),
    "places first, outputs before inputs": lambda kernel: np.moveaxis(kernel, (0, 1), (-2, -1)),
    "one column": lambda kernel: kernel[:, :, None] if kernel.ndim == 3 else kernel,
}


def convolutions(seed: int) -> Tensors:
    draw = np.random.default_rng(seed)
    return {kind: draw.standard_normal(shape, np.float32) for kind, shape in KERNELS.items()}


@pytest.fixture(scope="module")
def models() -> dict[str, Fingerprint]:
    return {"base": fingerprint(convolutions(0)), "stranger": fingerprint(convolutions(1))}


@pytest.mark.parametrize("order", ORDERS)
def test_kernels_are_found_in_any_order_of_their_axes(
    models: dict[str, Fingerprint], order: str
) -> None:
    """Of one, two and three dimensions, depthwise ones with 64 places, and those of patches."""
    stored = {k: np.ascontiguousarray(ORDERS[order](v)) for k, v in convolutions(0).items()}
    found = anatomy(fingerprint(stored), models)
    assert [("base", "copy")] == [(each.model, each.verdict) for each in found.parents]
    sources = {
        each.tensor.name: (each.sources[0].tensor.name, each.sources[0].share)
        for each in found.tensors
    }
    assert {kind: (kind, 1.0) for kind in KERNELS} == sources


def test_small_depthwise_kernels_are_not_compared() -> None:
    """Their lines have as many places as the kernel, and that is too few."""
    kernels = np.random.default_rng(0).standard_normal((192, 1, 3, 3), np.float32)
    assert NotComparable.SHORT == fingerprint({"depthwise": kernels}).tensors[0].reason


@pytest.mark.parametrize("copies", [4, 8])
def test_experts_that_grew_from_one_unit_are_found(copies: int) -> None:
    """As one tensor of equal experts, or as fused gates of which each has a part."""
    base = model(0)
    names = [f"layers.{i}.{kind}" for i in range(4) for kind in ("up", "down")]
    stacks = {name: np.stack([base[name]] * copies) for name in names}
    others = {name: values for name, values in base.items() if name not in names}
    found = anatomy(fingerprint(others | stacks), {"base": fingerprint(base)})
    [parent] = found.parents
    assert ("derived", 1.0) == (parent.verdict, parent.share_of_lines)
    assert all(
        [each.tensor.name] == [source.tensor.name for source in each.sources]
        for each in found.tensors
        if each.tensor.lines
    )


def test_repeated_heads_are_found_beside_all_others() -> None:
    """Each key-value head four times: the rows are in the base, as of every other tensor."""
    base = model(0)
    grown = {
        name: np.repeat(values.reshape(2, -1, values.shape[1]), 4, axis=0).reshape(-1, 128)
        if name.endswith((".k", ".v"))
        else values
        for name, values in base.items()
    }
    found = anatomy(fingerprint(grown), {"base": fingerprint(base)})
    compared = [each for each in found.tensors if each.tensor.lines]
    assert 25 == len(compared)
    assert all(each.sources[0].tensor.name == each.tensor.name for each in compared)
