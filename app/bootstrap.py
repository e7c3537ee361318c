"""The composition root: opens the stores of the settings, and makes the services of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from app.anatomy import jobs as anatomies
from app.anatomy.families import FamilyService
from app.anatomy.keeping import AnatomyKeeper
from app.anatomy.overviews import AnatomyOverviews
from app.anatomy.service import AnatomyService
from app.container import Container
from app.fingerprints.batches import FingerprintBatches
from app.fingerprints.finding.index import FindingIndex
from app.fingerprints.service import FingerprintService
from app.fingerprints.shared_commits import FingerprintCommits
from app.hubs import jobs as hubs
from app.hubs.backfill import FingerprintBackfill
from app.hubs.composition import add_hubs
from app.hubs.incoming.service import HubEventService
from app.hubs.ingestion.service import IngestionService
from app.hubs.polling import HubPoller
from app.hubs.service import SourceService
from app.infra import fail_points
from app.infra.db.database import Database
from app.infra.egress.allowlist import Allowlist
from app.infra.egress.client import Egress
from app.infra.fd_limits import support_fd_budget
from app.infra.storage.encryption import Secrets
from app.jobs.service import JobService
from app.kinship.base_revisions import BaseRevisions
from app.kinship.clustering import jobs as clustering
from app.kinship.clustering.assignment import NewcomerAssignment
from app.kinship.clustering.labels import LabelCache
from app.kinship.clustering.lasting_clusters import LastingClusters
from app.kinship.clustering.policies import PolicyService
from app.kinship.clustering.service import ClusteringService
from app.kinship.donors.service import DonorService
from app.kinship.findings import jobs as findings
from app.kinship.findings.composition import add_findings
from app.kinship.findings.keeping import FindingKeeper
from app.kinship.findings.service import FindingService
from app.kinship.graph import GraphService
from app.kinship.inbox.families import FamilyList
from app.kinship.inbox.service import InboxService
from app.kinship.lineage import LineageService
from app.kinship.lines.judge import LineJudge
from app.kinship.lines.kinfolk import Kinfolk
from app.kinship.lines.service import FingerprintLineageService
from app.kinship.maps import jobs as maps
from app.kinship.maps.coloring import MapColoring
from app.kinship.maps.service import MapService
from app.kinship.notifications import jobs as notifications
from app.kinship.notifications.fan_out import EventFanOut
from app.kinship.notifications.line_checks import LineChecks
from app.kinship.notifications.neighbor_changes import NeighborChanges
from app.kinship.reports import jobs as reports
from app.kinship.reports.composition import add_reports
from app.kinship.reports.policies import ReportPolicies
from app.kinship.reports.service import ReportService
from app.kinship.samples.service import SampleService
from app.kinship.tensors import TensorService
from app.merges import jobs as merges
from app.merges.mailbox import Mailbox
from app.merges.membership import Membership
from app.merges.phases import Phases
from app.merges.service import MergeService
from app.models.catalog import jobs as catalog
from app.models.catalog.batches import BatchService
from app.models.catalog.patches import PatchService
from app.models.catalog.reader import ModelReader
from app.models.catalog.revision_recorder import RevisionRecorder
from app.models.catalog.revisions import RevisionService
from app.models.catalog.shared_commits import SharedCommits
from app.models.catalog.sketches import SketchService
from app.models.catalog.tensor_counts import TensorCountService
from app.models.catalog.writer import ModelWriter
from app.models.index.buckets.service import BucketService
from app.models.index.registry import IndexRegistry
from app.models.learngenes.service import LearngeneService
from app.models.spaces.service import SpaceService
from app.models.spaces.support_sizes import SupportSizeService
from app.models.subspaces.index import SubspaceIndex
from app.models.subspaces.service import SubspaceService
from app.models.weights.service import WeightsService
from app.operations.maintenance import jobs as maintenance
from app.operations.maintenance.composition import add_clean_up
from app.operations.maintenance.jobs import MaintenanceJobs
from app.operations.observability.tracing import exporting
from app.search.comparer import Comparer
from app.search.constants import SpaceConstants
from app.search.public.budgets import QueryBudgets
from app.search.public.search import PublicSearch
from app.search.public.service import PublicSpaceService
from app.search.service import SearchService
from app.search.similarity import SimilarityService
from app.settings import Settings
from app.stores import (
    Stores,
    open_buckets,
    open_finding,
    open_redis,
    open_stores,
    uncached_reader,
)
from app.tenancy.auth.counters import RedisCounters
from app.tenancy.auth.rate_limits import RateLimits
from app.tenancy.auth.records import Tenant
from app.tenancy.auth.service import Authenticator, KeyService
from app.tenancy.auth.tenants import noise_key
from app.tenancy.auth.visitor_sessions import VisitorSessions
from app.tenancy.idempotency.service import IdempotencyService
from app.tenancy.quotas.service import QuotaService, default_quotas
from app.webhooks import jobs as webhooks
from app.webhooks.delivery import DeliveryService
from app.webhooks.outbox import Outbox
from app.webhooks.sender import Sender
from app.webhooks.service import SubscriptionService

if TYPE_CHECKING:
    from app.infra.storage.redis import RedisServer

__all__ = ["open_services", "register_jobs"]


def register_jobs(services: Container) -> None:
    """Register the jobs of every feature that has some."""
    jobs = services[JobService]
    webhooks.register_jobs(jobs, services[DeliveryService])
    hubs.register_jobs(
        jobs,
        services[IngestionService],
        services[HubPoller],
        services[FingerprintBackfill],
        services[HubEventService],
    )
    clustering.register_jobs(jobs, services[ClusteringService], services[PolicyService])
    maps.register_jobs(jobs, services[MapService])
    reports.register_jobs(jobs, services[ReportService], services[ReportPolicies])
    catalog.register_jobs(jobs, services[TensorCountService])
    merges.register_jobs(jobs, services[MergeService])
    anatomies.register_jobs(jobs, services[AnatomyKeeper])
    maintenance.register_jobs(jobs, services[MaintenanceJobs])
    notifications.register_jobs(jobs, services[EventFanOut])
    findings.register_jobs(jobs, services[FindingKeeper])


@contextmanager
def open_services(
    settings: Settings,
    *,
    prepared: bool = False,
    register: Callable[[Container], None] = register_jobs,
) -> Iterator[Container]:
    """Open the stores, and compose the services.

    Args:
        prepared: whether another process of this service has prepared the stores just now.
        register: registers the jobs that this process carries out.

    Raises:
        Unavailable: a store cannot be opened; the message says which and why.
        MissingExtra: the settings ask for traces, and the packages for them are not installed.
    """
    fail_points.arm()
    with (
        exporting(settings) as tracing,
        open_stores(settings, prepared=prepared) as stores,
        open_redis(settings) as redis,
        open_buckets(stores.database, redis) as buckets,
        open_finding(settings, stores, redis) as finding,
    ):
        buckets.start()
        services = _compose(settings, stores, buckets, finding)
        services.add(_rate_limits(settings, redis, stores.token))
        register(services)
        if tracing is not None:
            services.add(tracing).trace(services)
        with closing(services[DeliveryService]):
            yield services


def _compose(
    settings: Settings, stores: Stores, buckets: BucketService, finding: FindingIndex
) -> Container:
    """Make all services, each feature after the features that it needs."""
    services = Container(settings, stores.database, stores.tenant, stores.indexes)
    services.add(Egress(Allowlist.parse(settings.egress_allow)))
    services.add(Secrets(settings.encryption_key_list, settings.encryption_key_file))
    _add_auth(services)
    quotas = services.add(QuotaService(default_quotas(settings)))
    services.add(JobService(quotas=quotas))
    columns = services.add(SubspaceIndex(settings.index_memory_bytes // 4))
    services.add(SpaceService([*_forgetting(stores, buckets), columns.forget], quotas))
    services.add(SupportSizeService(quotas))
    _add_webhooks(services)
    _add_catalog(services, stores)
    fingerprints = services.add(FingerprintService(services[Outbox], quotas))
    services.add(FingerprintCommits(stores.database, fingerprints))
    services.add(FingerprintBatches(stores.database, fingerprints))
    services.add(finding)
    _add_search(services, stores, buckets)
    _add_public(services, stores)
    add_hubs(services, stores.downloads)
    _add_anatomies(services)
    services.add(
        SampleService(
            stores.database,
            services[SpaceService],
            services[ModelWriter],
            services[WeightsService],
            services[FingerprintService],
        )
    )
    _add_clustering(services, stores, works_here=settings.runs_embedded_worker)
    _add_learngenes(services, stores)
    _add_kinship(services)
    add_reports(services)
    _add_merges(services, stores)
    services.add(
        InboxService(
            services[FingerprintService], services[SourceService], services[FindingService]
        )
    )
    services.add(FamilyList())
    services.add(MaintenanceJobs(stores.database, buckets))
    add_clean_up(services, stores)
    _add_notifications(services)
    return services


def _forgetting(stores: Stores, buckets: BucketService) -> list[Callable[[int], None]]:
    """The functions that delete what is derived from a space, in order."""
    return [stores.indexes.forget, buckets.forget, stores.sketches.forget]


def _add_auth(services: Container) -> None:
    keys = services.add(KeyService())
    database, settings = services[Database], services[Settings]
    sessions = services.add(VisitorSessions(database, timedelta(seconds=settings.session_seconds)))
    services.add(
        Authenticator(
            database, keys, sessions, services[Tenant], keys_required=settings.keys_required
        )
    )
    services.add(IdempotencyService(services[Database], services[Secrets]))


def _rate_limits(settings: Settings, redis: RedisServer | None, token: str) -> RateLimits:
    shared = None if redis is None else RedisCounters(redis)
    return RateLimits(settings.rate_limit, settings.write_rate_limit, shared, token)


def _add_webhooks(services: Container) -> None:
    jobs, secrets = services[JobService], services[Secrets]
    services.add(Outbox(jobs))
    services.add(SubscriptionService(jobs, secrets, services[QuotaService]))
    services.add(
        DeliveryService(
            services[Database],
            jobs,
            secrets,
            Sender(services[Egress]),
            retention=timedelta(days=services[Settings].delivery_retention_days),
        )
    )


def _add_catalog(services: Container, stores: Stores) -> None:
    database, blobs, reader = stores.database, stores.blobs, services.add(stores.reader)
    recorder = RevisionRecorder(blobs, services[Settings].keep_revisions)
    writer = services.add(
        ModelWriter(blobs, recorder, stores.sketches, services[Outbox], services[QuotaService])
    )
    services.add(BatchService(database, writer))
    services.add(WeightsService(services[Outbox]))
    services.add(SharedCommits(database, writer))
    services.add(RevisionService(database, blobs))
    services.add(PatchService(reader))
    services.add(SketchService(reader, stores.sketches))
    services.add(TensorCountService(database, uncached_reader(database, blobs)))


def _add_search(services: Container, stores: Stores, buckets: BucketService) -> None:
    constants = services.add(SpaceConstants(stores.reader, stores.indexes))
    comparer = services.add(Comparer(stores.reader, stores.sketches, constants))
    subspaces = services.add(SubspaceService(services[SubspaceIndex]))
    services.add(SearchService(comparer, stores.indexes, buckets, subspaces))
    services.add(SimilarityService(stores.reader, subspaces, constants))


def _add_public(services: Container, stores: Stores) -> None:
    services.add(PublicSpaceService(stores.database))
    budgets = services.add(QueryBudgets(stores.database))
    with stores.database.reading() as session:
        secret = noise_key(session)
    services.add(PublicSearch(stores.reader, services[SearchService], budgets, secret))


def _add_anatomies(services: Container) -> None:
    fingerprints = services[FingerprintService]
    made = services.add(AnatomyService(fingerprints, services[FindingIndex]))
    keeper = AnatomyKeeper(
        services[Database], fingerprints, made, services[JobService], services[Outbox]
    )
    fingerprints.follow(services.add(keeper))
    services.add(FamilyService(fingerprints))
    services.add(AnatomyOverviews(fingerprints))


def _add_clustering(services: Container, stores: Stores, *, works_here: bool) -> None:
    jobs = services[JobService]
    newcomers = NewcomerAssignment(
        services[SearchService], services[Comparer], services[SubspaceService]
    )
    services.add(
        ClusteringService(
            stores.database,
            stores.blobs,
            jobs,
            newcomers,
            services[SpaceConstants],
            max_mapped=support_fd_budget(),
            outbox=services[Outbox],
            works_here=works_here,
        )
    )
    services.add(PolicyService(stores.database, jobs))
    services.add(
        MapService(
            stores.database,
            stores.blobs,
            jobs,
            services[SpaceConstants],
            max_mapped=support_fd_budget(),
        )
    )
    services.add(MapColoring(services[ClusteringService], services.add(LabelCache())))


def _add_learngenes(services: Container, stores: Stores) -> None:
    settings = services[Settings]
    services.add(
        LearngeneService(
            stores.database,
            stores.blobs,
            LastingClusters(),
            services[Outbox],
            services[QuotaService],
            max_bytes=settings.max_learngene_bytes,
            kept=settings.keep_learngenes,
        )
    )


def _add_kinship(services: Container) -> None:
    reader, indexes = services[ModelReader], services[IndexRegistry]
    comparer, search = services[Comparer], services[SearchService]
    constants, subspaces = services[SpaceConstants], services[SubspaceService]
    services.add(DonorService(reader, comparer, search, indexes, subspaces, constants))
    services.add(GraphService(reader, constants))
    base_revisions = BaseRevisions(reader, services[RevisionService])
    fingerprints = services[FingerprintService]
    lines = LineJudge(fingerprints, Kinfolk(services[FamilyService], services[AnatomyService]))
    services.add(FingerprintLineageService(fingerprints, lines))
    services.add(
        LineageService(reader, comparer, search, indexes, base_revisions, constants, lines)
    )
    add_findings(services)
    services.add(TensorService(reader, indexes, constants))


def _add_merges(services: Container, stores: Stores) -> None:
    membership = Membership(
        services[ModelReader], services[DonorService], services[ClusteringService]
    )
    phases = Phases(services[JobService], services[Outbox])
    merges = services.add(MergeService(stores.database, membership, phases, services[QuotaService]))
    services.add(Mailbox(stores.database, stores.blobs, merges, phases))


def _add_notifications(services: Container) -> None:
    changes = NeighborChanges(
        services[Database],
        services[ModelReader],
        services[RevisionService],
        services[SearchService],
        services[Comparer],
    )
    database, outbox = services[Database], services[Outbox]
    fingerprints, lineages = services[FingerprintService], services[FingerprintLineageService]
    checks = LineChecks(database, fingerprints, lineages, outbox)
    jobs, lineage = services[JobService], services[LineageService]
    services.add(EventFanOut(database, jobs, changes, lineage, checks))
