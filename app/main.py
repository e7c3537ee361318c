"""The FastAPI application: the routers of all features over a container of services."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.routing import BaseRoute

from app.anatomy import endpoints as anatomies
from app.container import Container
from app.fingerprints.endpoints import batches as many_fingerprints
from app.fingerprints.endpoints import fingerprints
from app.fingerprints.finding.index import FindingIndex
from app.hubs.endpoints import incoming, sources
from app.infra.db.database import Database
from app.infra.egress.client import Egress
from app.infra.http import openapi, problems
from app.infra.http.middleware.browser import BrowserMiddleware
from app.infra.http.middleware.path_prefix import PathPrefixMiddleware
from app.infra.http.middleware.tenant import TenantMiddleware
from app.infra.http.requests.bodies import BodyLimits
from app.infra.http.requests.json_bodies import JsonParsers
from app.infra.http.requests.memory_budget import Budget, Budgets
from app.infra.http.requests.url_checks import UrlChecker
from app.infra.http.routes import Routes
from app.infra.http.turns import Turns
from app.jobs import endpoints as jobs
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.jobs.watcher import JobWatcher
from app.kinship.clustering import endpoints as clusterings
from app.kinship.endpoints import donors, fingerprint_lineage, graph, lineage, tensors
from app.kinship.findings import endpoints as findings
from app.kinship.maps import endpoints as maps
from app.kinship.reports import endpoints as reports
from app.merges import endpoints as merges
from app.merges.records import MergeRecord
from app.merges.service import MergeService
from app.merges.watcher import MergeWatcher
from app.models.catalog.endpoints import batches, models, revisions, signatures, sketches, supports
from app.models.index.registry import IndexRegistry
from app.models.learngenes import endpoints as learngenes
from app.models.spaces.endpoints import spaces, support_sizes
from app.models.subspaces import endpoints as subspaces
from app.models.weights import endpoints as weights
from app.operations.maintenance import endpoints as maintenance
from app.operations.observability import health, metrics
from app.operations.observability.metrics import Metrics
from app.operations.observability.request_log import RequestLogMiddleware
from app.operations.observability.shared_values import SharedValues
from app.operations.observability.tracing import SpanRequestIds, Tracing
from app.search.degradation import DegradedAnswers
from app.search.endpoints import neighbors, similarity
from app.search.public.endpoints import queries as public_queries
from app.search.public.endpoints import settings as public_settings
from app.settings import Settings
from app.tenancy.auth import endpoints as keys
from app.tenancy.auth.middleware import RateLimitMiddleware
from app.tenancy.auth.rate_limits import RateLimits
from app.tenancy.auth.service import Authenticator
from app.ui import api_docs, assets
from app.ui.pages import PAGES
from app.ui.problem_page import problem_page
from app.ui.sign_in_cookie import SignInMiddleware
from app.webhooks import endpoints as subscriptions
from modelkin._version import __version__

__all__ = ["ENDPOINTS", "create_app", "described_routes", "make_routers"]

ENDPOINTS: Final[tuple[Routes | APIRouter, ...]] = (
    *(spaces.routes, support_sizes.routes, supports.routes, signatures.routes),
    *(sketches.routes, subspaces.routes, batches.routes, models.routes, revisions.routes),
    *(weights.routes, weights.duplicate_routes, many_fingerprints.routes),
    *(neighbors.routes, donors.routes, graph.routes, maps.routes, lineage.routes, tensors.routes),
    findings.routes,
    *(fingerprint_lineage.routes, anatomies.routes, reports.badge_routes, reports.routes),
    *(similarity.routes, public_settings.routes, public_queries.routes),
    *(maintenance.routes, jobs.routes, clusterings.routes, learngenes.routes, merges.routes),
    *(sources.routes, incoming.routes, subscriptions.routes, keys.routes),
    fingerprints.routes,  # behind those whose paths go on after a model's name
    *(health.router, health.routes, metrics.routes, api_docs.router, assets.router, *PAGES),
)
"""All operations, in the order of the OpenAPI document; plain routers need no service."""

_MOST_ASKED: Final = (supports.routes, models.routes, neighbors.routes)

_PROBES: Final = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that are asked again and again, and answered at once."""

_DESCRIPTION = """
Tells which models are kin without ever seeing their values. A model is represented by its
*support*, the indices of its most salient parameters; similarity is how much two supports overlap.
Send supports, or only MinHash signatures, and ask for neighbours, overlaps and donors.
"""

_TAGS: Final = (
    ("spaces", "A space holds models whose indices mean the same, and says how they are compared."),
    ("models", "Store supports, signatures and data subspaces, one by one or many at once."),
    ("kinship", "Neighbours, overlaps, donors, lineage and the graph of nearest models."),
    ("fingerprints", "Where the tensors of models come from, whatever their layouts."),
    ("public spaces", "Spaces that other tenants may ask, in steps and within a budget."),
    ("clusterings", "Groups of models, found by jobs, and the group that a newcomer belongs to."),
    ("reports", "What was found of all models beside what is declared, to read and to keep."),
    ("learngenes", "The weights that a newcomer of a cluster starts from, in versions."),
    ("merges", "Averages of models that no single party, and not this service, can read."),
    ("jobs", "Work that outlasts a request: follow it, wait for it, cancel it."),
    ("sources", "Hubs whose models are followed, by their events and by polls."),
    ("subscriptions", "Signed webhooks to your URL, their deliveries and their replay."),
    ("keys", "The API keys of your tenant: make, list and revoke them."),
    ("health", "Whether the process runs, whether it is ready, and its metrics."),
)


