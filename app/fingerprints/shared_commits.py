"""Shared commits: single puts of one tenant that come at once share one transaction.

Each waits for the lock of the tenant's feed, and for the disk: together they wait once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from app.fingerprints.records import FingerprintPut, Stored
from app.fingerprints.service import FingerprintService
from app.infra.db.database import Database, Writer
from app.infra.db.group_commit import GroupCommit
from app.tenancy.auth.records import Tenant
from modelkin.errors import ModelkinError

__all__ = ["FingerprintCommits"]

_Puts = GroupCommit[FingerprintPut, Stored | ModelkinError]


class FingerprintCommits:
    """The use case that stores one fingerprint among others."""

    def __init__(self, database: Database, service: FingerprintService) -> None:
        self._database = database
        self._service = service
        self._by_tenant: WeakValueDictionary[int, _Puts] = WeakValueDictionary()
        self._lock = threading.Lock()

    def put(self, tenant: Tenant, put: FingerprintPut) -> Stored:
        """Store one fingerprint, durably; other puts of the tenant may share its transaction.

        Raises:
            ModelkinError: :meth:`FingerprintService.put` refuses it; this concerns it alone.
            StorageFull, Unavailable: the database failed.
        """
        result = self._queue(tenant).do(put)
        if isinstance(result, ModelkinError):
            raise result
        return result

    def _queue(self, tenant: Tenant) -> _Puts:
        """The puts of a tenant, which last while one waits."""
        with self._lock:
            found = self._by_tenant.get(tenant.id)
            if found is None:
                found = _Puts(self._database, partial(self._store, tenant))
                self._by_tenant[tenant.id] = found
            return found

    def _store(
        self, tenant: Tenant, session: Writer, puts: Sequence[FingerprintPut]
    ) -> Sequence[Stored | ModelkinError]:
        return self._service.put_each(session, tenant, puts)
