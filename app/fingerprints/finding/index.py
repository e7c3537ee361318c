"""The finding index of all tenants: which fingerprints may be kin of one.

It proposes candidates by their finding keys. What they have in common in truth is told by their
whole fingerprints.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from cachetools import LRUCache

from app.fingerprints.finding.feed import TenantFeed
from app.fingerprints.finding.listing import Listing, Query, listed, query_of
from app.fingerprints.finding.records import Damaged, Feed, Found, Sizes
from app.fingerprints.finding.rounds import MOST_HOLDERS, candidates
from app.fingerprints.finding.segment_store import SegmentStore
from app.fingerprints.finding.shared_index import SharedIndex
from app.fingerprints.finding.tenant_index import RETRY_DELAY_S, TAIL_ENTRIES, TenantIndex
from app.infra.db.database import Reader
from app.infra.deadlines import Deadline
from app.infra.errors import Unavailable
from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["FindingIndex"]

_MOST_TRIES: Final = 3
_MOST_TENANTS: Final = 256
"""Tenants whose indexes stay open; those of others are opened again at their next question."""

log = logging.getLogger(__name__)


class FindingIndex:
    """The finding indexes of one process.

    Attributes:
        on_answer: called with the outcome of each question: ``found``, ``nothing``, ``truncated``,
            ``degraded`` or ``unavailable``.

    Args:
        folder: a folder on the local disk that is reserved for one database; the first write
            creates it.
        tail_entries: the entries that a tenant's index keeps in memory before it writes them.
        retry_delay: seconds after a failed write during which no other write is tried.
        shared: the index that machines share, which the disk stands in for; the caller closes it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tail_entries: int = TAIL_ENTRIES,
        retry_delay: float = RETRY_DELAY_S,
        shared: SharedIndex | None = None,
    ) -> None:
        self._folder = folder
        self._shared = shared
        self._tail_entries = tail_entries
        self._retry_delay = retry_delay
        self._lock = threading.Lock()
        self._indexes: LRUCache[int, TenantIndex] = LRUCache(_MOST_TENANTS)
        self._tidying: set[int] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="finding")
        self.on_answer: Callable[[str], object] = lambda _: None

    def find(
        self,
        session: Reader,
        tenant_id: int,
        fingerprint: Fingerprint,
        *,
        leave_out: Collection[int] = (),
        limit: int = 20,
        deadline: Deadline,
    ) -> Found:
        """The fingerprints of a tenant that have more keys in common with one than strangers have.

        Args:
            session: the answer is current as this transaction sees the tenant's fingerprints.
            leave_out: ids of fingerprints that are no candidates, such as the fingerprint's own.
            limit: the candidates of a round.

        Raises:
            Unavailable: the index is being built, and there was no time to wait for it.
        """
        return self.find_by(
            TenantFeed(session, tenant_id),
            tenant_id,
            fingerprint,
            leave_out=leave_out,
            limit=limit,
            deadline=deadline,
        )

    def find_by(
        self,
        feed: Feed,
        tenant_id: int,
        fingerprint: Fingerprint,
        *,
        leave_out: Collection[int] = (),
        limit: int = 20,
        deadline: Deadline,
    ) -> Found:
        """As :meth:`find`, by the feed of a tenant."""
        try:
            found = self._find_by(feed, tenant_id, fingerprint, leave_out, limit, deadline)
        except Unavailable:
            self.on_answer("unavailable")
            raise
        self.on_answer(_outcome(found))
        return found

    def _find_by(
        self,
        feed: Feed,
        tenant_id: int,
        fingerprint: Fingerprint,
        leave_out: Collection[int],
        limit: int,
        deadline: Deadline,
    ) -> Found:
        query = query_of(fingerprint)
        ask = partial(
            candidates, query, feed=feed, leave_out=leave_out, limit=limit, deadline=deadline
        )
        if self._shared is None:
            return self._ask_disk(ask, query, feed, tenant_id, deadline)
        listing = self._shared.listing(query, feed, tenant_id, MOST_HOLDERS, deadline)
        if listing is not None:
            found, degraded = ask(listing), not listing.answered.all()
            return replace(found, truncated=found.truncated or degraded, degraded=degraded)
        return replace(self._ask_disk(ask, query, feed, tenant_id, deadline), degraded=True)

    def _ask_disk(
        self,
        ask: Callable[[Listing], Found],
        query: Query,
        feed: Feed,
        tenant_id: int,
        deadline: Deadline,
    ) -> Found:
        index, tries = self._of(tenant_id), 0
        while True:
            try:
                snapshot = index.snapshot_at(feed, deadline, self._tidy_soon(tenant_id, index))
                return ask(listed(query, snapshot, MOST_HOLDERS, feed.version))
            except Damaged as error:
                tries += 1
                if tries == _MOST_TRIES:
                    raise Unavailable("the finding index is damaged again: try again") from error
                log.warning("%s: the finding index of tenant %d is built again", error, tenant_id)
                index.start_again()

    def keep_up(self, feed: Feed, tenant_id: int, deadline: Deadline) -> None:
        """Follow the feed of a tenant, so that no question has to wait until that is done.

        Raises:
            Unavailable: the deadline has passed; what is built stays.
        """
        if self._shared is None:
            index = self._of(tenant_id)
            index.snapshot_at(feed, deadline, self._tidy_soon(tenant_id, index))

    def sizes(self) -> Mapping[int, Sizes]:
        """The sizes of the indexes that are open, by tenant."""
        with self._lock:
            return {tenant_id: each.sizes for tenant_id, each in self._indexes.items()}

    def run_once(self, stopping: threading.Event) -> None:
        """Take up what other processes have stored, and write what a full disk left in memory."""
        with self._lock:
            indexes = list(self._indexes.items())
        for tenant_id, index in indexes:
            if stopping.is_set():
                return
            index.adopt()
            if index.is_untidy:
                self._tidy_soon(tenant_id, index)()

    def wait(self) -> None:
        """Wait until all that is due has been written and merged."""
        self._pool.submit(lambda: None).result()

    def close(self) -> None:
        """End what is going on; what is not written is read from the database again."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _of(self, tenant_id: int) -> TenantIndex:
        with self._lock:
            index = self._indexes.get(tenant_id)
            if index is None:
                index = TenantIndex(
                    SegmentStore(self._folder / str(tenant_id)),
                    tail_entries=self._tail_entries,
                    retry_delay=self._retry_delay,
                )
                self._indexes[tenant_id] = index
            return index

    def _tidy_soon(self, tenant_id: int, index: TenantIndex) -> Callable[[], None]:
        def submit() -> None:
            with self._lock:
                if tenant_id in self._tidying:
                    return
                self._tidying.add(tenant_id)
            try:
                self._pool.submit(tidy)
            except RuntimeError:
                log.debug("the service is stopping; the tail is read from the database again")

        def tidy() -> None:
            try:
                index.tidy()
            except Exception:
                log.exception("the finding index of tenant %d cannot be written", tenant_id)
            finally:
                with self._lock:
                    self._tidying.discard(tenant_id)

        return submit


def _outcome(found: Found) -> str:
    if found.degraded:
        return "degraded"
    if found.truncated:
        return "truncated"
    return "found" if found.candidates else "nothing"
