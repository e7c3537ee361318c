"""Layers of a model, and the choice of those that a learngene holds."""

from __future__ import annotations

from typing import Any

import pytest

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.layers import (
    LayerChoice,
    layers_of,
    natural_order,
    tightened_depth,
)

TENSORS = [
    ("conv1.weight", 40),
    ("conv1.bias", 10),
    ("conv2.weight", 100),
    ("fc.weight", 300),
    ("fc.bias", 50),
    ("head.weight", 400),
    ("head.bias", 100),
]
"""1,000 bytes."""


def names(**choice: Any) -> list[str]:
    return [layer.name for layer in LayerChoice(**choice).choose(TENSORS)]


def test_a_layer_is_a_module_that_owns_tensors() -> None:
    """Names that are equal up to the last dot; tensors of the model itself are a layer, too."""
    layers = layers_of([("cls", 4), ("a.b.weight", 8), ("a.w", 2), ("a.b.bias", 1)])
    assert [("", 4), ("a.b", 9), ("a", 2)] == [(layer.name, layer.size) for layer in layers]
    assert ("a.b.weight", "a.b.bias") == layers[1].tensors


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, ["conv1", "conv2", "fc"]),
        ({"depth": 2}, ["conv1", "conv2"]),
        ({"share": 0.15}, ["conv1", "conv2"]),
        ({"share": 0.1499}, ["conv1"]),
        ({"share": 1.0}, ["conv1", "conv2", "fc"]),
        ({"share": 0.1, "exclude": ["conv1.*"]}, ["conv2"]),
        ({"tensors": ["*"]}, ["conv1", "conv2", "fc", "head"]),
        ({"tensors": ["head.*", "conv?.*"]}, ["conv1", "conv2", "head"]),
        ({"tensors": ["*"], "exclude": ["head.*"]}, ["conv1", "conv2", "fc"]),
        ({"depth": 3, "exclude": ["conv2.*"]}, ["conv1", "fc"]),
        ({"depth": 2, "order": ["head", "fc"]}, ["head", "fc"]),
        ({"order": ["conv*", "head"]}, ["conv1", "conv2", "head"]),
    ],
)
def test_what_is_chosen(choice: dict[str, Any], expected: list[str]) -> None:
    """The trunk without the head by default, whole layers by patterns, always in order."""
    assert expected == names(**choice)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"depth": 0}, "depth must be a whole number of at least 1, not 0"),
        ({"depth": True}, "not True"),
        ({"depth": 4}, r"depth must be 1 to 3, not 4.*without the last, 'head'.*tensors=\['\*'\]"),
        ({"share": 0}, "share must be above 0 and at most 1"),
        ({"share": 0.04}, "share must be 0.05 or more for the first layer to fit"),
        ({"depth": 1, "share": 0.5}, "one of depth, share and tensors"),
        ({"tensors": "head.*"}, "tensors is one string"),
        ({"tensors": [1]}, "tensors must be texts, not 1"),
        ({"tensors": ["tail.*"]}, "tensors: 'tail.*' matches no tensor; the first is 'conv1.w"),
        ({"tensors": ["*.bias"]}, r"'conv1.bias' and not 'conv1.weight'.*write 'conv1\.\*'"),
        ({"tensors": []}, "nothing is left"),
        ({"exclude": ["*"]}, "of 4 layers nothing is left for a learngene"),
        ({"exclude": ["fc.bias"]}, "exclude matches 'fc.bias' and not 'fc.weight'"),
        ({"order": ["tail"]}, "order: 'tail' matches none of the 4 layers"),
    ],
)
def test_a_choice_that_cannot_be(choice: dict[str, Any], message: str) -> None:
    """The error says what is wrong and what to write."""
    with pytest.raises(InvalidParameter, match=message):
        names(**choice)


def test_a_model_of_one_layer_has_no_trunk() -> None:
    """The whole of it has to be asked for; a model without tensors has nothing."""
    with pytest.raises(InvalidParameter, match=r"1 layer, and a trunk is without the last"):
        LayerChoice().choose([("weight", 4)])
    assert ("weight",) == LayerChoice(tensors=["*"]).choose([("weight", 4)])[0].tensors
    with pytest.raises(InvalidParameter, match="no tensor to choose from"):
        LayerChoice(tensors=["*"]).choose([])


def test_numbers_in_names_sort_by_value() -> None:
    """layers.10 comes after layers.9, and names without numbers by code point."""
    given = ["h.10.w", "h.9.w", "h.w", "h.9.b", "a"]
    assert ["a", "h.9.b", "h.9.w", "h.10.w", "h.w"] == natural_order(given)


def test_sharing_tightens_to_the_depth() -> None:
    """From all six layers to two over the first 40% of ten rounds, and no further."""
    assert [6, 5, 4, 3, 2, 2, 2, 2, 2, 2] == [tightened_depth(2, 6, at, 10) for at in range(10)]
    assert [2, 2] == [tightened_depth(2, 6, at, 2, tighten=0) for at in range(2)]
    assert [6, 6, 6] == [tightened_depth(6, 6, at, 3) for at in range(3)]
    assert [6, 4, 2] == [tightened_depth(2, 6, at, 3, tighten=2 / 3) for at in range(3)]
