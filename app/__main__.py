"""``python -m app``: serve until a signal stops it."""

from __future__ import annotations

import gc

gc.disable()  # what an import makes stays; looking for garbage in it took a fifth of the start

import logging
import sys
from collections.abc import Callable
from functools import partial

from pydantic import ValidationError

from app.bootstrap import open_services, register_jobs
from app.cli import find_command
from app.container import Container
from app.errors import explain
from app.infra.fd_limits import raise_limit
from app.infra.private_files import keep_private
from app.observability.logging import configure
from app.server.server import serve_all, serve_one
from app.server.supervisor import reserve, supervise
from app.settings import Settings, unknown_variables, validation_messages
from modelkin.errors import ModelkinError

log = logging.getLogger("app")
gc.freeze()
gc.enable()


def main(register: Callable[[Container], None] = register_jobs) -> int:
    """Exit 0 after a clean stop, 1 where the service could not start, 2 for wrong settings.

    Args:
        register: registers the jobs that the service carries out.
    """
    command = find_command("".join(sys.argv[1:2]))
    if command is not None:
        keep_private()
        raise_limit()
        return command(sys.argv[2:])
    try:
        settings = Settings.from_command_line(sys.argv[1:])
    except ValidationError as error:
        for line in validation_messages(error):
            print(f"modelkin: {line}", file=sys.stderr)
        return 2
    keep_private()
    configure(settings)
    for line in unknown_variables():
        log.warning(line)
    raise_limit()
    try:
        if settings.processes > 1:
            return _serve_together(settings, register)
        with open_services(settings, register=register) as services:
            return serve_all(services, settings)
    except ModelkinError as error:
        print(f"modelkin: {explain(error)}", file=sys.stderr)
        return 1


def _serve_together(settings: Settings, register: Callable[[Container], None]) -> int:
    """Several processes: what is done once at a start is done here, before any of them begins."""
    with reserve(settings) as reserved:
        with open_services(settings):
            pass
        port = reserved.getsockname()[1]
        serve = partial(serve_one, register=register)
        return supervise(serve, settings.model_copy(update={"port": port}))


if __name__ == "__main__":
    sys.exit(main())
