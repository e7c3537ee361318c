"""Serve one process with uvicorn, from its first request to the drain that SIGTERM begins.

It is alone or one of several, with an embedded worker if set.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from app.bootstrap import open_services, register_jobs
from app.container import Container
from app.infra.db.database import Database
from app.infra.errors import explain
from app.infra.fd_limits import connection_fd_budget
from app.infra.heap import limit_heap
from app.jobs.service import JobService
from app.main import create_app
from app.operations.maintenance.cleanup import Cleanup
from app.operations.observability.logging import configure
from app.operations.observability.metrics import Metrics
from app.server.connections import ConnectionLimits
from app.server.protocols import HttpProtocol
from app.server.supervisor import END_AT_ONCE, Place
from app.settings import Settings
from app.tenancy.auth.service import Authenticator
from modelkin.core.kernels.choice import prepare as prepare_kernels
from modelkin.errors import ModelkinError
from workers.worker import Worker

__all__ = ["KEEP_ALIVE_S", "embedded_worker", "serve", "serve_all", "serve_one"]

log = logging.getLogger(__name__)

_GC_THRESHOLDS = 20_000, 5, 200
"""Collect generation 1 after 5 collections of generation 0: a pause of 5 ms; after 20, of 25 ms."""
_SHUTDOWN_TIMEOUT_S = 20
"""Time for requests in progress once the service is asked to stop."""
KEEP_ALIVE_S = 15
"""Time for the next request on a connection: longer than clients keep an idle one (httpx 5 s, the
proxies of the recipes 4 s), whose request would else meet a connection that just ends.
"""
_METRICS_INTERVAL_S = 2
_LAST_REQUESTS_S = 1.0
"""Time for the first request of a connection that is there at the end of a drain."""
_TICK_S = 0.1
_SWITCH_INTERVAL_S = 0.0005
"""Time after which a computing thread yields the interpreter to a waiting one.

A small request waits for the interpreter some twenty times. With Python's 5 ms this took a tenth
of a second beside one computation.
"""


def serve(
    app: FastAPI,
    settings: Settings,
    listening: socket.socket | None = None,
    ready: Callable[[], None] = lambda: None,
    metrics: Metrics | None = None,
) -> int:
    """Serve until a signal asks to stop.

    uvicorn raises the signal again when it has finished. By default that would end the process as
    if it was killed, so a handler exits with 0.

    Args:
        app: the application, with its stores open.
        listening: a socket that listens already; by default a new one.
        ready: called once connections are accepted.
        metrics: metrics to show to other processes again and again.

    Returns:
        The exit code: 1 if the port is in use.
    """
    _answer_soon()
    for stop in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop, lambda *_: sys.exit(0))
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=_protocol(settings),
        ws="none",
        access_log=False,  # app.operations.observability.request_log writes it, with request ids
        log_config=None,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or "",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
        callback_notify=None if metrics is None else metrics.refresh,
        timeout_notify=_METRICS_INTERVAL_S,
    )
    server = _Server(app, config, ready, settings)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # neither nohup nor a supervisor is there
        signal.signal(signal.SIGHUP, lambda *_: server.handle_exit(signal.SIGTERM, None))
    signal.signal(END_AT_ONCE, lambda *_: server.end_drain())
    try:
        server.run(None if listening is None else [listening])
    except SystemExit as ended:  # uvicorn's own code for a port in use is 3
        return 1 if ended.code else 0
    return 0


def _protocol(settings: Settings) -> type[asyncio.Protocol]:
    """The protocol of connections, as far as uvicorn calls it."""
    limits = ConnectionLimits(min(settings.max_connections, connection_fd_budget()))
    return cast("type[asyncio.Protocol]", partial(cast(Any, HttpProtocol), limits=limits))


def _answer_soon() -> None:
    """Shorten the pauses that computing threads and collections cause other threads.

    Objects made before the first request stay until the end. So collections of garbage skip them:
    inspecting them would stop all threads for a tenth of a second. Collections come less often,
    too.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def serve_all(
    services: Container,
    settings: Settings,
    listening: socket.socket | None = None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Serve as :func:`serve`, with an embedded worker if the settings ask for one."""
    limit_heap()
    worker = embedded_worker(settings, services[Database], services[JobService])
    if worker is None:
        return _serve_kept(services, settings, listening, ready)
    worker.start()
    try:
        code = _serve_kept(services, settings, listening, ready)
    finally:
        worker.stop()
    if worker.abandoned:  # other workers take over the abandoned jobs, as after a kill
        logging.shutdown()
        os._exit(code)
    return code


def _serve_kept(
    services: Container,
    settings: Settings,
    listening: socket.socket | None,
    ready: Callable[[], None],
) -> int:
    with prepare_kernels(loaded=gc.freeze), services[Cleanup].running():
        app = create_app(services)
        code = serve(app, settings, listening, ready, app.state.services[Metrics])
    with suppress(ModelkinError):  # a database that is gone takes the last minute with it
        services[Authenticator].write_uses()
    return code


def serve_one(
    settings: Settings,
    place: Place,
    ready: Callable[[], None],
    *,
    register: Callable[[Container], None] = register_jobs,
) -> int:
    """Serve one of several processes, as a :class:`app.server.supervisor.Serve`."""
    configure(settings)
    try:
        with open_services(settings, prepared=True, register=register) as services:
            services.add(place.values)
            return serve_all(services, settings, place.listening, ready)
    except ModelkinError as error:
        log.error("this process cannot start: %s", explain(error))
        return 1


def embedded_worker(settings: Settings, database: Database, jobs: JobService) -> Worker | None:
    return Worker(settings, database, jobs) if settings.runs_embedded_worker else None


class _Server(uvicorn.Server):
    """A uvicorn server that reports its start, and drains before its shutdown.

    A client that sends a request just as its idle connection is closed gets no answer. So each
    connection that is used in the drain ends with an answer that says so.

    Args:
        app: the application. ``app.state.draining`` is set with the drain: answers close their
            connections. ``app.state.stopping`` is set after the drain, and ends streams.
        config: the configuration of uvicorn.
        ready: called once connections are accepted.
        settings: with ``drain``, the seconds for which it accepts connections after SIGTERM.
    """

    def __init__(
        self, app: FastAPI, config: uvicorn.Config, ready: Callable[[], None], settings: Settings
    ) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready
        self._drain = settings.drain
        self._alone = settings.processes == 1
        app.state.draining = app.state.stopping = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Leave out the drain where a person presses Ctrl-C, or where a second signal comes.

        A supervisor counts signals for all of its processes.
        """
        if sig == signal.SIGINT or (self.should_exit and self._alone):
            self.end_drain()
        super().handle_exit(sig, frame)

    def end_drain(self) -> None:
        """Skip the drain, or the rest of it."""
        self._drain = 0.0

    async def main_loop(self) -> None:
        await super().main_loop()
        self._app.state.draining = True
        if self._drain:
            log.info("answering for %g more seconds", self._drain)
        began = time.monotonic()
        while time.monotonic() < began + self._drain:
            await asyncio.sleep(_TICK_S)
            await self.on_tick(0)  # keeps the dates of answers

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        if self._drain:
            await self._answer_the_last()
        self._app.state.stopping = True
        await super().shutdown(sockets)

    async def _answer_the_last(self) -> None:
        """Wait for the requests of connections that were accepted right before."""
        end = time.monotonic() + _LAST_REQUESTS_S
        while self.server_state.connections and time.monotonic() < end:
            await asyncio.sleep(_TICK_S)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()
