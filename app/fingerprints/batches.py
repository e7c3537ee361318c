"""Batches: many fingerprints in few transactions; a bad one never spoils the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.fingerprints.records import FingerprintPut, Stored
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database
from app.tenancy.auth.records import Tenant
from modelkin.errors import ModelkinError

__all__ = ["FingerprintBatches", "RefusedFingerprint", "Result"]

_MAX_ENTRIES: Final = 256
"""Entries of a transaction: enough that its sync costs little, and few enough for other writers."""
_MAX_PENDING_BYTES: Final = 16 << 20
"""Bytes of payloads that wait for a transaction."""


@dataclass(frozen=True, slots=True)
class RefusedFingerprint:
    """An invalid entry; ``model`` is its name, if that could be read."""

    model: str | None
    error: ModelkinError


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an entry: the stored fingerprint, or the error."""

    model: str | None
    outcome: Stored | ModelkinError


class FingerprintBatches:
    """The use case that stores many fingerprints."""

    def __init__(self, database: Database, service: FingerprintService) -> None:
        self._database = database
        self._service = service

    def put(
        self, tenant: Tenant, entries: Iterable[FingerprintPut | RefusedFingerprint]
    ) -> list[Result]:
        """Put the entries in order; the results, in that order, are durable.

        The last of several entries of one model counts. Entries are consumed as needed, so that few
        are in memory.

        Raises:
            StorageFull, Unavailable: the database failed; earlier entries may be stored, and
                repeating the batch does not change them.
        """
        return [result for group in _groups(entries) for result in list(self._store(tenant, group))]

    def _store(
        self, tenant: Tenant, group: Sequence[FingerprintPut | RefusedFingerprint]
    ) -> Iterator[Result]:
        puts = [entry for entry in group if isinstance(entry, FingerprintPut)]
        outcomes: Iterator[Stored | ModelkinError] = iter(())
        if puts:
            with self._database.writing() as session:
                outcomes = iter(self._service.put_each(session, tenant, puts))
        for entry in group:
            if isinstance(entry, RefusedFingerprint):
                yield Result(entry.model, entry.error)
            else:
                yield Result(entry.name, next(outcomes))


def _groups(
    entries: Iterable[FingerprintPut | RefusedFingerprint],
) -> Iterator[list[FingerprintPut | RefusedFingerprint]]:
    group: list[FingerprintPut | RefusedFingerprint] = []
    size = 0
    for entry in entries:
        group.append(entry)
        size += len(entry.content.data) if isinstance(entry, FingerprintPut) else 0
        if len(group) >= _MAX_ENTRIES or size >= _MAX_PENDING_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
