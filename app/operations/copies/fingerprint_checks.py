"""Checks of fingerprints: the counts of each tenant, and payloads that say what their rows say."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from app.fingerprints.finding_keys import coarse_end
from app.fingerprints.records import Feed
from app.fingerprints.repositories import checking
from app.fingerprints.repositories.checking import StoredPayload
from app.infra.db.database import Database
from app.operations.copies.records import Finding
from modelkin import wire
from modelkin.errors import ModelkinError

__all__ = ["FingerprintChecks"]

_PAGE_SIZE: Final = 100


class FingerprintChecks:
    """Checks fingerprints, a page at a time.

    Args:
        database: has them.
        deep: whether to read each, and compare its digest and the keys that it is found by.
    """

    def __init__(self, database: Database, *, deep: bool) -> None:
        self._database = database
        self._deep = deep

    def findings(self) -> Iterator[Finding]:
        """Yield all findings of these checks."""
        with self._database.reading() as session:
            tenants = checking.miscounted_tenants(session)
        for tenant_id, noted, counted in tenants:
            yield self._miscounted(tenant_id, noted, counted)
        last = 0
        while True:
            with self._database.reading() as session:
                page = checking.payloads_after(session, last, _PAGE_SIZE, whole=self._deep)
            if not page:
                return
            last = page[-1].id
            for stored in page:
                yield from self._of_one(stored)

    def _of_one(self, stored: StoredPayload) -> Iterator[Finding]:
        subject = f"tenant {stored.tenant_id}, fingerprint of {stored.name!r}"
        if stored.size is None:
            yield Finding(subject, f"its payload is missing: {_REMEDY}")
        elif stored.size != stored.noted_size:
            problem = f"its payload has {stored.size} bytes, not {stored.noted_size}"
            yield Finding(subject, f"{problem}: {_REMEDY}")
        elif self._deep:
            yield from self._deep_findings(subject, stored)

    def _deep_findings(self, subject: str, stored: StoredPayload) -> Iterator[Finding]:
        try:
            found = wire.decode_fingerprint(stored.data)
        except ModelkinError as error:
            yield Finding(subject, f"its payload is damaged ({error}): {_REMEDY}")
            return
        if found.digest != stored.digest:
            problem = f"its payload has the digest {found.digest}, not {stored.digest}"
            yield Finding(subject, f"{problem}: {_REMEDY}")
            return
        scale, keys = coarse_end(found)
        if (scale, keys.astype("<u8").tobytes()) != (stored.finding_scale, stored.finding_keys):
            mend = partial(self._write_keys, stored.id, stored.version)
            yield Finding(
                subject, "the keys that it is found by are not those of its payload", mend
            )

    def _write_keys(self, fingerprint_id: int, version: int) -> None:
        """Store the finding keys of the present payload again, as a change that indices read."""
        with self._database.writing() as session:
            stored = checking.lock_payload(session, fingerprint_id)
            if stored is None or stored.version != version:
                return  # stored anew meanwhile
            scale, keys = coarse_end(wire.decode_fingerprint(stored.data))
            checking.write_keys(session, stored, scale, keys.astype("<u8").tobytes())

    def _miscounted(self, tenant_id: int, noted: Feed, counted: Feed) -> Finding:
        problem = (
            f"its row counts {noted.fingerprints} fingerprints of {noted.bytes} bytes, and it has "
            f"{counted.fingerprints} of {counted.bytes}"
        )
        return Finding(f"tenant {tenant_id}", problem, partial(self._count_again, tenant_id))

    def _count_again(self, tenant_id: int) -> None:
        with self._database.writing() as session:
            checking.count_again(session, tenant_id)


_REMEDY: Final = "restore it from a backup, or store it again"
