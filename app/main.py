"""The composition root: open resources in, a FastAPI application out."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI

from app.api import (
    donors,
    errors,
    health,
    metrics,
    models,
    neighbors,
    signatures,
    similarity,
    spaces,
    supports,
)
from app.api.metrics import Metrics
from app.api.middleware import Observed
from app.resources import Resources
from app.ui import pages
from modelkin._version import __version__

__all__ = ["TURNS", "create_app"]

TURNS = 32
"""Requests that may hold connections at a time, two at most each.

Fewer than request threads and than half the connections, so that there is always a thread and a
connection for one of them to go on with: requests that hold a connection and wait for a thread,
while the threads wait for connections, would all time out.
"""

_RESOURCES = (spaces, supports, signatures, models, neighbors, donors, similarity)

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
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.state.resources = resources
    app.state.settings = resources.settings
    app.state.turns = asyncio.Semaphore(TURNS)
    app.state.metrics = Metrics(resources.indexes)
    app.add_middleware(Observed, metrics=app.state.metrics)
    errors.install(app)
    for module in (*_RESOURCES, health, metrics, pages):
        app.include_router(module.router)
    return app
