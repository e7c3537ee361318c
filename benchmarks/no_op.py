"""The peer of a small request: a bare FastAPI application that does nothing, served the same way.

``python -m benchmarks.no_op`` serves it as ``python -m app`` serves its own: the same event loop,
HTTP parser and settings of uvicorn, in one process. With ``--middleware`` it has the middleware of
the service as well, which writes the access log, counts requests and checks where they come from.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fastapi import FastAPI

from app.fingerprints.finding.index import FindingIndex
from app.infra.http.middleware.browser import BrowserMiddleware
from app.models.index.registry import IndexRegistry
from app.operations.observability.logging import configure
from app.operations.observability.metrics import Metrics
from app.operations.observability.request_log import RequestLogMiddleware
from app.server.server import serve
from app.settings import Settings

__all__ = ["create_app"]


def create_app(*, middleware: bool = False) -> FastAPI:
    """An application of two endpoints: a function, which runs in a thread, and a coroutine.

    Args:
        middleware: with that of the service as it is without keys and rate limits.
    """
    app = FastAPI()
    if middleware:
        metrics = Metrics(IndexRegistry(0), FindingIndex(Path()))  # it has nothing to write there
        app.add_middleware(BrowserMiddleware, host="127.0.0.1")
        app.add_middleware(RequestLogMiddleware, metrics=metrics)

    @app.get("/plain")
    def plain() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/async")
    async def asynchronous() -> dict[str, str]:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    settings = Settings(_env_file=None, port=0)
    configure(settings)
    sys.exit(serve(create_app(middleware="--middleware" in sys.argv), settings))
