"""``NeighborChanges``: the neighbours that a model gained or lost with its new support.

The new and the previous support are compared with all other models. A model with an uncompared
change counts with its content before that change. So the changes of a space form one sequence in
any order of fan-out, and each crossing is reported once, from one side of its pair. No other state
is kept: a subscription gets the first change after it was created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.infra.db.database import Database, Reader
from app.infra.errors import ModelNotFound, NotFound, SupportMissing
from app.kinship.family import Family
from app.kinship.repository import tags_by_name
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import revisions
from app.models.catalog.repositories.candidates import (
    Candidate,
    candidates_by_id,
    candidates_by_name,
)
from app.models.catalog.revisions import RevisionService
from app.models.spaces.records import SpaceRecord
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.webhooks.outbox import SUPPORT_STORED
from app.webhooks.repositories import events as event_repository
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import Relation

__all__ = ["Change", "ChangeSet", "NeighborChanges"]

MAX_NEIGHBORS: Final = 1000
"""Neighbours above the threshold that are compared, before and after."""
MAX_UNCOMPARED: Final = 1000
"""The most uncompared changes that are considered; models of further ones count as they are now."""


@dataclass(frozen=True, slots=True)
class Change:
    """One neighbour, before and after.

    Attributes:
        similarity: the S now, as exact as the neighbour's stored data allow.
        estimate: the method behind ``similarity``.
        previous: the S before; None if it is unknown.
        relation: its relation by the declared bases, as in a lineage; None if it is undeclared.
        tags: its tags at the time of comparison.
    """

    model: str
    similarity: float
    estimate: str
    previous: float | None
    relation: Relation | None = None
    tags: frozenset[str] = frozenset()

    def crossing(self, threshold: float) -> str | None:
        """The new side, ``"above"`` or ``"below"``; None if it stayed on its side."""
        now = self.similarity >= threshold
        before = self.previous is not None and self.previous >= threshold
        return None if now == before else "above" if now else "below"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The neighbours of a model, before and after.

    Attributes:
        model: the model as it is now.
        previous: the revision that it was compared with; None if none is kept.
        items: the neighbours above the lowest threshold, now or before, and perhaps more; nearest
            first.
        waiting: the first uncompared revision of each model, by id, at the time of comparison.
    """

    space: SpaceRecord
    model: ModelRecord
    previous: int | None
    items: tuple[Change, ...]
    waiting: Mapping[int, int]


