"""The change feed that the in-process index of a space reads from the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.infra.db.database import Reader
from app.models.index.repositories import changes
from app.models.index.space_index import ChangedModels

__all__ = ["ChangeFeed"]


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The :class:`app.models.index.space_index.Feed` of a space, as one transaction sees it.

    Attributes:
        session: the session of that transaction. Horizon and removals are both read in it, so they
            agree even if the space itself was read earlier.
    """

    session: Reader
    space_id: int

    @property
    def compacted_version(self) -> int:
        return changes.compacted_version(self.session, self.space_id)

    @property
    def models(self) -> int:
        return changes.count_models(self.session, self.space_id)

    def changed_since(self, since: int) -> Iterable[ChangedModels]:
        pages = changes.changed_since(self.session, self.space_id, since)
        return (ChangedModels(*page) for page in pages)

    def removed_since(self, since: int) -> Iterable[int]:
        return changes.removed_since(self.session, self.space_id, since)
