"""The database as the in-process index of a space follows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.index import change_repository
from app.index.space_index import Changed
from app.infra.db.database import Reader

__all__ = ["ChangeFeed"]


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The :class:`app.index.space_index.Feed` of a space, as one transaction sees it.

    Attributes:
        session: of that transaction. All is read in it, so that the horizon is that of the
            removals, whenever the space itself was read.
    """

    session: Reader
    space_id: int

    @property
    def horizon(self) -> int:
        return change_repository.compacted_version(self.session, self.space_id)

    def changed(self, since: int) -> Iterable[Changed]:
        pages = change_repository.changed_since(self.session, self.space_id, since)
        return (Changed(*page) for page in pages)

    def removed(self, since: int) -> Iterable[int]:
        return change_repository.removed_since(self.session, self.space_id, since)
