"""The composition root: settings in, a FastAPI application out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from app.api import (
    donors,
    errors,
    health,
    models,
    neighbors,
    signatures,
    similarity,
    spaces,
    supports,
)
from app.api.middleware import RequestIds
from app.resources import open_resources
from app.settings import Settings
from app.ui import pages
from modelkin._version import __version__

__all__ = ["create_app"]

_DESCRIPTION = """
Tells which models are kin without ever seeing their values. A model is represented by its
*support*, the indices of its most salient parameters; similarity is how much two supports overlap.
Send supports, or only MinHash signatures, and ask for neighbours, overlaps and donors.
"""


def create_app(settings: Settings) -> FastAPI:
    """The service, ready to be served; its stores open when it starts and close when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened = open_resources(settings)
        app.state.resources = await run_in_threadpool(opened.__enter__)
        try:
            yield
        finally:
            await run_in_threadpool(opened.__exit__, None, None, None)

    app = FastAPI(
        title="modelkin",
        version=__version__,
        description=_DESCRIPTION,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.add_middleware(RequestIds)
    errors.install(app)
    for module in (spaces, supports, signatures, models, neighbors, donors, similarity, health):
        app.include_router(module.router)
    app.include_router(pages.router)
    return app
