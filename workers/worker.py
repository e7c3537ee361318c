"""A worker: a thread that lives, and lives again when others took it for dead.

On SQLite one process at a time works, whoever holds the lock beside the file; the others stand by,
and the kernel tells them when it is gone. On Postgres all work. Nothing is imported or connected to
for jobs before there is one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from app.errors import Unavailable
from app.infra.db.database import Database
from app.jobs.service import JobService
from app.settings import Settings
from modelkin.errors import ModelkinError
from workers.dbos_queue import beside, require_installed
from workers.session import WorkerSession

__all__ = ["Worker"]

_SOON, _LATER = 0.1, 1.0
"""Seconds between looks for what waits: when there was something, and when there has been nothing
for a while.
"""
_STAND_BY = 0.5
"""Seconds between two tries for the lock."""

log = logging.getLogger(__name__)


class Worker:
    """A worker in a thread of its own.

    Args:
        settings: of the service.
        database: open, and left open.
        jobs: with the kinds that it carries out.
        strict: connect to the queue before the first job and stay so, and end where that fails,
            with ``failure`` set; else what fails is logged and tried again.

    Raises:
        MissingExtra: DBOS is not installed.
    """

    def __init__(
        self, settings: Settings, database: Database, jobs: JobService, *, strict: bool = False
    ) -> None:
        require_installed()
        self._settings = settings
        self._database = database
        self._jobs = jobs
        self._strict = strict
        self._rests = not strict
        self._nudged = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.failure: ModelkinError | None = None
        self.abandoned = False
        """What did not hear that its worker stopped would keep the process alive."""

    def start(self) -> None:
        """Begin to work, in the background."""
        self._jobs.on_enqueued(self._nudged.set)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it ended by itself, in so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Put back what is under way, and end."""
        self._stopping.set()
        self._nudged.set()
        self._thread.join()

    def _run(self) -> None:
        url = self._database.url
        if url.get_backend_name() != "sqlite":
            self._live(alone=False)
            return
        file = Path(str(beside(url).database))
        try:
            with _locked(file.with_name(f"{file.name}.lock"), self._stopping) as locked:
                if locked:
                    self._live(alone=True)
        except OSError as error:
            self.failure = Unavailable(f"no jobs are carried out here: {error}")
            log.error("%s", self.failure)

    def _live(self, *, alone: bool) -> None:
        while not self._stopping.is_set():
            try:
                life = WorkerSession(
                    self._settings,
                    self._database,
                    self._jobs,
                    alone=alone,
                    nudge=self._nudged.set,
                )
                try:
                    self._work(life)
                finally:
                    self.abandoned |= not life.end()
            except Exception as error:
                if self._strict and isinstance(error, ModelkinError):
                    self.failure = error
                    return
                _complain(error)
                self._stopping.wait(_LATER)

    def _work(self, life: WorkerSession) -> None:
        """Step by step, until told to stop, or there is reason to begin anew."""
        if self._strict:
            life.connect()
            self._strict = False
        pause = _SOON
        while not (self._stopping.is_set() or life.lost or (life.tired and self._rests)):
            self._nudged.clear()
            try:
                pause = _SOON if life.step() else min(_LATER, pause * 1.5)
            except Exception as error:
                _complain(error)
                pause = _LATER
            self._nudged.wait(pause)


def _complain(error: Exception) -> None:
    if isinstance(error, Unavailable):
        log.warning("jobs wait: %s", error)
    else:
        log.error("jobs wait, because of a bug", exc_info=error)


@contextmanager
def _locked(file: Path, stopping: threading.Event) -> Iterator[bool]:
    """Holds what one process can hold, and the kernel lets go of; False where told to stop first.

    Args:
        file: made if there is none; it stays.
    """
    # Without the substitute for file systems that have no such locks: it outlives the process.
    lock = FileLock(file, thread_local=False, fallback_to_soft=False)
    try:
        waiting = False
        while not stopping.is_set():
            try:
                lock.acquire(blocking=False)
            except Timeout:
                if not waiting:
                    log.info("another process works on the jobs of this database: standing by")
                    waiting = True
                stopping.wait(_STAND_BY)
            else:
                yield True
                return
        yield False
    finally:
        lock.release()
