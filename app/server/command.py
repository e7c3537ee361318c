"""``python -m app`` without a command of an operator: serve until a signal stops it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial

from pydantic import ValidationError

from app.bootstrap import open_services, register_jobs
from app.container import Container
from app.infra.errors import explain
from app.infra.fd_limits import raise_limit
from app.infra.private_files import keep_private
from app.infra.programs import service_command
from app.operations.observability.logging import configure
from app.server.announcement import announce
from app.server.server import serve_all, serve_one
from app.server.sockets import check_free, listen_alone, reserve
from app.server.supervisor import supervise
from app.setting_messages import dbos_leftovers, unknown_variables, validation_messages
from app.settings import Settings
from modelkin.errors import ModelkinError

__all__ = ["run"]

log = logging.getLogger("app")


def run(arguments: list[str], register: Callable[[Container], None] | None = None) -> int:
    """Run the service; exit 0 after a clean stop, 1 where it could not start, 2 for wrong settings.

    Args:
        arguments: the arguments of the command line.
        register: registers the jobs that the service carries out; by default all its kinds.
    """
    try:
        settings = Settings.from_command_line(arguments, program=service_command())
    except ValidationError as error:
        for line in validation_messages(error, arguments):
            print(f"modelkin: {line}", file=sys.stderr)
        return 2
    keep_private()
    configure(settings)
    for line in (*unknown_variables(), *dbos_leftovers(settings)):
        log.warning(line)
    raise_limit()
    register = register or register_jobs
    try:
        if settings.processes > 1:
            return _serve_together(settings, register)
        check_free(settings)
        with open_services(settings, register=register) as services:
            listening = listen_alone(settings)
            ready = partial(_announce_start, settings, listening.getsockname()[1])
            return serve_all(services, settings, listening, ready)
    except ModelkinError as error:
        print(f"modelkin: {explain(error)}", file=sys.stderr)
        return 1


def _announce_start(settings: Settings, port: int) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    log.info("running on http://%s:%d", host, port)
    announce(settings, port)


def _serve_together(settings: Settings, register: Callable[[Container], None]) -> int:
    """Serve with several processes; prepare the stores here, before any process begins."""
    with reserve(settings) as reserved:
        with open_services(settings):
            pass
        port = reserved.getsockname()[1]
        serve = partial(serve_one, register=register)
        ready = partial(announce, settings, port)
        return supervise(serve, settings.model_copy(update={"port": port}), ready)
