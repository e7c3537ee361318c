"""What a checkpoint is to given models, in one plain sentence for each thing that was measured.

Two fingerprints tell what differs between two checkpoints, and not who made one of the other. So a
sentence compares the checkpoint with a model, and says nothing where the lines leave it open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from modelkin.core.fingerprints.sources import Parent
from modelkin.core.quoting import quote

__all__ = ["ORIGIN", "Relation", "RelationName", "relations"]

RelationName = Literal[
    "copy",
    "layout",
    "part",
    "changed",
    "vocabulary_resized",
    "head_changed",
    "depth_up_scaled",
    "layers_dropped",
    "layers_moved",
    "widths_changed",
    "upcycled",
    "assembled",
    "average",
    "reuses",
    "related",
    "shares",
    "none",
]
"""What is between a checkpoint and a model, see :class:`Relation`."""

ORIGIN: Final = (
    "Equal lines mean a common origin: a base, a checkpoint, or the same random seed. Which of two "
    "came first, they do not say."
)
"""What equal lines mean; said once beside any relation but ``none``."""
_NAMED: Final = 6


@dataclass(frozen=True)
class Relation:
    """One thing that was found out about a checkpoint and models.

    Attributes:
        relation: what is between them.
        models: their names; the one with the greater share first, none where nothing was found.
        sentence: the same for people, in English, without a full stop.
    """

    relation: RelationName
    models: tuple[str, ...]
    sentence: str


def relations(parents: Sequence[Parent]) -> tuple[Relation, ...]:
    """Say what a checkpoint is to its parents."""
    if not parents:
        return (
            Relation(
                "none",
                (),
                "no model given is an ancestor, as far as lines show; that none are in common "
                "proves nothing",
            ),
        )
    return tuple(_of_parent(parent) for parent in parents)


def _of_parent(parent: Parent) -> Relation:
    name = parent.model
    if parent.verdict == "copy":
        return Relation("copy", (name,), f"copy of {name}: all lines of both are equal")
    if parent.verdict == "part":
        return Relation("part", (name,), f"part of {name}: all of its lines are found there")
    if parent.verdict == "reuses":
        tensors = _listed([quote(tensor)[1:-1] for tensor in parent.tensors])
        return Relation("reuses", (name,), f"lines in common with {name}, in {tensors}")
    if parent.verdict == "related":
        return Relation(
            "related",
            (name,),
            f"related to {name}: {parent.keys} lines in common where chance leaves "
            f"{parent.expected:.1f}, and no tensor has enough",
        )
    share = f"{parent.share_of_lines:.0%} of lines are equal"
    return Relation("shares", (name,), f"shares weights with {name}: {share}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
