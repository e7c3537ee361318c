"""Clean-up of blobs: released blobs after their time of grace, and lasting orphans.

An orphan is a blob that neither a row nor the list of released ones names: a crash left it, or this
is an older copy of the database. So a sweep only notes orphans, and a later sweep deletes the
orphans that it finds again after the time of grace, if no other copy of the database has swept in
between. The lineage shows that: each sweep draws a new one, and writes it into the database and
beside the blobs. Where the two differ, the notes are worth nothing and are forgotten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

from app.infra.db import released_blobs
from app.infra.db.database import Database, Reader
from app.infra.storage.blobs import BlobStore
from app.merges import repository as merges
from app.models.catalog.repositories import models, revisions
from app.models.index.repositories import segments
from app.models.learngenes import repository as learngenes
from app.models.spaces.repositories.spaces import space_ids
from app.operations.maintenance import repository
from app.tenancy.quotas.service import QuotaService

__all__ = ["ORPHAN_AGE_S", "BlobCleanup", "orphans"]

ORPHAN_AGE_S = 3600.0
"""Age from which a blob without a row is an orphan, and no write under way."""
_SWEEPS_PER_GRACE = 4
"""Sweeps in the time of grace: an orphan stays a quarter longer than that at most."""
_BATCH_SIZE = 1000

log = logging.getLogger(__name__)


def orphans(session: Reader, keys: Collection[str]) -> set[str]:
    """Return the ``keys`` that neither a row nor the list of released blobs names."""
    named = models.blob_keys(session, keys) | revisions.blob_keys(session, keys)
    named |= merges.blob_keys(session, keys) | learngenes.blob_keys(session, keys)
    named |= segments.blob_keys(session, keys)
    unnamed = set(keys) - named
    return unnamed - released_blobs.find_released(session, unnamed)


class BlobCleanup:
    """Deletes blobs that nothing needs any more.

    Args:
        database: the database that names the needed blobs.
        blobs: the store to clean up.
        grace_s: seconds that a blob stays after it was released, or noted as an orphan.
        quotas: the quotas of tenants. Released blobs of a tenant stay for less time if they take
            more room than its quota of supports: a loop of replacements would fill the disk in a
            day.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        grace_s: float,
        quotas: QuotaService | None = None,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._quotas = quotas
        self._grace = timedelta(seconds=grace_s)

    def run_once(self, stopping: threading.Event | None = None) -> None:
        """Delete blobs that are due, and sweep if no process has for a quarter of the grace.

        Args:
            stopping: an event that ends the clean-up between two batches.

        Raises:
            Unavailable: a store cannot be used now.
        """
        stopping = stopping or threading.Event()
        self._delete_released(stopping)
        self._delete_beyond_quotas(stopping)
        if not stopping.is_set() and self._claim_sweep():
            self.sweep(stopping)

    def _delete_released(self, stopping: threading.Event) -> None:
        before = datetime.now(UTC) - self._grace
        while not stopping.is_set():
            with self._database.reading() as session:
                keys = released_blobs.due(session, before, _BATCH_SIZE)
            if not keys:
                return
            self._delete_all(keys)

    def _delete_beyond_quotas(self, stopping: threading.Event) -> None:
        """Delete the oldest of what a tenant released, as far as it is more than it may store."""
        if self._quotas is None:
            return
        with self._database.reading() as session:
            released = released_blobs.bytes_by_tenant(session)
            quotas = {tenant: self._quotas.of(session, tenant).support_bytes for tenant in released}
        for tenant, size in released.items():
            quota = quotas[tenant]
            if quota is not None and size > quota:
                log.warning(
                    "tenant %d has released %d bytes of supports that are there still: the oldest "
                    "beyond %d bytes are deleted now, so copies of the database may lack them",
                    *(tenant, size, quota),
                )
                self._delete_some(tenant, size - quota, stopping)

    def _delete_some(self, tenant: int, size: int, stopping: threading.Event) -> None:
        while size > 0 and not stopping.is_set():
            with self._database.reading() as session:
                found = released_blobs.oldest(session, tenant, _BATCH_SIZE)
            if not found:
                return
            chosen = []
            for key, bytes_ in found:
                if size <= 0:
                    break
                chosen.append(key)
                size -= bytes_
            self._delete_all(chosen)

    def _delete_all(self, keys: Sequence[str]) -> None:
        """Delete released blobs, and take them off the list."""
        with self._database.reading() as session:
            needed = _needed_keys(session, keys)
        unneeded = [key for key in keys if key not in needed]
        self._blobs.delete_many([key for key in unneeded if released_blobs.space_of(key) is None])
        for key in unneeded:
            if released_blobs.space_of(key) is not None:
                self._blobs.delete_folder(key)
        with self._database.writing() as session:
            released_blobs.forget(session, keys)

    def _claim_sweep(self) -> bool:
        """Whether this process is to sweep now."""
        now = datetime.now(UTC)
        before = now - self._grace / _SWEEPS_PER_GRACE
        with self._database.reading() as session:
            if not repository.is_sweep_due(session, before):
                return False
        with self._database.writing() as session:
            return repository.claim_sweep(session, before, now)

    def sweep(self, stopping: threading.Event) -> None:
        """Delete the orphans that were found a time of grace ago, and note those of now."""
        with self._database.reading() as session:
            lineage = repository.get_lineage(session)
        beside = self._blobs.lineage()
        if lineage is None or lineage != beside:
            if beside is not None:
                log.warning(
                    "another copy of this database has swept the supports: none is removed now"
                )
            with self._database.writing() as session:
                repository.forget_all_orphans(session)
        else:
            self._delete_orphans(stopping)
            self._note_orphans(stopping)
        with self._database.writing() as session:
            renewed = repository.renew_lineage(session)
        self._blobs.set_lineage(renewed)

    def _delete_orphans(self, stopping: threading.Event) -> None:
        """Delete the orphans that were noted a time of grace ago and are orphans still."""
        before, deleted = datetime.now(UTC) - self._grace, 0
        while not stopping.is_set():
            with self._database.reading() as session:
                noted = repository.due_orphans(session, before, _BATCH_SIZE)
                still = orphans(session, noted)
            if not noted:
                break
            self._blobs.delete_many(sorted(still))
            deleted += len(still)
            with self._database.writing() as session:
                repository.forget_orphans(session, noted)
        if deleted:
            log.info("removed %d supports that no model names", deleted)

    def _note_orphans(self, stopping: threading.Event) -> None:
        found = 0
        for keys in _batches(self._blobs.keys(older_than=ORPHAN_AGE_S)):
            if stopping.is_set():
                break
            with self._database.reading() as session:
                new = orphans(session, keys)
                new -= repository.known_orphans(session, new)
            if new:
                with self._database.writing() as session:
                    repository.note_orphans(session, sorted(new), datetime.now(UTC))
                found += len(new)
        if found:
            log.info(
                "found %d supports that no model names; they are removed %s later if that is so "
                "still",
                found,
                self._grace,
            )


def _needed_keys(session: Reader, keys: Collection[str]) -> set[str]:
    """Return the released keys that are needed after all, as after a repair of the database."""
    blobs = [key for key in keys if released_blobs.space_of(key) is None]
    needed = models.blob_keys(session, blobs) | revisions.blob_keys(session, blobs)
    needed |= learngenes.blob_keys(session, blobs)
    if len(blobs) < len(keys):
        existing = space_ids(session)
        needed |= {key for key in keys if released_blobs.space_of(key) in existing}
    return needed


def _batches(keys: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(keys, _BATCH_SIZE)):
        yield batch
