"""The composition root: open resources in, a FastAPI application out."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from functools import partial

from fastapi import FastAPI

from app.api import (
    batch,
    clusterings,
    donors,
    errors,
    graph,
    health,
    hooks,
    jobs,
    lineage,
    metrics,
    models,
    neighbors,
    openapi,
    revisions,
    signatures,
    similarity,
    sketches,
    sources,
    spaces,
    subscriptions,
    support_size,
    supports,
)
from app.api.budget import Budget, Budgets
from app.api.follow import Following
from app.api.limits import Limited
from app.api.metrics import Metrics
from app.api.middleware import Observed
from app.api.reach import Reach
from app.resources import Resources
from app.stores.ports import JobRecord
from app.ui import pages
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
    *(spaces, support_size, supports, signatures, sketches, batch, models, revisions),
    *(neighbors, donors, graph, lineage, similarity, jobs, clusterings, sources, hooks),
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
    app.state.following = Following(
        partial(_look, resources), is_over=lambda: getattr(app.state, "stopping", False)
    )
    app.state.reach = Reach(resources)
    app.state.metrics = Metrics(resources.indexes)
    if resources.rates.any:
        app.add_middleware(Limited, rates=resources.rates, keys_required=settings.keys_required)
    app.add_middleware(Observed, metrics=app.state.metrics)
    errors.install(app)
    for module in (*_RESOURCES, health, metrics, pages):
        app.include_router(module.router)
    openapi.install(app)
    return app


def _look(resources: Resources, ids: Collection[str]) -> Mapping[str, JobRecord]:
    with resources.database.reading() as session:
        return resources.jobs.find_all(session, ids)
