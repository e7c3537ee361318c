"""A tenant that stores fingerprints without endpoints."""

from __future__ import annotations

import itertools
from typing import Any

from app.container import Container
from app.fingerprints.records import FingerprintPut, FingerprintRecord, Stored
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.tenants import ensure_tenant
from modelkin.core.fingerprints.fingerprint import Fingerprint
from tests.support.models.made_fingerprints import made_fingerprint

__all__ = ["StoredFingerprints", "made_fingerprint"]

_numbers = itertools.count()


class StoredFingerprints:
    """The fingerprints of a tenant.

    Args:
        services: open services.
        tenant: by default a new one.
    """

    def __init__(self, services: Container, tenant: Tenant | None = None) -> None:
        self.database = services[Database]
        self.service = services[FingerprintService]
        with self.database.writing() as session:
            self.tenant = tenant or ensure_tenant(session, f"fingerprints-{next(_numbers)}")

    def put(self, name: str, fingerprint: Fingerprint, **more: Any) -> Stored:
        """Store a fingerprint in a transaction of its own, by default of a client."""
        prepared = self.service.prepare(fingerprint)
        stated = {"stated_by": "client", **more}
        with self.database.writing() as session:
            return self.service.put(session, self.tenant, name, prepared, **stated)

    def of(self, name: str, fingerprint: Fingerprint, **more: Any) -> FingerprintPut:
        """A put of a fingerprint, by default of a client."""
        stated = {"stated_by": "client", **more}
        return FingerprintPut(name, self.service.prepare(fingerprint), **stated)

    def find(self, name: str) -> FingerprintRecord | None:
        """The fingerprint of a name."""
        with self.database.reading() as session:
            return self.service.find(session, self.tenant, name)

    def delete(self, name: str) -> FingerprintRecord:
        """Remove the fingerprint of a name."""
        with self.database.writing() as session:
            return self.service.delete(session, self.tenant, name)
