"""Scores of layers: relative change, dispersion, and Eq. 8 as printed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes import scores

Array = npt.NDArray[Any]
SHAPES = {"a.weight": (30, 40), "a.bias": (30,), "b.weight": (5, 3), "c.weight": (200, 100)}
LAYERS = {"a": ["a.weight", "a.bias"], "b": ["b.weight"], "c": ["c.weight"]}


def tensors(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: rng.normal(size=s).astype(np.float32) for n, s in SHAPES.items()}


def flat(model: dict[str, Array], layer: str) -> Array:
    return np.concatenate([model[n].ravel() for n in LAYERS[layer]]).astype(np.float64)


def test_changes_are_relative_to_each_layer() -> None:
    """||after - before|| / ||before|| over all tensors of a layer."""
    before, after = tensors(0), tensors(1)
    expected = {
        layer: np.linalg.norm(flat(after, layer) - flat(before, layer))
        / np.linalg.norm(flat(before, layer))
        for layer in LAYERS
    }
    assert pytest.approx(expected, rel=1e-12) == scores.changes(before, after)
    assert dict.fromkeys(LAYERS, 0.0) == scores.changes(before, before)


def test_a_layer_that_was_zero() -> None:
    """Its change is infinite, or nothing if it still is zero."""
    before = {"a.w": np.zeros(2), "b.w": np.zeros(2)}
    after = {"a.w": np.ones(2), "b.w": np.zeros(2)}
    assert {"a": math.inf, "b": 0.0} == scores.changes(before, after)
    assert {"a": math.inf, "b": 0.0} == scores.dispersion([after, {**after, "a.w": -np.ones(2)}])


def test_dispersion_is_variance_by_squared_mean() -> None:
    """Over members, and all tensors of a layer."""
    members = [{n: v + 3 for n, v in tensors(seed).items()} for seed in range(4)]
    expected = {}
    for layer in LAYERS:
        stacked = np.stack([flat(member, layer) for member in members])
        expected[layer] = stacked.var(axis=0).sum() / (stacked.mean(axis=0) ** 2).sum()
    assert pytest.approx(expected, rel=1e-12) == scores.dispersion(members)


def test_eq_8_sorts_layers_by_size_alone() -> None:
    """As printed: the layer that moved most, the smallest, is said to be the most stable."""
    before = tensors(0)
    after = {n: v + (0.5 if n.startswith("b") else 0.001) for n, v in before.items()}
    found = scores.printed_scores(before, after)
    assert pytest.approx(1.0) == sum(found.values())
    assert ["c", "a", "b"] == sorted(found, key=lambda layer: found[layer])
    assert "b" == max(scores.changes(before, after).items(), key=lambda item: item[1])[0]
    cosine = flat(after, "a") @ flat(before, "a")
    cosine /= np.linalg.norm(flat(after, "a")) * np.linalg.norm(flat(before, "a"))
    whole = {layer: 1 / flat(before, layer).size for layer in LAYERS}
    assert pytest.approx(cosine * whole["a"] / sum(whole.values()), rel=0.2) == found["a"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"a.w": np.ones(3)}, r"shape \[2\] in one and \[3\]"),
        ({"b.w": np.ones(2)}, "only one of them has the tensor"),
    ],
)
def test_tensors_that_differ(other: dict[str, Array], message: str) -> None:
    """All models have the same tensors."""
    with pytest.raises(InvalidParameter, match=message):
        scores.changes({"a.w": np.ones(2)}, other)
    with pytest.raises(InvalidParameter, match=message):
        scores.dispersion([{"a.w": np.ones(2)}, other])


def test_a_dispersion_needs_two() -> None:
    """One member has none."""
    with pytest.raises(InvalidParameter, match="two members"):
        scores.dispersion([tensors(0)])