class NeighborChanges:
    """Compares the neighbours of a model with those of an earlier revision.

    Args:
        reader: reads stored models.
        revisions: reads earlier revisions.
        search: finds neighbours.
        comparer: measures pairs.
    """

    def __init__(
        self,
        database: Database,
        reader: ModelReader,
        revisions: RevisionService,
        search: SearchService,
        comparer: Comparer,
    ) -> None:
        self._database = database
        self._reader = reader
        self._revisions = revisions
        self._search = search
        self._comparer = comparer

    def changes(
        self, space: SpaceRecord, model: ModelRecord, since: int, threshold: float
    ) -> ChangeSet | None:
        """Return the neighbours of a model now, and at the last revision before ``since``.

        Args:
            since: its first uncompared revision.
            threshold: the least S of a neighbour, now or before.

        Returns:
            None if the model is deleted or has no support any longer.
        """
        with self._database.reading() as session:
            try:
                subject = self._reader.stored_subject(session, space, model.name)
            except ModelNotFound:
                return None
            present = subject.model
            if subject.subspace is not None and present is not None and present.id == model.id:
                return self._of_data(session, space, subject, present, threshold)
            if subject.packed is None or present is None or present.id != model.id:
                return None
            kept = [n for n in revisions.kept_revisions(session, model) if n < since]
        before = self._before(space, model.name, kept[-1]) if kept else None
        with self._database.reading() as session:
            now = self._near(session, space, subject, threshold)
            then = {} if before is None else self._near(session, space, before, threshold)
            now |= self._measure_named(session, space, subject, then.keys() - now.keys())
            if before is not None:
                then |= self._measure_named(session, space, before, now.keys() - then.keys())
        with self._database.reading() as session:
            # Read last: a model that has changed since it was read above is uncompared now.
            waiting = self._waiting(session, space)
            others, absent = _before_change(session, space, model, waiting)
            now |= self._measure(session, space, subject, others)
            if before is not None:
                then |= self._measure(session, space, before, others)
        items = [
            Change(
                item.model,
                item.similarity,
                item.estimate,
                then[item.model].similarity if item.model in then else None,
            )
            for item in now.values()
            if item.model not in absent
        ]
        items.sort(key=lambda item: (-item.similarity, item.model))
        previous = None if before is None else kept[-1]
        with self._database.reading() as session:
            described = _describe(session, space, present, items)
        return ChangeSet(space, present, previous, described, waiting)

    def _of_data(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        model: ModelRecord,
        threshold: float,
    ) -> ChangeSet:
        """The neighbours of a model's data now: earlier data subspaces are not kept."""
        near = self._search.neighbors(
            session, space, subject, k=MAX_NEIGHBORS, min_similarity=threshold
        )
        items = [Change(item.model, item.similarity, item.estimate, None) for item in near]
        described = _describe(session, space, model, items)
        return ChangeSet(space, model, None, described, self._waiting(session, space))

    def is_current(self, session: Reader, changes: ChangeSet) -> bool:
        """Whether all changes that this set took for uncompared still are."""
        waiting = self._waiting(session, changes.space)
        return all(waiting.get(of) == first for of, first in changes.waiting.items())

    def _waiting(self, session: Reader, space: SpaceRecord) -> dict[int, int]:
        return event_repository.first_uncompared_revisions(
            session, space.id, SUPPORT_STORED, limit=MAX_UNCOMPARED
        )

    def _before(self, space: SpaceRecord, name: str, number: int) -> Subject | None:
        """The support of a revision, unless it has just been pruned."""
        try:
            with self._database.reading() as session:
                support = self._revisions.support(session, space, name, number)
                return self._reader.given_subject(session, space, support)
        except (NotFound, SupportMissing):
            return None

    def _near(
        self, session: Reader, space: SpaceRecord, subject: Subject, threshold: float
    ) -> dict[str, Neighbor]:
        # For so many neighbours `auto` would compare all models of a small space, twice an event.
        found = self._search.neighbors(
            session, space, subject, k=MAX_NEIGHBORS, min_similarity=threshold, method="scan"
        )
        return {item.model: item for item in found}

    def _measure_named(
        self, session: Reader, space: SpaceRecord, subject: Subject, names: Iterable[str]
    ) -> dict[str, Neighbor]:
        """Return the similarities to a subject of the named models that exist."""
        found = candidates_by_name(session, space, sorted(names))
        return self._measure(session, space, subject, found)

    def _measure(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        candidates: Iterable[Candidate],
    ) -> dict[str, Neighbor]:
        asked = self._comparer.query(session, space, subject)
        # A cached sketch of an earlier support would be taken for the model's present one.
        found, _ = self._comparer.compare(asked, [*candidates], cache_sketches=False)
        return {item.model: item for item in found}


def _describe(
    session: Reader, space: SpaceRecord, model: ModelRecord, items: Sequence[Change]
) -> tuple[Change, ...]:
    """The neighbours with their declared relation to the model, and their tags."""
    names = [item.model for item in items]
    family = Family.of(session, space, model.name, model.bases, names)
    tags = tags_by_name(session, space, names)
    return tuple(
        replace(
            item,
            relation=family.relation(item.model),
            tags=frozenset(tags.get(item.model, ())),
        )
        for item in items
    )


def _before_change(
    session: Reader, space: SpaceRecord, model: ModelRecord, waiting: Mapping[int, int]
) -> tuple[list[Candidate], set[str]]:
    """Return the other models with uncompared changes, as they were before the changes.

    Returns:
        The models whose earlier support is kept; and the names of this model and of all models that
        did not exist yet. A model in neither counts as it is now.
    """
    before = revisions.last_supports_before(session, waiting)
    others, absent = list[Candidate](), {model.name}
    for candidate in candidates_by_id(session, space, [*waiting]):
        if candidate.id == model.id:
            continue
        if waiting[candidate.id] == 1:
            absent.add(candidate.name)
        elif candidate.id in before:
            size, digest, key = before[candidate.id]
            others.append(replace(candidate, support_size=size, digest=digest, blob_key=key))
    return others, absent
