"""``python -m workers``: carry out jobs until a signal stops the process."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable

from pydantic import ValidationError

from app.bootstrap import open_services, register_jobs
from app.container import Container
from app.infra.db.database import Database
from app.infra.errors import explain
from app.infra.fd_limits import raise_limit
from app.infra.heap import limit_heap
from app.infra.private_files import keep_private
from app.infra.programs import workers_command
from app.jobs.service import JobService
from app.operations.observability.logging import configure
from app.setting_messages import dbos_leftovers, unknown_variables, validation_messages
from app.settings import Settings
from modelkin.errors import ModelkinError
from workers.worker import Worker

_SIGNAL_POLL_S = 0.2

log = logging.getLogger("workers")


def main(arguments: list[str], register: Callable[[Container], None] = register_jobs) -> int:
    """Run a worker; exit 0 after a clean stop, 1 where it could not start, 2 for wrong settings.

    Args:
        arguments: the arguments of the command line.
        register: registers the jobs that the worker carries out.
    """
    try:
        settings = Settings.from_command_line(arguments, program=workers_command())
    except ValidationError as error:
        for line in validation_messages(error, arguments):
            print(f"modelkin: {line}", file=sys.stderr)
        return 2
    keep_private()
    configure(settings)
    for line in (*unknown_variables(), *dbos_leftovers(settings)):
        log.warning(line)
    raise_limit()
    limit_heap()
    # A worker listens on no address, so the checks for public addresses do not apply.
    settings = settings.model_copy(update={"host": "127.0.0.1"})
    try:
        with open_services(settings, register=register) as services:
            worker = Worker(settings, services[Database], services[JobService], strict=True)
            run(worker)
            if worker.abandoned:
                _leave()
    except ModelkinError as error:
        print(f"modelkin: {explain(error)}", file=sys.stderr)
        return 1
    return 0


def run(worker: Worker) -> None:
    """Run the worker until a signal comes: its jobs go back to the queue for other workers.

    SIGHUP is such a signal unless the process ignores it, as under ``nohup``.

    Raises:
        ModelkinError: the worker could not start.
    """
    received = []
    stops = {signal.SIGTERM, signal.SIGINT}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        stops.add(signal.SIGHUP)
    for stop in stops:
        signal.signal(stop, lambda *_: received.append(True))
    worker.start()
    while not received and not worker.wait(_SIGNAL_POLL_S):
        pass
    worker.stop()
    if worker.failure is not None:
        raise worker.failure


def _leave() -> None:
    """Exit without waiting for a job that does not react; another worker takes it over."""
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
