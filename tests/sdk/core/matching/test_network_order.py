"""The order in which tensors are read: the layout's own where it has one, else natural numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.layout import NetworkOrder

NAMES = st.lists(st.text("ab.019é", min_size=1, max_size=9), unique=True, max_size=12)


@pytest.mark.parametrize(
    "wanted",
    [
        ["embed", "head", "layers.0.w", "layers.1.w", "layers.2.w", "layers.9.w", "layers.10.w"],
        ["fc.bias", "fc.weight", "fc1.weight", "fc2.weight", "fc10.weight"],
        ["a.0", "a.1.1", "a.1.2", "a.1.10", "a.2", "b"],
        ["h.w1", "h.w01.x", "h.w2"],
        ["x" + "9" * 5000, "x1" + "0" * 5000],
        ["Ä.1", "Ä.2", "Ä.10"],
    ],
)
def test_names_sorted_by_code_point_are_read_by_number(wanted: list[str]) -> None:
    """Numbers count by value, module by module; an embedding or a head has no place of its own."""
    names = sorted(wanted)
    order = NetworkOrder.of(names)
    assert tuple(wanted) == order.arrange(names)
    assert not order.is_own


def test_another_order_is_that_of_the_network() -> None:
    """A layout whose names no reader has sorted is read as it is."""
    names = ["embed", "layers.0", "layers.1", "layers.10", "layers.2", "head"]
    order = NetworkOrder.of(names)
    assert (tuple(names), True) == (order.arrange(names), order.is_own)


@given(NAMES)
def test_every_tensor_is_read_once(names: list[str]) -> None:
    """Whatever its name; sorted names have one order, however they came."""
    order = NetworkOrder.of(names)
    assert list(range(len(names))) == sorted(order.places)
    shuffled = random.Random(1).sample(names, len(names))
    first, second = sorted(names), sorted(shuffled)
    assert NetworkOrder.of(first) == NetworkOrder.of(second)
    assert not NetworkOrder.of(first).is_own
