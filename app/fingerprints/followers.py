"""What follows fingerprints: features above this one that have to learn of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.fingerprints.records import FingerprintRecord
from app.infra.db.database import Writer
from app.tenancy.auth.records import Tenant

__all__ = ["Follower", "Maker"]


class Follower(Protocol):
    """Learns of changes in their own transactions, under the lock of the tenant's feed."""

    def changed(
        self, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> None:
        """These fingerprints are new, or have other keys than before."""

    def restated(
        self, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> None:
        """What clients stated of these, the service has now read itself; the keys are the same."""

    def redeclared(
        self, session: Writer, tenant: Tenant, records: Sequence[FingerprintRecord]
    ) -> None:
        """These have other declared bases or another date than before, and the same keys."""

    def removed(self, session: Writer, tenant: Tenant, record: FingerprintRecord) -> None:
        """This fingerprint is about to be removed."""


class Maker(Protocol):
    """Makes fingerprints of files, and makes those again that clients remove."""

    def removing(self, session: Writer, tenant: Tenant, name: str) -> None:
        """A client is about to remove a fingerprint; the tenant's feed is not locked yet."""
