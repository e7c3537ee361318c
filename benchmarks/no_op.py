"""The peer of a small request: a bare FastAPI application that does nothing, served the same way.

``python -m benchmarks.no_op`` serves it as ``python -m app`` serves its own: the same event loop,
HTTP parser and settings of uvicorn, in one process.
"""

from __future__ import annotations

import sys

from fastapi import FastAPI

from app.observability.logging import configure
from app.server.server import serve
from app.settings import Settings

__all__ = ["create_app"]


def create_app() -> FastAPI:
    """An application of two endpoints: a function, which runs in a thread, and a coroutine."""
    app = FastAPI()

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
    sys.exit(serve(create_app(), settings))