def create_app(services: Container) -> FastAPI:
    """Create the application over these services, ready to be served; it does not close them.

    The services are open before the server starts. So the operator gets one line about a store that
    cannot be opened, and not the traceback of a failing lifespan.
    """
    settings, tracing = services[Settings], services.find(Tracing)
    app = FastAPI(
        title="modelkin",
        version=__version__,
        redirect_slashes=False,
        docs_url=None,  # `api_docs` has a page that loads nothing from elsewhere
        redoc_url=None,
        description=_DESCRIPTION,
        openapi_tags=[{"name": name, "description": text} for name, text in _TAGS],
        servers=[{"url": settings.root_path or "/"}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        telemetry=_telemetry(tracing, settings.root_path),
    )
    finding = services[FindingIndex]
    measured = Metrics(
        services[IndexRegistry], finding, services[Database], services.find(SharedValues)
    )
    finding.on_answer = lambda outcome: measured.questions.labels(outcome).inc()
    degraded = DegradedAnswers(measured.degraded)
    app.state.services = Container(*services, *_http_services(app, services), measured, degraded)
    rates = services[RateLimits]
    if rates.any:
        app.add_middleware(RateLimitMiddleware, rates=rates, keys_required=settings.keys_required)
    if settings.keys_required:
        app.add_middleware(SignInMiddleware)
    app.add_middleware(BrowserMiddleware, host=None if settings.keys_required else settings.host)
    app.add_middleware(RequestLogMiddleware, metrics=measured)
    if tracing is not None:
        app.add_middleware(SpanRequestIds)
    app.add_middleware(TenantMiddleware)
    if settings.root_path:
        app.add_middleware(PathPrefixMiddleware, prefix=settings.root_path)
    problems.install(app)
    app.state.problem_page = problem_page
    # One flat list: FastAPI would walk a tree of routers for each request. FastAPI tries one route
    # after the other, so the most frequent come first.
    for each in sorted(ENDPOINTS, key=lambda each: each not in _MOST_ASKED):
        if isinstance(each, Routes):
            each.add_to(app)
        else:
            app.router.routes.extend(each.routes)
    openapi.install(app, described_routes)
    return app


def make_routers() -> None:
    """Make the routers, which all applications of this process share."""
    for each in ENDPOINTS:
        if isinstance(each, Routes):
            each.router()


def described_routes() -> list[BaseRoute]:
    """The routes of the OpenAPI document."""
    routers = (
        each.documentation_router() if isinstance(each, Routes) else each for each in ENDPOINTS
    )
    return [route for router in routers for route in router.routes]


def _telemetry(tracing: Tracing | None, prefix: str) -> TelemetryConfig:
    """Make FastAPI trace all requests except probes, as parts of the callers' traces.

    Without a collector it makes no spans, whatever variables of OpenTelemetry say.
    """
    if tracing is None:
        return {"tracing": False, "metrics": False, "logs": False}
    return {
        "tracer_provider": tracing.provider,
        "metrics": False,
        "logs": False,
        "exclude": lambda scope: scope["path"].removeprefix(prefix) in _PROBES,
    }


def _http_services(app: FastAPI, services: Container) -> Iterator[object]:
    """The services that only requests need."""
    settings = services[Settings]
    timeout = settings.database_timeout_seconds
    yield BodyLimits(
        settings.max_body_bytes, settings.max_json_bytes, settings.body_timeout_seconds
    )
    # Apart, since one who waits for memory to decode into already holds a body.
    budget = partial(
        Budget, timeout=timeout, share=settings.tenant_share if settings.keys_required else 1.0
    )
    yield Budgets(
        bodies=budget(settings.max_inflight_body_bytes // 2),
        decoded=budget(settings.max_inflight_body_bytes // 2),
        answers=budget(settings.max_inflight_body_bytes // 4),
    )
    yield Turns(
        settings.database_pool_size,
        share=settings.tenant_share,
        timeout=timeout,
        query_timeout=settings.query_timeout_seconds,
    )
    yield JsonParsers(share=settings.tenant_share, timeout=timeout)
    yield UrlChecker(services[Egress], timeout)
    usable, is_over = services[Authenticator].usable, partial(getattr, app.state, "stopping", False)
    yield JobWatcher(partial(_jobs_by_id, services), usable, is_over)
    yield MergeWatcher(partial(_merges_by_id, services), usable, is_over)


def _jobs_by_id(services: Container, ids: Collection[str]) -> Mapping[str, JobRecord]:
    with services[Database].reading() as session:
        return services[JobService].find_all(session, ids)


def _merges_by_id(services: Container, ids: Collection[str]) -> Mapping[str, MergeRecord]:
    with services[Database].reading() as session:
        return services[MergeService].find_all(session, ids)
