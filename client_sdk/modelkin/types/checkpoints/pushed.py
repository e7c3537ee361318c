"""Checkpoints for ``push_checkpoints``, and what became of each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from modelkin._printing import MAX_ROWS, Table, table_of_rows
from modelkin.types.search import Ranking
from modelkin.types.vocabulary import PushState

__all__ = ["AUTO", "CheckpointItem", "PushedCheckpoint", "PushedCheckpoints"]

AUTO: Final = "auto"
"""In place of a space's name: the space of the model's family."""


@dataclass(frozen=True, slots=True)
class CheckpointItem:
    """A checkpoint for ``push_checkpoints``.

    Attributes:
        path: a file, an index of shards or a folder that holds one checkpoint.
        model: the name of the model; None for that of the path, behind the prefix. A file that is
            named as most are, such as ``model.safetensors``, has that of its folder.
        base_model: the model that it derives from; None for what its card or its file says.
        tags: replace the model's tags; None for those of its card, if it has any.
        space: the space that it goes to; None for that of all.
    """

    path: str | os.PathLike[str]
    model: str | None = None
    base_model: str | None = None
    tags: Iterable[str] | None = None
    space: str | None = None


@dataclass(frozen=True, slots=True)
class PushedCheckpoint:
    """What became of a checkpoint.

    Attributes:
        model: the name of the model; empty for what is no checkpoint.
        space: the space; None where it got none.
        state: ``"created"``; ``"replaced"``, where anything about the model changed;
            ``"unchanged"``, where the service had all of it; ``"planned"``, in a dry run;
            ``"skipped"``, for what is no checkpoint or not meant; ``"failed"``.
        reason: why it was skipped or failed, or a note; else None.
        new_space: whether the space is made for it, or was.
        path: the file or folder.
    """

    model: str
    space: str | None
    state: PushState
    reason: str | None = None
    new_space: bool = False
    path: str = ""


_ORDER: dict[str, int] = {"failed": 0, "created": 1, "replaced": 2, "planned": 3, "unchanged": 4}


@dataclass(frozen=True, slots=True, repr=False)
class PushedCheckpoints(Ranking[PushedCheckpoint]):
    """The checkpoints of one ``push_checkpoints``: what failed first, what was skipped last.

    Attributes:
        items: the checkpoints; the object itself is a sequence of them too.
    """

    _row: ClassVar[type[Any]] = PushedCheckpoint
    items: tuple[PushedCheckpoint, ...] = field(default=())

    @classmethod
    def of(cls, found: Iterable[PushedCheckpoint]) -> PushedCheckpoints:
        """The checkpoints in their order."""
        return cls(
            tuple(
                sorted(found, key=lambda each: (_ORDER.get(each.state, 5), each.model, each.path))
            )
        )

    @property
    def counts(self) -> Mapping[str, int]:
        """How many there are of each state that occurs."""
        return dict(Counter(each.state for each in self.items))

    @property
    def spaces(self) -> Mapping[str, int]:
        """How many models are in each space, by its name."""
        stored = Counter(
            each.space
            for each in self.items
            if each.space is not None and each.state not in ("failed", "skipped")
        )
        return dict(sorted(stored.items()))

    @property
    def failed(self) -> tuple[PushedCheckpoint, ...]:
        """Those that failed, each with the reason."""
        return tuple(each for each in self.items if each.state == "failed")

    def _table(self) -> Table:
        said = ", ".join(f"{count:,} {state}" for state, count in self.counts.items())
        title = f"PushedCheckpoints, {said or 'none'}"
        more = len(self.items) - MAX_ROWS
        return table_of_rows(title, self.items[:MAX_ROWS], more, first=("model", "space", "state"))
