"""Crossings: which neighbours of a model came near, and which went away, with its new support.

The support is held against the one before it, each beside all other models as they were told of
last: one whose own change is still to be told counts as what it was before that. So the changes of
a space follow one another, in whatever order they are told, and of each pair that crosses one side
tells. Nothing else is remembered from one change to the next: a subscription sees the first change
after it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.catalog.reader import ModelReader, Subject
from app.catalog.records import ModelRecord
from app.catalog.repositories import revisions
from app.catalog.repositories.candidates import Candidate, candidates_by_id, candidates_by_name
from app.catalog.revisions import RevisionService
from app.errors import ModelNotFound, NotFound, SupportMissing
from app.infra.db.database import Database, Reader
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.spaces.records import SpaceRecord
from app.webhooks import event_repository
from app.webhooks.outbox import SUPPORT_STORED
from modelkin.types.search import Neighbor

__all__ = ["Change", "ChangeSet", "NeighborChanges"]

MOST: Final = 1000
"""Neighbours above a threshold that are looked at, before and after; and changes that are still to
be told: where there are more of these, the models of the others count as what they are now.
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One neighbour, before and after.

    Attributes:
        similarity: S now, as sharply as what is stored of the neighbour allows.
        estimate: how sharply that is.
        previous: S before; None where nobody knows it.
    """

    model: str
    similarity: float
    estimate: str
    previous: float | None

    def crossed(self, threshold: float) -> str | None:
        """``"above"`` or ``"below"``; None where it stayed on its side."""
        now = self.similarity >= threshold
        before = self.previous is not None and self.previous >= threshold
        return None if now == before else "above" if now else "below"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What the neighbours of a model were and are.

    Attributes:
        space: where.
        model: as it is now.
        previous: the revision that it was held against; None where none is kept.
        items: the neighbours above the lowest threshold, now or before, and maybe others; the
            nearest first.
        waiting: the first revisions of all that are still to be told of, under the ids of their
            models, as this took them to be.
    """

    space: SpaceRecord
    model: ModelRecord
    previous: int | None
    items: tuple[Change, ...]
    waiting: Mapping[int, int]


class NeighborChanges:
    """Compares what a model is with what it was.

    Args:
        database: the truth.
        library: reads what is stored.
        revisions: reads what was.
        search: finds neighbours.
        comparer: measures pairs.
    """

    def __init__(
        self,
        database: Database,
        library: ModelReader,
        revisions: RevisionService,
        search: SearchService,
        comparer: Comparer,
    ) -> None:
        self._database = database
        self._library = library
        self._revisions = revisions
        self._search = search
        self._comparer = comparer

    def changes(
        self, space: SpaceRecord, model: ModelRecord, since: int, threshold: float
    ) -> ChangeSet | None:
        """The neighbours of a model now, and as of the last revision before ``since``.

        Args:
            space: where.
            model: whose.
            since: its first revision that is still to be told of.
            threshold: S of those who are near, now or before.

        Returns:
            None where there is no such model with a support any more.
        """
        with self._database.reading() as session:
            try:
                subject = self._library.stored_subject(session, space, model.name)
            except ModelNotFound:
                return None
            present = subject.model
            if subject.packed is None or present is None or present.id != model.id:
                return None
            kept = [n for n in revisions.kept_revisions(session, model) if n < since]
        before = self._before(space, model.name, kept[-1]) if kept else None
        with self._database.reading() as session:
            now = self._near(session, space, subject, threshold)
            then = {} if before is None else self._near(session, space, before, threshold)
            now |= self._named(session, space, subject, then.keys() - now.keys())
            if before is not None:
                then |= self._named(session, space, before, now.keys() - then.keys())
        with self._database.reading() as session:
            # Asked last: whatever was read above is either still so, or waits to be told now.
            waiting = self._waiting(session, space)
            others, unborn = _as_told(session, space, model, waiting)
            now |= self._measured(session, space, subject, others)
            if before is not None:
                then |= self._measured(session, space, before, others)
        items = [
            Change(
                item.model,
                item.similarity,
                item.estimate,
                then[item.model].similarity if item.model in then else None,
            )
            for item in now.values()
            if item.model not in unborn
        ]
        items.sort(key=lambda item: (-item.similarity, item.model))
        previous = None if before is None else kept[-1]
        return ChangeSet(space, present, previous, tuple(items), waiting)

    def holds(self, session: Reader, changes: ChangeSet) -> bool:
        """Whether nobody has told meanwhile of a change that these were held against as untold."""
        waiting = self._waiting(session, changes.space)
        return all(waiting.get(of) == first for of, first in changes.waiting.items())

    def _waiting(self, session: Reader, space: SpaceRecord) -> dict[int, int]:
        return event_repository.first_uncompared_revisions(
            session, space.id, SUPPORT_STORED, limit=MOST
        )

    def _before(self, space: SpaceRecord, name: str, number: int) -> Subject | None:
        """The support of a revision, unless that has just been let go."""
        try:
            with self._database.reading() as session:
                support = self._revisions.support(session, space, name, number)
        except (NotFound, SupportMissing):
            return None
        return self._library.given_subject(space, support)

    def _near(
        self, session: Reader, space: SpaceRecord, subject: Subject, threshold: float
    ) -> dict[str, Neighbor]:
        found = self._search.neighbors(session, space, subject, k=MOST, min_similarity=threshold)
        return {item.model: item for item in found}

    def _named(
        self, session: Reader, space: SpaceRecord, subject: Subject, names: Iterable[str]
    ) -> dict[str, Neighbor]:
        """How near some models are to a subject; of those that there are."""
        found = candidates_by_name(session, space, sorted(names))
        return self._measured(session, space, subject, found)

    def _measured(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        candidates: Iterable[Candidate],
    ) -> dict[str, Neighbor]:
        asked = self._comparer.query(session, space, subject)
        # A support of before is nothing to remember as the model's.
        found, _ = self._comparer.compare(asked, candidates, cache_sketches=False)
        return {item.model: item for item in found}


def _as_told(
    session: Reader, space: SpaceRecord, model: ModelRecord, waiting: Mapping[int, int]
) -> tuple[list[Candidate], set[str]]:
    """The other models whose own change is still to be told, as they were before it.

    Returns:
        Those whose support of then is kept, and the names of this one and of all that were not
        there yet. What is in neither counts as what it is now.
    """
    before = revisions.last_supports_before(session, waiting)
    others, unborn = list[Candidate](), {model.name}
    for candidate in candidates_by_id(session, space, [*waiting]):
        if candidate.id == model.id:
            continue
        if waiting[candidate.id] == 1:
            unborn.add(candidate.name)
        elif candidate.id in before:
            size, key = before[candidate.id]
            others.append(replace(candidate, support_size=size, blob_key=key))
    return others, unborn
