"""Nested batches and outputs: tuples, lists and dicts, to any depth, whose leaves are the rest."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

__all__ = ["leaves_of", "map_leaves"]


def leaves_of(tree: Any) -> list[Any]:
    """The leaves from left to right; a dict's in the order of its keys."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if not isinstance(tree, (tuple, list)):
        return [tree]
    return [leaf for branch in tree for leaf in leaves_of(branch)]


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of the same types, whose leaves are the function's results."""
    if isinstance(tree, dict):
        copied = copy(tree)
        copied.update({key: map_leaves(function, branch) for key, branch in tree.items()})
        return copied
    if not isinstance(tree, (tuple, list)):
        return function(tree)
    branches = [map_leaves(function, branch) for branch in tree]
    return tree._make(branches) if hasattr(tree, "_make") else type(tree)(branches)
