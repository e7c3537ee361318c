"""The tree of a family as numbers: bases on the left, derivatives on the right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.anatomy.families import Family, FamilyEdge, FamilyMember

__all__ = [
    "FamilyBranch",
    "FamilyLine",
    "FamilyNode",
    "FamilyTree",
    "family_branches",
    "family_tree",
]

_COLUMN: Final = 300.0
_NODE_WIDTH: Final = 220.0
_NODE_HEIGHT: Final = 30.0
_GAP: Final = 12.0
_BULGE: Final = 60.0
"""How far the edge between two models of one column is drawn out: three quarters of it are seen."""
_MOST_IN_COLUMN: Final = 40
"""The models of a level that are drawn, the nearest; the table has all."""
_LETTERS: Final = 28
"""The letters of a name that a node has room for."""


@dataclass(frozen=True, slots=True)
class FamilyNode:
    """A model of the tree; ``short`` is its name as far as there is room."""

    member: FamilyMember
    x: float
    y: float
    short: str
    width: float = _NODE_WIDTH
    height: float = _NODE_HEIGHT


@dataclass(frozen=True, slots=True)
class FamilyLine:
    """An edge of the tree as a path, and how thick its share of lines makes it."""

    edge: FamilyEdge
    path: str
    thickness: float


@dataclass(frozen=True, slots=True)
class FamilyTree:
    """The drawn tree.

    Attributes:
        left_out: how many models are listed, and not drawn.
    """

    width: float
    height: float
    nodes: tuple[FamilyNode, ...]
    lines: tuple[FamilyLine, ...]
    left_out: int


def family_tree(family: Family) -> FamilyTree:
    """Lay out a family."""
    columns = defaultdict[int, list[FamilyMember]](list)
    for member in family.members:
        columns[member.level].append(member)
    levels = sorted(columns)
    shares = _shares(family)
    drawn = {level: _nearest(columns[level], shares) for level in levels}
    tallest = max(map(len, drawn.values()))
    height = tallest * (_NODE_HEIGHT + _GAP) - _GAP
    nodes = dict[str, FamilyNode]()
    for column, level in enumerate(levels):
        members = drawn[level]
        top = (height - (len(members) * (_NODE_HEIGHT + _GAP) - _GAP)) / 2
        for row, member in enumerate(members):
            y = top + row * (_NODE_HEIGHT + _GAP)
            nodes[member.name] = FamilyNode(member, column * _COLUMN, y, _short(member.name))
    edges = [each for each in family.edges if {each.model, each.base} <= nodes.keys()]
    width = (len(levels) - 1) * _COLUMN + _NODE_WIDTH
    if any(nodes[each.model].x == nodes[each.base].x == width - _NODE_WIDTH for each in edges):
        width += _BULGE
    return FamilyTree(
        width,
        height,
        tuple(nodes.values()),
        tuple(_line(each, nodes) for each in edges),
        len(family.members) - len(nodes),
    )


@dataclass(frozen=True, slots=True)
class FamilyBranch:
    """A model below the nearest of its bases, for screens that are too narrow for the picture.

    Attributes:
        edge: to that base; None where the model has none.
    """

    member: FamilyMember
    edge: FamilyEdge | None
    branches: tuple[FamilyBranch, ...]


def family_branches(family: Family) -> tuple[FamilyBranch, ...]:
    """The members that have no base, with all below them; each model once.

    Of several bases it is that which the picture draws to the left, declared, or with most lines:
    copies are drawn from each other.
    """
    levels = {each.name: each.level for each in family.members}

    def rank(edge: FamilyEdge) -> tuple[bool, bool, float]:
        share = edge.kin.share if edge.kin else 0.0
        return levels[edge.base] >= levels[edge.model], not edge.is_declared, -share

    to_base = dict[str, FamilyEdge]()
    for edge in sorted(family.edges, key=rank):
        to_base.setdefault(edge.model, edge)
    below = defaultdict[str, list[FamilyMember]](list)
    for member in family.members:
        if member.name in to_base:
            below[to_base[member.name].base].append(member)
    placed = set[str]()

    def branch(member: FamilyMember) -> FamilyBranch:
        placed.add(member.name)
        own = [branch(each) for each in below[member.name] if each.name not in placed]
        return FamilyBranch(member, to_base.get(member.name), tuple(own))

    roots = [each for each in family.members if each.name not in to_base]
    # Bases that lead in a circle are below none.
    return tuple(branch(each) for each in (*roots, *family.members) if each.name not in placed)


def _shares(family: Family) -> dict[str, float]:
    """The greatest share of an edge of each model."""
    shares = defaultdict[str, float](float)
    for edge in family.edges:
        share = edge.kin.share if edge.kin else 0.0
        for name in (edge.model, edge.base):
            shares[name] = max(shares[name], share)
    return shares


def _nearest(members: list[FamilyMember], shares: Mapping[str, float]) -> list[FamilyMember]:
    """The members of a level that are drawn, in their order."""
    nearest = sorted(members, key=lambda each: -shares[each.name])[:_MOST_IN_COLUMN]
    kept = {each.name for each in nearest}
    return [each for each in members if each.name in kept]


def _line(edge: FamilyEdge, nodes: Mapping[str, FamilyNode]) -> FamilyLine:
    """An edge as a path through the gap between columns: behind nodes it would look dashed."""
    base, model = nodes[edge.base], nodes[edge.model]
    from_x, from_y = base.x + base.width, base.y + base.height / 2
    to_x, to_y = model.x, model.y + model.height / 2
    bend = max((to_x - from_x) / 2, 40.0)
    first, last = from_x + bend, to_x - bend
    if model.x == base.x:
        to_x, first, last = from_x, from_x + _BULGE, from_x + _BULGE
    elif model.x < base.x:
        from_x, to_x = base.x, model.x + model.width
        first, last = from_x - bend, to_x + bend
    path = (
        f"M{from_x:.1f},{from_y:.1f}C{first:.1f},{from_y:.1f} "
        f"{last:.1f},{to_y:.1f} {to_x:.1f},{to_y:.1f}"
    )
    return FamilyLine(edge, path, 1.5 if edge.kin is None else 1.5 + 3.5 * edge.kin.share)


def _short(name: str) -> str:
    """The last part of a name, or its end."""
    if len(name) <= _LETTERS:
        return name
    last = name.rpartition("/")[2]
    return last if len(last) <= _LETTERS else f"{last[:12]}…{last[-(_LETTERS - 13) :]}"
