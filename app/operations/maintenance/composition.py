"""The clean-up of a process, put together of the steps of all features."""

from __future__ import annotations

from app.container import Container
from app.fingerprints.finding.index import FindingIndex
from app.operations.maintenance.blob_cleanup import BlobCleanup
from app.operations.maintenance.blob_sizes import BlobSizes
from app.operations.maintenance.cleanup import Cleanup
from app.operations.maintenance.deleted_spaces import DeletedSpaces
from app.operations.maintenance.finding_indexes import FindingIndexes
from app.operations.maintenance.fingerprint_tombstones import FingerprintTombstones
from app.operations.maintenance.history import HistoryBounds
from app.operations.maintenance.sketch_segments import SketchSegments
from app.operations.maintenance.sketch_slots import SketchSlots
from app.search.public.budgets import QueryBudgets
from app.settings import Settings
from app.stores import Stores
from app.tenancy.auth.service import Authenticator
from app.tenancy.auth.visitor_sessions import VisitorSessions
from app.tenancy.idempotency.service import IdempotencyService
from app.tenancy.quotas.service import QuotaService

__all__ = ["add_clean_up"]


def add_clean_up(services: Container, stores: Stores) -> None:
    """Add the clean-up, after the services that it calls."""
    cleanup = services.add(
        Cleanup(
            stores.database,
            stores.indexes,
            every=services[Settings].maintenance_interval_seconds,
            sketches=stores.sketches,
            downloads=stores.downloads,
            blobs=BlobCleanup(
                stores.database,
                stores.blobs,
                services[Settings].blob_grace_seconds,
                services[QuotaService],
            ),
            steps={
                "rows of deleted spaces": DeletedSpaces(stores.database).run_once,
                "history": HistoryBounds(stores.database, services[QuotaService]).run_once,
                "sketches of a bucket": SketchSegments(
                    stores.database, stores.blobs, stores.sketches
                ).run_once,
                "sketch slots": SketchSlots(stores.database, stores.sketches).run_once,
                "blob sizes": BlobSizes(stores.database, stores.blobs).run_once,
                "index of fingerprints": FindingIndexes(
                    stores.database, services[FindingIndex]
                ).run_once,
                "uses of keys": services[Authenticator].write_uses,
                "idempotency keys": services[IdempotencyService].prune,
                "sessions of visitors": services[VisitorSessions].prune,
                "queries of public spaces": services[QueryBudgets].prune,
                "tombstones of fingerprints": FingerprintTombstones(stores.database).run_once,
            },
        )
    )
    services.add(cleanup.warmup)
