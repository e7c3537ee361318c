"""A relation of a checkpoint to models, and its sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["ORIGIN", "Relation", "RelationName"]

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
    "pruned",
    "widened",
    "upcycled",
    "added",
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
