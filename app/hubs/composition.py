"""``add_hubs``: puts the services of hubs together."""

from __future__ import annotations

from app.container import Container
from app.fingerprints.service import FingerprintService
from app.hubs.backfill import FingerprintBackfill
from app.hubs.clients.http import TransferLimits
from app.hubs.clients.registry import HubRegistry
from app.hubs.incoming.service import HubEventService
from app.hubs.ingestion.files.downloads import Downloads
from app.hubs.ingestion.fingerprinting import Fingerprinting
from app.hubs.ingestion.model_maker import ModelMaker
from app.hubs.ingestion.model_writer import IngestWriter
from app.hubs.ingestion.selection_plan import Sizes
from app.hubs.ingestion.selector import SupportSelector
from app.hubs.ingestion.service import IngestionService
from app.hubs.ingestion.spaces.resolver import SpaceResolver
from app.hubs.polling import HubPoller
from app.hubs.service import SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database
from app.infra.egress.client import Egress
from app.infra.storage.encryption import Secrets
from app.jobs.service import JobService
from app.models.catalog.writer import ModelWriter
from app.models.spaces.service import SpaceService
from app.models.spaces.support_sizes import SupportSizeService
from app.models.weights.service import WeightsService
from app.settings import Settings
from app.tenancy.quotas.service import QuotaService

__all__ = ["add_hubs"]


def add_hubs(services: Container, downloads: Downloads) -> None:
    """Make the services of hubs, of those that they need: their events, polls and syncs."""
    database, settings, secrets = services[Database], services[Settings], services[Secrets]
    limits = TransferLimits(
        settings.max_checkpoint_bytes,
        timeout=settings.hub_timeout_seconds,
        total=settings.hub_sync_timeout_seconds,
    )
    registry = services.add(HubRegistry(services[Egress], limits))
    syncs = services.add(SyncScheduler(services[JobService]))
    sources = services.add(SourceService(secrets, syncs, services[QuotaService]))
    services.add(_ingestion(services, downloads, registry, syncs))
    retention = settings.delivery_retention_days
    services.add(HubEventService(database, secrets, syncs, retention=retention))
    services.add(FingerprintBackfill(database, syncs))
    services.add(HubPoller(database, syncs, sources, registry.hub_of))


def _ingestion(
    services: Container, downloads: Downloads, hubs: HubRegistry, syncs: SyncScheduler
) -> IngestionService:
    """The service that carries out syncs."""
    database, quotas, models = services[Database], services[QuotaService], services[ModelWriter]
    fingerprinting = Fingerprinting(database, services[FingerprintService])
    services[FingerprintService].add_maker(fingerprinting)
    sizes = Sizes(services[SupportSizeService], services[Settings].max_ingested_indices)
    selector = SupportSelector(database, SpaceResolver(database, services[SpaceService]), sizes)
    largest = hubs.limits.checkpoint_bytes
    maker = ModelMaker(database, downloads, selector, models, quotas, fingerprinting, largest)
    writer = IngestWriter(models, services[WeightsService], syncs, fingerprinting)
    sources = services[SourceService]
    return IngestionService(database, sources, hubs, downloads, maker, writer, quotas)
