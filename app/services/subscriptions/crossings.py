"""Crossings: which neighbours of a model came near, and which went away, with its new support.

The support is held against the one before it, each beside all other models as they are now. Nothing
is remembered from one change to the next: a subscription sees the first change after it was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.services.compare import Comparer
from app.services.library import Library, Subject
from app.services.revisions import RevisionService
from app.services.search import SearchService
from app.stores.ports import ModelRecord, SpaceRecord
from app.stores.sql import models, revisions
from app.stores.sql.database import Database, Reader
from app.stores.sql.kin import candidates_by_name
from modelkin.errors import ModelNotFound, NotFound, SupportMissing
from modelkin.types import Neighbor

__all__ = ["Change", "Changes", "Crossings"]

MOST: Final = 1000
"""Neighbours above a threshold that are looked at, before and after."""


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
class Changes:
    """What the neighbours of a model were and are.

    Attributes:
        model: as it is now.
        previous: the revision that it was held against; None where none is kept.
        items: the neighbours above the lowest threshold, now or before; the nearest first.
    """

    model: ModelRecord
    previous: int | None
    items: tuple[Change, ...]


class Crossings:
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
        library: Library,
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
        self, space: SpaceRecord, name: str, since: int, threshold: float
    ) -> Changes | None:
        """The neighbours of a model now, and as of the last revision before ``since``.

        Args:
            space: where.
            name: of the model.
            since: the first revision whose change is asked about.
            threshold: S of those who are near, now or before.

        Returns:
            None where there is no such model with a support any more.
        """
        with self._database.reading() as session:
            try:
                model = models.get_model(session, space, name)
                subject = self._library.stored_subject(session, space, name)
            except ModelNotFound:
                return None
            if subject.packed is None:
                return None
            kept = [n for n in revisions.kept_revisions(session, model) if n < since]
        before = self._before(space, name, kept[-1]) if kept else None
        with self._database.reading() as session:
            now = self._near(session, space, subject, threshold, name)
            then = {} if before is None else self._near(session, space, before, threshold, name)
            now |= self._measured(session, space, subject, then.keys() - now.keys())
            if before is not None:
                then |= self._measured(session, space, before, now.keys() - then.keys())
        items = [
            Change(
                item.model,
                item.similarity,
                item.estimate,
                then[item.model].similarity if item.model in then else None,
            )
            for item in now.values()
        ]
        items.sort(key=lambda item: (-item.similarity, item.model))
        return Changes(model, None if before is None else kept[-1], tuple(items))

    def _before(self, space: SpaceRecord, name: str, number: int) -> Subject | None:
        """The support of a revision, unless that has just been let go."""
        try:
            with self._database.reading() as session:
                support = self._revisions.support(session, space, name, number)
        except (NotFound, SupportMissing):
            return None
        return self._library.given_subject(space, support)

    def _near(
        self, session: Reader, space: SpaceRecord, subject: Subject, threshold: float, name: str
    ) -> dict[str, Neighbor]:
        found = self._search.neighbors(session, space, subject, k=MOST, min_similarity=threshold)
        return {item.model: item for item in found if item.model != name}

    def _measured(
        self, session: Reader, space: SpaceRecord, subject: Subject, names: Iterable[str]
    ) -> dict[str, Neighbor]:
        """How near some models are to a subject; of those that there are."""
        wanted = sorted(names)
        if not wanted:
            return {}
        asked = self._comparer.asked(session, space, subject)
        found, _ = self._comparer.compare(
            asked, candidates_by_name(session, space, wanted).values()
        )
        return {item.model: item for item in found}
