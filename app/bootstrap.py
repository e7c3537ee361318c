"""What the service is made of: put together once, handed to whoever needs it, closed in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from app.auth.counters import RedisCounters
from app.auth.rate_limits import RateLimits
from app.auth.records import Tenant
from app.auth.service import KeyService
from app.catalog.batches import BatchService
from app.catalog.deltas import DeltaService
from app.catalog.reader import ModelReader
from app.catalog.revision_recorder import RevisionRecorder
from app.catalog.revisions import RevisionService
from app.catalog.sketches import SketchService
from app.catalog.writer import ModelWriter
from app.clustering.assignment import NewcomerAssignment
from app.clustering.policies import PolicyService
from app.clustering.service import ClusteringService
from app.hubs.clients.http import TransferLimits
from app.hubs.clients.registry import HubRegistry
from app.hubs.incoming.service import HubEventService
from app.hubs.ingestion.selection_plan import Sizes
from app.hubs.ingestion.service import IngestionService
from app.hubs.ingestion.space_resolver import SpaceResolver
from app.hubs.polling import HubPoller
from app.hubs.service import SourceService
from app.hubs.sync_requests import SyncScheduler
from app.index.banding import BandValueService
from app.index.buckets.service import BucketService
from app.index.registry import IndexRegistry
from app.infra.db.database import Database
from app.infra.egress.client import Allowlist, Egress
from app.infra.fd_limits import support_fd_budget
from app.infra.storage.encryption import Secrets
from app.infra.storage.redis import RedisServer
from app.jobs.service import JobService
from app.kinship.donors.service import DonorService
from app.kinship.graph import GraphService
from app.kinship.lineage import LineageService
from app.maintenance.cleanup import Cleanup
from app.maintenance.jobs import MaintenanceJobs
from app.maintenance.stop_lists import StopListService
from app.notifications.fan_out import EventFanOut
from app.notifications.neighbor_changes import NeighborChanges
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.search.similarity import SimilarityService
from app.settings import Settings
from app.spaces.service import SpaceService
from app.spaces.support_sizes import SupportSizeService
from app.stores import Stores, open_buckets, open_redis, open_stores, passing
from app.webhooks.delivery import DeliveryService
from app.webhooks.outbox import Outbox
from app.webhooks.sender import Sender
from app.webhooks.service import SubscriptionService
from modelkin._version import __version__
from modelkin.core.kernels.choice import kernels

__all__ = ["Resources", "open_resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """The stores and services of one process."""

    version: str
    settings: Settings
    database: Database
    library: ModelReader
    tenant: Tenant
    indexes: IndexRegistry
    housekeeping: Cleanup
    spaces: SpaceService
    keys: KeyService
    ingest: ModelWriter
    batch: BatchService
    revisions: RevisionService
    patches: DeltaService
    rates: RateLimits
    search: SearchService
    donors: DonorService
    graph: GraphService
    lineage: LineageService
    sketches: SketchService
    similarity: SimilarityService
    stop_lists: StopListService
    support_sizes: SupportSizeService
    clusterings: ClusteringService
    policies: PolicyService
    jobs: JobService
    egress: Egress
    subscriptions: SubscriptionService
    deliveries: DeliveryService
    secrets: Secrets
    sources: SourceService
    hooks: HubEventService
    polls: HubPoller


@contextmanager
def open_resources(settings: Settings, *, prepared: bool = False) -> Iterator[Resources]:
    """Open the stores, load kernels, and put the services together.

    Args:
        settings: of the service.
        prepared: another process of this service has prepared the stores just now.

    Raises:
        Unavailable: a store cannot be opened; says which and why.
    """
    bands = BandValueService()
    with (
        open_stores(settings, prepared=prepared) as stores,
        open_redis(settings) as server,
        open_buckets(settings, stores.database, bands, server) as buckets,
    ):
        kernels().warm()
        buckets.start()
        rates = _rates(settings, server, stores.token)
        resources = _put_together(settings, stores, bands, buckets, rates)
        with closing(resources.deliveries):
            yield resources


def _put_together(
    settings: Settings,
    stores: Stores,
    bands: BandValueService,
    buckets: BucketService,
    rates: RateLimits,
) -> Resources:
    """All services; what carries out jobs registers its kinds."""
    database, library, indexes = stores.database, stores.library, stores.indexes
    sketches, downloads = stores.sketches, stores.downloads
    jobs = JobService()
    outbox = Outbox(jobs)
    history = RevisionRecorder(stores.blobs, settings.keep_revisions)
    ingest = ModelWriter(stores.blobs, bands, history, sketches, outbox)
    spaces = SpaceService(stores.blobs, indexes, buckets, sketches)
    comparer = Comparer(library, sketches)
    search = SearchService(comparer, indexes, buckets)
    lineage = LineageService(library, comparer, search, indexes)
    past = RevisionService(database, stores.blobs)
    stop_lists = StopListService(database, passing(database, stores.blobs))
    MaintenanceJobs(database, buckets, stop_lists).register(jobs)
    sizes = SupportSizeService()
    egress = Egress(Allowlist.parse(settings.egress_allow))
    secrets = Secrets(settings.secret_keys, settings.secret_key_file)
    sources, hooks, polls = _follow(settings, stores, jobs, egress, secrets, spaces, sizes, ingest)
    crossings = NeighborChanges(database, library, past, search, comparer)
    EventFanOut(database, jobs, crossings, lineage)
    return Resources(
        version=__version__,
        settings=settings,
        database=database,
        library=library,
        tenant=stores.tenant,
        indexes=indexes,
        housekeeping=Cleanup(
            database,
            indexes,
            every=settings.housekeeping_every,
            sketches=sketches,
            downloads=downloads,
        ),
        spaces=spaces,
        keys=KeyService(),
        ingest=ingest,
        batch=BatchService(database, ingest),
        revisions=past,
        patches=DeltaService(library),
        rates=rates,
        search=search,
        donors=DonorService(library, comparer, search, indexes),
        graph=GraphService(library),
        lineage=lineage,
        sketches=SketchService(library, sketches),
        similarity=SimilarityService(library),
        stop_lists=stop_lists,
        support_sizes=sizes,
        clusterings=ClusteringService(
            database,
            stores.blobs,
            jobs,
            NewcomerAssignment(search, comparer),
            most_mapped=support_fd_budget(),
            outbox=outbox,
        ),
        policies=PolicyService(database, jobs),
        jobs=jobs,
        egress=egress,
        subscriptions=SubscriptionService(jobs, secrets),
        deliveries=DeliveryService(
            database,
            jobs,
            secrets,
            Sender(egress),
            retention=timedelta(days=settings.delivery_retention),
        ),
        secrets=secrets,
        sources=sources,
        hooks=hooks,
        polls=polls,
    )


def _follow(
    settings: Settings,
    stores: Stores,
    jobs: JobService,
    egress: Egress,
    secrets: Secrets,
    spaces: SpaceService,
    sizes: SupportSizeService,
    ingest: ModelWriter,
) -> tuple[SourceService, HubEventService, HubPoller]:
    """What comes in of hubs."""
    database = stores.database
    limits = TransferLimits(
        settings.max_checkpoint_bytes, timeout=settings.hub_timeout, total=settings.look_timeout
    )
    hubs, looks = HubRegistry(egress, limits), SyncScheduler(jobs)
    sources = SourceService(secrets, looks)
    IngestionService(
        database,
        sources,
        hubs,
        stores.downloads,
        SpaceResolver(database, spaces),
        Sizes(sizes, settings.max_ingested_indices),
        ingest,
    ).register(jobs)
    hooks = HubEventService(database, secrets, jobs, looks, retention=settings.delivery_retention)
    return sources, hooks, HubPoller(database, jobs, looks, sources, hubs.hub_of)


def _rates(settings: Settings, server: RedisServer | None, token: str) -> RateLimits:
    shared = None if server is None else RedisCounters(server)
    return RateLimits(settings.rate_limit, settings.write_rate_limit, shared, token)
