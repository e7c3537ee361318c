"""The feed of a tenant's fingerprints, which its finding index reads from the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property

from app.fingerprints.finding import repository
from app.fingerprints.finding.records import Changed, Described, Examined
from app.fingerprints.records import Feed
from app.fingerprints.repositories import feeds
from app.infra.db.database import Database, Reader

__all__ = ["TenantFeed", "reading_feeds"]


class TenantFeed:
    """The :class:`app.fingerprints.finding.records.Feed` of a tenant, as one transaction sees it.

    Args:
        session: the session of that transaction.
    """

    def __init__(self, session: Reader, tenant_id: int) -> None:
        self._session = session
        self._tenant_id = tenant_id

    @cached_property
    def _feed(self) -> Feed:
        return feeds.read_feed(self._session, self._tenant_id)

    @property
    def version(self) -> int:
        return self._feed.version

    @property
    def compacted_version(self) -> int:
        return self._feed.compacted_version

    @property
    def fingerprints(self) -> int:
        return self._feed.fingerprints

    def changed_since(self, since: int) -> Iterable[Sequence[Changed]]:
        return repository.changed_since(self._session, self._tenant_id, since)

    def removed_since(self, since: int) -> Sequence[int]:
        return feeds.removed_since(self._session, self._tenant_id, since)

    def examine(self, ids: Collection[int]) -> Mapping[int, Examined]:
        return repository.examine(self._session, self._tenant_id, ids)

    def described(self, ids: Collection[int]) -> Mapping[int, Described]:
        return repository.described(self._session, self._tenant_id, ids)

    def named(self, names: Collection[str]) -> Sequence[int]:
        return repository.named(self._session, self._tenant_id, names)


def reading_feeds(database: Database) -> Callable[[int], AbstractContextManager[TenantFeed]]:
    """A function that opens the feed of a tenant in a transaction of its own."""

    @contextmanager
    def reading(tenant_id: int) -> Iterator[TenantFeed]:
        with database.reading() as session:
            yield TenantFeed(session, tenant_id)

    return reading
