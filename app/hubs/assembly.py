"""The parts of ``IngestionService``, put together."""

from __future__ import annotations

from app.fingerprints.service import FingerprintService
from app.hubs.clients.registry import HubRegistry
from app.hubs.ingestion.files.downloads import Downloads
from app.hubs.ingestion.fingerprinting import Fingerprinting
from app.hubs.ingestion.model_maker import ModelMaker
from app.hubs.ingestion.model_writer import IngestWriter
from app.hubs.ingestion.selection_plan import Sizes
from app.hubs.ingestion.selector import SupportSelector
from app.hubs.ingestion.service import IngestionService
from app.hubs.ingestion.space_resolver import SpaceResolver
from app.hubs.service import SourceService
from app.hubs.sync_requests import SyncScheduler
from app.infra.db.database import Database
from app.models.catalog.writer import ModelWriter
from app.models.spaces.service import SpaceService
from app.models.weights.service import WeightsService
from app.tenancy.quotas.service import QuotaService

__all__ = ["open_ingestion"]


def open_ingestion(
    database: Database,
    downloads: Downloads,
    sources: SourceService,
    hubs: HubRegistry,
    syncs: SyncScheduler,
    sizes: Sizes,
    spaces: SpaceService,
    models: ModelWriter,
    weights: WeightsService,
    fingerprints: FingerprintService,
    quotas: QuotaService,
) -> IngestionService:
    """The service that carries out syncs, of the services that it needs."""
    fingerprinting = Fingerprinting(database, fingerprints)
    selector = SupportSelector(database, SpaceResolver(database, spaces), sizes)
    largest = hubs.limits.checkpoint_bytes
    maker = ModelMaker(database, downloads, selector, models, quotas, fingerprinting, largest)
    writer = IngestWriter(models, weights, syncs, fingerprinting)
    return IngestionService(database, sources, hubs, downloads, maker, writer, quotas)
