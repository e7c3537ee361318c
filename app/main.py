"""The composition root: open resources in, a FastAPI application out."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from app.api import (
    batch,
    donors,
    errors,
    health,
    metrics,
    models,
    neighbors,
    openapi,
    signatures,
    similarity,
    spaces,
    supports,
)
from app.api.budget import Budget, Budgets
from app.api.metrics import Metrics
from app.api.middleware import Observed
from app.resources import Resources
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


_RESOURCES = (spaces, supports, signatures, batch, models, neighbors, donors, similarity)

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
    app.state.metrics = Metrics(resources.indexes)
    app.add_middleware(Observed, metrics=app.state.metrics)
    errors.install(app)
    for module in (*_RESOURCES, health, metrics, pages):
        app.include_router(module.router)
    openapi.install(app)
    return app
