"""The picture of a family: edges that no node hides, since a hidden part looks dashed."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pytest

from app.anatomy.families import Family, FamilyEdge, FamilyMember
from app.ui.family_charts import FamilyBranch, family_branches, family_tree

LEVELS = {"base": 0, "chat": 1, "mean": 1, "plain": 1, "late": 2}


def family(edges: list[tuple[str, str]]) -> Family:
    """A family with these models and bases."""
    members = tuple(FamilyMember(name, None, level) for name, level in LEVELS.items())
    made = tuple(FamilyEdge(model, base, "declared", None) for model, base in edges)
    return Family("base", members, made, (), (), len(edges), False)


def outline(branches: Iterable[FamilyBranch], depth: int = 0) -> list[str]:
    """The names of a list, each after as many dots as it is deep."""
    return [
        line
        for each in branches
        for line in (f"{'.' * depth}{each.member.name}", *outline(each.branches, depth + 1))
    ]


@pytest.mark.parametrize(
    ("edges", "wanted"),
    [
        (
            [("chat", "base"), ("late", "chat"), ("mean", "base")],
            ["base", ".chat", "..late", ".mean", "plain"],
        ),
        # Copies are drawn from each other: the base to the left counts.
        (
            [("chat", "plain"), ("plain", "chat"), ("chat", "base")],
            ["base", ".chat", "..plain", "mean", "late"],
        ),
        # Bases that lead in a circle are there, too.
        ([("chat", "plain"), ("plain", "chat")], ["base", "mean", "late", "chat", ".plain"]),
        # One of two bases.
        ([("mean", "base"), ("mean", "plain"), ("plain", "base")], None),
    ],
)
def test_a_list_has_each_model_once(edges: list[tuple[str, str]], wanted: list[str] | None) -> None:
    """Below the nearest of its bases."""
    found = outline(family_branches(family(edges)))
    assert sorted(LEVELS) == sorted(each.lstrip(".") for each in found)
    assert wanted is None or wanted == found


@pytest.mark.parametrize(
    "edge",
    [("chat", "base"), ("plain", "chat"), ("chat", "plain"), ("plain", "late"), ("late", "chat")],
)
def test_no_node_hides_an_edge(edge: tuple[str, str]) -> None:
    """Also between two of one column, and from a column back to the one before it."""
    drawn = family_tree(family([edge]))
    [line] = drawn.lines
    numbers = [float(each) for each in re.findall(r"-?[\d.]+", line.path)]
    points = np.array(numbers).reshape(4, 2)
    at = np.linspace(0, 1, 201)[:, None]
    weights = ((1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3)
    curve = sum(weight * point for weight, point in zip(weights, points, strict=True))
    for node in drawn.nodes:
        low = np.array([node.x, node.y]) + 0.5
        high = np.array([node.x + node.width, node.y + node.height]) - 0.5
        assert not np.all((curve > low) & (curve < high), axis=1).any()
    assert np.all(curve >= 0)
    assert np.all(curve <= (drawn.width, drawn.height))
