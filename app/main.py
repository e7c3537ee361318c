"""The composition root: open resources in, a FastAPI application out."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial

from fastapi import FastAPI

from app.auth.rate_limit_middleware import RateLimitMiddleware
from app.bootstrap import Resources
from app.catalog.endpoints import batches, models, revisions, signatures, sketches, supports
from app.clustering import endpoints as clusterings
from app.hubs.endpoints import incoming, sources
from app.infra.http import openapi, problems
from app.infra.http.memory_budget import Budget, Budgets
from app.infra.http.url_checks import UrlChecker
from app.jobs import endpoints as jobs
from app.jobs.records import JobRecord
from app.jobs.watcher import JobWatcher
from app.kinship.endpoints import donors, graph, lineage
from app.observability import health, metrics
from app.observability.metrics import Metrics
from app.observability.request_log import RequestLogMiddleware
from app.search import endpoints as neighbors
from app.search import similarity_endpoints
from app.spaces import endpoints as spaces
from app.spaces import support_size_endpoints
from app.ui import pages
from app.webhooks import endpoints as subscriptions
from modelkin._version import __version__

__all__ = ["create_app"]

_THREADS = 40
"""Request threads: anyio's default."""


def turns(connections: int) -> int:
    """How many requests may hold connections at a time, two at most each.

    Fewer than request threads and than half the connections, so that there is always a thread and
    a connection for one of them to go on with: requests that hold a connection and wait for a
    thread, while the threads wait for connections, would all time out.
    """
    return min(_THREADS - 8, (connections - 8) // 2)


_RESOURCES = (
    *(spaces, support_size_endpoints, supports, signatures, sketches, batches, models, revisions),
    *(
        neighbors,
        donors,
        graph,
        lineage,
        similarity_endpoints,
        jobs,
        clusterings,
        sources,
        incoming,
    ),
    subscriptions,
)

_DESCRIPTION = """
Tells which models are kin without ever seeing their values. A model is represented by its
*support*, the indices of its most salient parameters; similarity is how much two supports overlap.
Send supports, or only MinHash signatures, and ask for neighbours, overlaps and donors.
"""


def create_app(resources: Resources) -> FastAPI:
    """The service over these stores, ready to be served; whoever opened them closes them.

    They are open before the server starts, so that what keeps them shut is one line to whoever
    started it, and not the traceback that a failing lifespan becomes.
    """
    app = FastAPI(
        title="modelkin",
        version=__version__,
        redirect_slashes=False,
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.state.resources = resources
    app.state.settings = resources.settings
    settings = resources.settings
    app.state.turns = asyncio.Semaphore(turns(settings.database_connections))
    # Two, since one who waits for memory to decode into already holds a body.
    app.state.budgets = Budgets(
        bodies=Budget(settings.body_memory // 2, settings.database_timeout),
        decoded=Budget(settings.body_memory // 2, settings.database_timeout),
    )
    app.state.following = JobWatcher(
        partial(_look, resources), is_over=lambda: getattr(app.state, "stopping", False)
    )
    app.state.reach = UrlChecker(resources)
    app.state.metrics = Metrics(resources.indexes)
    if resources.rates.any:
        app.add_middleware(
            RateLimitMiddleware, rates=resources.rates, keys_required=settings.keys_required
        )
    app.add_middleware(RequestLogMiddleware, metrics=app.state.metrics)
    problems.install(app)
    for module in (*_RESOURCES, health, metrics, pages):
        app.include_router(module.router)
    openapi.install(app)
    return app


def _look(resources: Resources, ids: Collection[str]) -> Mapping[str, JobRecord]:
    with resources.database.reading() as session:
        return resources.jobs.find_all(session, ids)
