"""``python -m app``: serve until told to stop."""

from __future__ import annotations

import resource
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from app import commands
from app.logs import configure
from app.main import create_app
from app.resources import open_resources
from app.settings import Settings, mistakes
from app.supervisor import listen, supervise
from modelkin.errors import ModelkinError

_GRACE = 20
"""Seconds that requests under way may take once the service is told to stop."""


def main() -> int:
    """Exit 0 after a clean stop, 1 where the service could not start, 2 for wrong settings."""
    if sys.argv[1:2] == ["keys"]:
        return commands.keys(sys.argv[2:])
    try:
        settings = Settings.from_command_line(sys.argv[1:])
    except ValidationError as error:
        for line in mistakes(error):
            print(f"modelkin: {line}", file=sys.stderr)
        return 2
    configure(settings)
    _raise_descriptor_limit()
    try:
        if settings.workers > 1:
            return _serve_together(settings)
        with open_resources(settings) as resources:
            return _serve(create_app(resources), settings)
    except ModelkinError as error:
        print(f"modelkin: {error}", file=sys.stderr)
        return 1


def _serve_together(settings: Settings) -> int:
    """Several processes: what is done once at a start is done here, before any of them begins."""
    with listen(settings) as listening:
        with open_resources(settings):
            pass
        return supervise(serve_one, settings, listening)


def serve_one(settings: Settings, listening: socket.socket, ready: Callable[[], None]) -> int:
    """One process of several, as :class:`app.supervisor.Serve` wants it."""
    configure(settings)
    try:
        with open_resources(settings, prepared=True) as resources:
            return _serve(create_app(resources), settings, listening, ready)
    except ModelkinError as error:
        print(f"modelkin: {error}", file=sys.stderr)
        return 1


class _Server(uvicorn.Server):
    """Says when it serves.

    Args:
        config: uvicorn's.
        ready: called once connections are accepted.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _serve(
    app: FastAPI,
    settings: Settings,
    listening: socket.socket | None = None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Serve until told to stop. Being told is no failure, but uvicorn raises the signal once more
    when it has finished, and by default that would end the process as a killed one.
    """
    for told in (signal.SIGTERM, signal.SIGINT):
        signal.signal(told, lambda *_: sys.exit(0))
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,  # app.api.middleware writes one, with request ids
        log_config=None,
        timeout_graceful_shutdown=_GRACE,
    )
    try:
        _Server(config, ready).run(None if listening is None else [listening])
    except SystemExit as ended:  # uvicorn's own code for a port that is taken is 3
        return 1 if ended.code else 0
    return 0


def _raise_descriptor_limit() -> None:
    """A mapped support holds a file descriptor, and a matrix maps a thousand of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
