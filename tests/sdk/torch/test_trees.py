"""Nested batches and outputs, which torch itself flattens by private functions alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest

from modelkin.torch.trees import leaves_of, map_leaves


class Pair(NamedTuple):
    """A batch of two parts with names."""

    left: Any
    right: Any


NESTED = [
    1,
    (1, [2, 3]),
    {"b": 1, "a": (2,)},
    OrderedDict(b=[1], a=2),
    Pair(1, {"deep": [2]}),
    (),
]


@pytest.mark.parametrize("tree", NESTED, ids=str)
def test_a_tree_keeps_its_types_and_the_order_of_its_leaves(tree: Any) -> None:
    """A function sees each leaf once, and nothing else changes."""
    doubled = map_leaves(lambda leaf: 2 * leaf, tree)
    assert [2 * leaf for leaf in leaves_of(tree)] == leaves_of(doubled)
    assert type(tree) is type(doubled)
    assert tree == map_leaves(lambda leaf: leaf // 2, doubled)


def test_what_is_no_tree_is_a_leaf() -> None:
    """Strings are not taken apart."""
    assert ["ab", None] == leaves_of(("ab", {"x": None}))
