"""What the service is made of: put together once, handed to whoever needs it, closed in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from app.descriptors import quarter
from app.index.registry import IndexRegistry
from app.opening import Stores, open_buckets, open_redis, open_stores, passing
from app.services.bands import Bands
from app.services.batch import BatchService
from app.services.buckets import BucketService
from app.services.clustering.newcomers import Newcomers
from app.services.clustering.policy import PolicyService
from app.services.clustering.service import ClusteringService
from app.services.compare import Comparer
from app.services.donors.service import DonorService
from app.services.egress.clients import Allowlist, Egress
from app.services.graph import GraphService
from app.services.history import History
from app.services.hooks.service import HookService
from app.services.housekeeping import Housekeeping
from app.services.hubs.opening import Hubs
from app.services.hubs.transfer import Limits
from app.services.ingest import IngestService
from app.services.ingestion.placing import Placing
from app.services.ingestion.recipe import Sizes
from app.services.ingestion.service import Ingestion
from app.services.jobs import JobService
from app.services.keys import KeyService
from app.services.library import Library
from app.services.lineage import LineageService
from app.services.patches import PatchService
from app.services.rates import RateLimits
from app.services.revisions import RevisionService
from app.services.search import SearchService
from app.services.similarity import SimilarityService
from app.services.sketches import SketchService
from app.services.sources.looks import Looks
from app.services.sources.polls import PollService
from app.services.sources.service import SourceService
from app.services.spaces import SpaceService
from app.services.stop_lists import StopListService
from app.services.subscriptions.crossings import Crossings
from app.services.subscriptions.deliveries import DeliveryService
from app.services.subscriptions.events import Outbox
from app.services.subscriptions.sending import Sender
from app.services.subscriptions.service import SubscriptionService
from app.services.subscriptions.telling import Teller
from app.services.support_sizes import SupportSizeService
from app.services.upkeep import Upkeep
from app.settings import Settings
from app.stores.counters import RedisCounters
from app.stores.ports import Tenant
from app.stores.redis import RedisServer
from app.stores.secrets import Secrets
from app.stores.sql.database import Database
from modelkin._version import __version__
from modelkin.core.kernels.choice import kernels

__all__ = ["Resources", "open_resources"]


@dataclass(frozen=True, slots=True)
class Resources:
    """The stores and services of one process."""

    version: str
    settings: Settings
    database: Database
    library: Library
    tenant: Tenant
    indexes: IndexRegistry
    housekeeping: Housekeeping
    spaces: SpaceService
    keys: KeyService
    ingest: IngestService
    batch: BatchService
    revisions: RevisionService
    patches: PatchService
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
    hooks: HookService
    polls: PollService


@contextmanager
def open_resources(settings: Settings, *, prepared: bool = False) -> Iterator[Resources]:
    """Open the stores, load kernels, and put the services together.

    Args:
        settings: of the service.
        prepared: another process of this service has prepared the stores just now.

    Raises:
        Unavailable: a store cannot be opened; says which and why.
    """
    bands = Bands()
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
    settings: Settings, stores: Stores, bands: Bands, buckets: BucketService, rates: RateLimits
) -> Resources:
    """All services; what carries out jobs registers its kinds."""
    database, library, indexes = stores.database, stores.library, stores.indexes
    sketches, downloads = stores.sketches, stores.downloads
    jobs = JobService()
    outbox = Outbox(jobs)
    history = History(stores.blobs, settings.keep_revisions)
    ingest = IngestService(stores.blobs, bands, history, sketches, outbox)
    spaces = SpaceService(stores.blobs, indexes, buckets, sketches)
    comparer = Comparer(library, sketches)
    search = SearchService(comparer, indexes, buckets)
    lineage = LineageService(library, comparer, search, indexes)
    past = RevisionService(database, stores.blobs)
    stop_lists = StopListService(database, passing(database, stores.blobs))
    Upkeep(database, buckets, stop_lists).register(jobs)
    sizes = SupportSizeService()
    egress = Egress(Allowlist.parse(settings.egress_allow))
    secrets = Secrets(settings.secret_keys, settings.secret_key_file)
    sources, hooks, polls = _follow(settings, stores, jobs, egress, secrets, spaces, sizes, ingest)
    crossings = Crossings(database, library, past, search, comparer)
    Teller(database, jobs, crossings, lineage)
    return Resources(
        version=__version__,
        settings=settings,
        database=database,
        library=library,
        tenant=stores.tenant,
        indexes=indexes,
        housekeeping=Housekeeping(
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
        patches=PatchService(library),
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
            Newcomers(search, comparer),
            most_mapped=quarter(),
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
    ingest: IngestService,
) -> tuple[SourceService, HookService, PollService]:
    """What comes in of hubs."""
    database = stores.database
    limits = Limits(
        settings.max_checkpoint_bytes, timeout=settings.hub_timeout, total=settings.look_timeout
    )
    hubs, looks = Hubs(egress, limits), Looks(jobs)
    sources = SourceService(secrets, looks)
    Ingestion(
        database,
        sources,
        hubs,
        stores.downloads,
        Placing(database, spaces),
        Sizes(sizes, settings.max_ingested_indices),
        ingest,
    ).register(jobs)
    hooks = HookService(database, secrets, jobs, looks, retention=settings.delivery_retention)
    return sources, hooks, PollService(database, jobs, looks, sources, hubs.hub_of)


def _rates(settings: Settings, server: RedisServer | None, token: str) -> RateLimits:
    shared = None if server is None else RedisCounters(server)
    return RateLimits(settings.rate_limit, settings.write_rate_limit, shared, token)
