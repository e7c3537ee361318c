"""The comparisons that a lineage needs, and their deadline."""

from __future__ import annotations

from collections.abc import Sequence

from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.models.catalog.reader import Subject
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.search.comparer import Comparer
from modelkin.types.search import Neighbor

__all__ = ["LineageComparer", "require_time"]


class LineageComparer:
    """Compares a subject with models by name."""

    def __init__(self, comparer: Comparer) -> None:
        self._comparer = comparer

    def compare(
        self, session: Reader, space: SpaceRecord, subject: Subject, others: Sequence[str]
    ) -> dict[str, Neighbor]:
        """The similarity of other models to a subject, as sharp as possible, by name."""
        if not others:
            return {}
        query = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, others)
        session.release()
        found, _ = self._comparer.compare(query, candidates)
        found = self._comparer.with_chance(session, space, subject, found)
        return {item.model: item for item in found}


def require_time(deadline: Deadline) -> None:
    """Refuse to go on once the deadline of a lineage is over, or its client has gone."""
    deadline.require("this lineage", "ask for the model's neighbors, or for overlap with its base")
