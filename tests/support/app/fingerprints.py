"""Fingerprints of made keys, and a tenant that stores some without endpoints."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from app.container import Container
from app.fingerprints.records import FingerprintPut, FingerprintRecord, Stored
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database
from app.tenancy.auth.tenants import ensure_tenant
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.fingerprints.tensors import LinesOfTensor

__all__ = ["StoredFingerprints", "made_fingerprint"]

LENGTH = 1000
"""The length of the rows of every tensor, which is longer than they are many."""
_numbers = itertools.count()


def made_fingerprint(seed: int, keys: int = 40, *, tensors: int = 2) -> Fingerprint:
    """A valid fingerprint of keys that no file has: as many of each tensor."""
    draw = np.random.default_rng(seed)
    scale, rows = 4, 4 * keys
    found = np.sort(draw.integers(0, 2**64 // scale - 1, keys * tensors, np.uint64))
    owners = draw.permutation(np.repeat(np.arange(tensors, dtype=np.uint32), keys))
    return Fingerprint(
        scale,
        tuple(
            LinesOfTensor((f"t{number}",), (rows, LENGTH), {LENGTH: rows}, None, bytes(128))
            for number in range(tensors)
        ),
        {LENGTH: rows * tensors},
        found,
        owners,
        np.full(found.size, LENGTH, np.uint32),
    )


class StoredFingerprints:
    """The fingerprints of a new tenant.

    Args:
        services: open services.
    """

    def __init__(self, services: Container) -> None:
        self.database = services[Database]
        self.service = services[FingerprintService]
        with self.database.writing() as session:
            self.tenant = ensure_tenant(session, f"fingerprints-{next(_numbers)}")

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
