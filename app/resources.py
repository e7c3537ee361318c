"""What the service is made of: opened once, handed to whoever needs it, closed in the end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from app.descriptors import quarter
from app.index.registry import IndexRegistry
from app.index.sketches import SketchFiles
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
from app.services.ingestion.downloads import Downloads
from app.services.ingestion.placing import Placing
from app.services.ingestion.recipe import Sizes
from app.services.ingestion.service import Ingestion
from app.services.jobs import JobService
from app.services.keys import SCOPES, KeyService
from app.services.library import Library
from app.services.lineage import LineageService
from app.services.opened import OpenedSupports
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
from app.stores.blobs import FileBlobs
from app.stores.buckets.redis import RedisBuckets
from app.stores.buckets.sql import SqlBuckets
from app.stores.counters import RedisCounters
from app.stores.ports import Tenant
from app.stores.redis import RedisServer
from app.stores.secrets import Secrets
from app.stores.sql import revisions
from app.stores.sql.database import Database, Writer
from app.stores.sql.migrate import migrate, require_current
from app.stores.sql.models import blob_keys
from app.stores.sql.spaces import all_spaces, ensure_tenant, store_token
from modelkin._version import __version__
from modelkin.core.kernels.choice import kernels
from modelkin.errors import Unavailable

__all__ = [
    "DEFAULT_TENANT",
    "Resources",
    "open_buckets",
    "open_library",
    "open_redis",
    "open_resources",
]

DEFAULT_TENANT = "default"
_ORPHAN_AGE = 3600.0
"""Seconds after which a blob that no row names is no write under way but what a crash left."""

_BUCKETS_TIMEOUT = 0.5
"""Seconds that a query waits for the buckets before a scan answers in their place."""
_BUCKETS_CONNECTIONS = 8

log = logging.getLogger(__name__)


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
    secrets: Secrets
    sources: SourceService
    hooks: HookService
    polls: PollService


@contextmanager
def open_resources(settings: Settings, *, prepared: bool = False) -> Iterator[Resources]:
    """Open the stores, bring the database up to date, load kernels, clean up after a crash.

    Args:
        settings: of the service.
        prepared: another process of this service has done so just now: only open them.

    Raises:
        Unavailable: a store cannot be opened; says which and why.
    """
    database = Database(
        settings.database_url,
        timeout=settings.database_timeout,
        connections=settings.database_connections,
    )
    try:
        if settings.migrate and not prepared:
            migrate(database)
        else:
            require_current(database)
        with database.writing() as session:
            tenant = ensure_tenant(session, DEFAULT_TENANT)
            _require_keys(session, settings)
            token = store_token(session)
        blobs = FileBlobs(settings.blob_folder, token)
        if not prepared:
            _sweep(database, blobs)
        kernels().warm()
        most = _open_supports(settings)
        library = Library(database, blobs, OpenedSupports(most, settings.open_supports_bytes))
        indexes = IndexRegistry(settings.index_memory)
        sketches = SketchFiles(settings.sketch_folder / token)
        downloads = Downloads(settings.checkpoint_folder / token)
        if not prepared:
            _sweep_sketches(database, sketches)
            downloads.sweep()
        bands = Bands()
        history = History(blobs, settings.keep_revisions)
        jobs = JobService()
        outbox = Outbox(jobs)
        ingest = IngestService(blobs, bands, history, sketches, outbox)
        with (
            closing(sketches),
            ExitStack() as leaving,
            open_redis(settings) as server,
            open_buckets(settings, database, bands, server) as buckets,
        ):
            buckets.start()
            stop_lists = StopListService(database, _passing(database, blobs))
            egress = Egress(Allowlist.parse(settings.egress_allow))
            secrets = Secrets(settings.secret_keys, settings.secret_key_file)
            looks = Looks(jobs)
            sources = SourceService(secrets, looks)
            limits = Limits(
                settings.max_checkpoint_bytes,
                timeout=settings.hub_timeout,
                total=settings.look_timeout,
            )
            hubs = Hubs(egress, limits)
            sizes = SupportSizeService()
            service = SpaceService(blobs, indexes, buckets, sketches)
            Ingestion(
                database,
                sources,
                hubs,
                downloads,
                Placing(database, service),
                Sizes(sizes, settings.max_ingested_indices),
                ingest,
            ).register(jobs)
            Upkeep(database, buckets, stop_lists).register(jobs)
            comparer = Comparer(library, sketches)
            search = SearchService(comparer, indexes, buckets)
            newcomers = Newcomers(search, comparer)
            clusterings = ClusteringService(
                database, blobs, jobs, newcomers, most_mapped=quarter(), outbox=outbox
            )
            lineage = LineageService(library, comparer, search, indexes)
            past = RevisionService(database, blobs)
            crossings = Crossings(database, library, past, search, comparer)
            Teller(database, jobs, crossings, lineage)
            deliveries = DeliveryService(
                database,
                jobs,
                secrets,
                Sender(egress),
                retention=timedelta(days=settings.delivery_retention),
            )
            leaving.enter_context(closing(deliveries))
            yield Resources(
                version=__version__,
                settings=settings,
                database=database,
                library=library,
                tenant=tenant,
                indexes=indexes,
                housekeeping=Housekeeping(
                    database,
                    indexes,
                    every=settings.housekeeping_every,
                    sketches=sketches,
                    downloads=downloads,
                ),
                spaces=service,
                keys=KeyService(),
                ingest=ingest,
                batch=BatchService(database, ingest),
                revisions=past,
                patches=PatchService(library),
                rates=_rates(settings, server, token),
                search=search,
                donors=DonorService(library, comparer, search, indexes),
                graph=GraphService(library),
                lineage=lineage,
                sketches=SketchService(library, sketches),
                similarity=SimilarityService(library),
                stop_lists=stop_lists,
                support_sizes=sizes,
                clusterings=clusterings,
                policies=PolicyService(database, jobs),
                jobs=jobs,
                egress=egress,
                subscriptions=SubscriptionService(jobs, secrets),
                secrets=secrets,
                sources=sources,
                hooks=HookService(
                    database, secrets, jobs, looks, retention=settings.delivery_retention
                ),
                polls=PollService(database, jobs, looks, sources, hubs.hub_of),
            )
    finally:
        database.close()


def open_library(settings: Settings, database: Database) -> Library:
    """The supports of a migrated database, to be read.

    Raises:
        Unavailable: their folder cannot be used.
    """
    with database.reading() as session:
        token = store_token(session)
    return _passing(database, FileBlobs(settings.blob_folder, token))


def _passing(database: Database, blobs: FileBlobs) -> Library:
    """For whoever reads each support once: none stays open, and none that is open has to go."""
    return Library(database, blobs, OpenedSupports(0, 0))


@contextmanager
def open_redis(settings: Settings) -> Iterator[RedisServer | None]:
    """The Redis of the settings, which is not connected to yet; None where there is none.

    One for all that is kept there: where it is away, a request waits for it once.
    """
    if settings.redis_url is None:
        yield None
        return
    with closing(RedisServer(settings.redis_url, timeout=_BUCKETS_TIMEOUT)) as server:
        yield server


@contextmanager
def open_buckets(
    settings: Settings, database: Database, bands: Bands, server: RedisServer | None
) -> Iterator[BucketService]:
    """The LSH buckets, in Redis where there is one.

    Raises:
        Unavailable: the database cannot be opened once more, for buckets in it.
    """
    with ExitStack() as stack:
        if server is not None:
            service = BucketService(database, RedisBuckets(server), bands)
        else:
            # Of their own: a query that waits for them must not wait as long as a writer may.
            own = Database(
                settings.database_url, timeout=_BUCKETS_TIMEOUT, connections=_BUCKETS_CONNECTIONS
            )
            stack.callback(own.close)
            service = BucketService(database, SqlBuckets(own), bands)
        stack.callback(service.close)
        yield service


def _rates(settings: Settings, server: RedisServer | None, token: str) -> RateLimits:
    shared = None if server is None else RedisCounters(server)
    return RateLimits(settings.rate_limit, settings.write_rate_limit, shared, token)


def _require_keys(session: Writer, settings: Settings) -> None:
    """Store the initial key where there is none; refuse to open to a network without any."""
    keys = KeyService()
    if settings.initial_key is not None and not keys.any(session):
        initial = settings.initial_key.get_secret_value()
        keys.create(session, DEFAULT_TENANT, key=initial, label="initial key", scopes=SCOPES)
    if settings.auth == "off" and not settings.on_loopback:
        raise Unavailable(
            f"MODELKIN_AUTH=off would open everything to whoever reaches {settings.host}: "
            f"listen on 127.0.0.1, or leave it at auto"
        )
    if not settings.on_loopback and not keys.any(session):
        raise Unavailable(
            "there is no key, so nobody could use the service: make one with "
            "`python -m app keys create`, or set MODELKIN_INITIAL_KEY"
        )


def _sweep(database: Database, blobs: FileBlobs) -> None:
    with database.reading() as session:
        swept = blobs.sweep(
            lambda keys: blob_keys(session, keys) | revisions.blob_keys(session, keys),
            older_than=_ORPHAN_AGE,
        )
    if swept:
        log.info("removed %d supports that no model names", swept)


def _sweep_sketches(database: Database, sketches: SketchFiles) -> None:
    """Delete those of spaces that another machine deleted, or that went in a crash."""
    with database.reading() as session:
        sketches.sweep(space.id for space in all_spaces(session))


def _open_supports(settings: Settings) -> int:
    """How many stay open: a quarter of the descriptors is left to them, whatever was set."""
    return min(settings.open_supports, quarter())
