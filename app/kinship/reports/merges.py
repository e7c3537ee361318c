"""``MergeReader``: takes averages and assembled models apart, with the share of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database
from app.jobs.service import Progress
from app.kinship.reports.likenesses import Likenesses
from app.kinship.reports.repositories.evidence import MeasuredModel
from modelkin.core.fingerprints.merges import merge_of
from modelkin.types.reports import TakenApart

__all__ = ["MAX_WEIGHED", "MERGED", "MergeReader", "Merges"]

MERGED: Final = frozenset({"average", "assembled"})
"""Relations to several models."""

Shares: TypeAlias = tuple[float | None, ...]

_THREE: Final = 3
"""An average, and its two parts."""
MAX_WEIGHED: Final = 2_000
"""Averages of a report whose weights are computed, from three fingerprints each."""


@dataclass
class Merges:
    """What was taken apart.

    Attributes:
        left: averages whose weights were not computed.
    """

    found: list[TakenApart] = field(default_factory=list)
    left: int = 0

    def notes(self) -> tuple[str, ...]:
        """What was left out, for people."""
        if not self.left:
            return ()
        averages = "1 average" if self.left == 1 else f"{self.left:,} averages"
        return (f"The weights of {averages} are not told: to compute them would take too long.",)


class MergeReader:
    """Reads what anatomies have found of merges.

    Args:
        database: the database, which is read.
        fingerprints: reads those of an average and of its two parts.
        most: averages whose weights are computed.
    """

    def __init__(
        self, database: Database, fingerprints: FingerprintService, most: int = MAX_WEIGHED
    ) -> None:
        self._database = database
        self._fingerprints = fingerprints
        self._most = most

    def take_apart(
        self,
        models: Sequence[MeasuredModel],
        ids: Mapping[str, int],
        likenesses: Likenesses,
        progress: Progress,
    ) -> Merges:
        """What is merged of the models, taken apart.

        Args:
            ids: of the fingerprints, by name.
            likenesses: what the models are to others.
        """
        taken, averages = Merges(), 0
        merged = [
            (model, relation)
            for model in models
            for relation in model.relations
            if relation["relation"] in MERGED
        ]
        for done, (model, relation) in enumerate(merged):
            progress(done, len(merged), "taking merges apart")
            parts: tuple[str, ...] = tuple(relation["models"])
            shares: Shares = (None,) * len(parts)
            if relation["relation"] == "assembled":
                shares = _shares_of_lines(likenesses, model.name, parts)
            else:
                averages += 1
                if averages <= self._most:
                    shares = self._weights(model, ids, parts) or shares
            taken.found.append(
                TakenApart(
                    model=model.name,
                    kind=relation["relation"],
                    parts=parts,
                    shares=shares,
                    sentence=relation["sentence"],
                )
            )
        taken.left = max(averages - self._most, 0)
        return taken

    def _weights(
        self, model: MeasuredModel, ids: Mapping[str, int], parts: Sequence[str]
    ) -> Shares | None:
        """The weights of the two parts of an average; None where they are not stored any more."""
        wanted = [model.id, *(ids[part] for part in parts if part in ids)]
        if len(wanted) != _THREE:
            return None
        with self._database.reading() as session:
            read = self._fingerprints.read_many(session, wanted)
        if len(read) < _THREE:
            return None
        merge = merge_of(*(read[each] for each in wanted))
        return None if merge is None else (merge.share, 1 - merge.share)


def _shares_of_lines(likenesses: Likenesses, model: str, parts: Sequence[str]) -> Shares:
    found = (likenesses.between(model, part) for part in parts)
    return tuple(None if each is None else each.share for each in found)
