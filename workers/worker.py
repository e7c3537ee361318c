"""A job worker thread; it re-registers when its lease has expired.

On SQLite one process works at a time: the holder of the lock beside the file. Other processes stand
by until the kernel releases the lock. On Postgres all processes work. Postgres notifies a worker of
each job that a process enqueues; now and then it polls, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from app.infra.db.database import Database
from app.infra.errors import Unavailable, explain
from app.jobs.records import CHANNEL
from app.jobs.service import JobService
from app.settings import Settings
from modelkin.errors import ModelkinError
from workers.health import HealthFile
from workers.named_worker import NamedWorker

__all__ = ["Worker"]

_MIN_POLL_S, _MAX_POLL_S = 0.1, 1.0
"""Seconds between two polls of the database: after a job, and after a while without one."""
_LOCK_RETRY_S = 0.5
"""Seconds between two attempts to take the lock."""

log = logging.getLogger(__name__)


class Worker:
    """A worker in a thread of its own.

    Args:
        database: an open database, which stays open afterwards.
        jobs: the service with the handlers.
        strict: register before the first job; a failure then ends the worker, with ``failure`` set.
            Otherwise failures are logged and retried.
    """

    def __init__(
        self, settings: Settings, database: Database, jobs: JobService, *, strict: bool = False
    ) -> None:
        self._settings = settings
        self._database = database
        self._jobs = jobs
        self._strict = strict
        self._has_neighbours = strict or settings.processes > 1
        self._health = HealthFile(settings.worker_health_file)
        self._nudged = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.failure: ModelkinError | None = None
        self.abandoned = False
        """Whether a job did not stop in time: it would keep the process alive."""

    def start(self) -> None:
        """Start working, in the background."""
        self._jobs.on_enqueued(self._nudged.set)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for at most ``seconds``; return whether the worker ended by itself."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Queue the running jobs again, and end."""
        self._stopping.set()
        self._nudged.set()
        self._thread.join()

    def _run(self) -> None:
        url = self._database.url
        if url.get_backend_name() != "sqlite":
            self._run_named_workers(alone=False)
            return
        file = Path(str(url.database))
        try:
            # The name that the version before has: it may run beside this one.
            lock = file.with_name(f"{file.stem}.jobs{file.suffix}.lock")
            with _lock(lock, self._stopping, self._health.touch) as locked:
                if locked:
                    self._run_named_workers(alone=True)
        except OSError as error:
            self.failure = Unavailable(f"no jobs are carried out here: {error}")
            log.error("%s", self.failure)

    def _listen(self) -> None:
        """Request a step whenever another process may have enqueued a job."""
        while not self._stopping.is_set():
            try:
                for _ in self._database.follow(CHANNEL, self._stopping):
                    self._nudged.set()
            except Unavailable as error:
                log.info("jobs of other processes may wait for a second: %s", explain(error))
                self._stopping.wait(_MAX_POLL_S)

    def _run_named_workers(self, *, alone: bool) -> None:
        listener = threading.Thread(target=self._listen, name="worker-listens", daemon=True)
        if self._has_neighbours or not alone:
            listener.start()
        while not self._stopping.is_set():
            try:
                worker = NamedWorker(
                    self._settings, self._database, self._jobs, alone=alone, nudge=self._nudged.set
                )
                try:
                    self._work(worker)
                finally:
                    self.abandoned |= not worker.end()
            except Exception as error:
                if self._strict and isinstance(error, ModelkinError):
                    self.failure = error
                    self._stopping.set()
                    continue
                _log_failure(error)
                self._stopping.wait(_MAX_POLL_S)
        if listener.ident is not None:
            listener.join()

    def _work(self, worker: NamedWorker) -> None:
        """Run the steps of a worker under one name, until it stops or needs a new name."""
        if self._strict:
            worker.register()
            self._strict = False
        pause = _MIN_POLL_S
        while not (self._stopping.is_set() or worker.lost):
            self._nudged.clear()
            try:
                begun = worker.step()
                pause = 0.0 if begun else min(_MAX_POLL_S, max(_MIN_POLL_S, pause * 1.5))
                self._health.touch()
            except Exception as error:
                _log_failure(error)
                pause = _MAX_POLL_S
            self._nudged.wait(pause)


def _log_failure(error: Exception) -> None:
    if isinstance(error, Unavailable):
        log.warning("jobs wait: %s", explain(error))
    else:
        log.error("jobs wait, because of a bug", exc_info=error)


@contextmanager
def _lock(file: Path, stopping: threading.Event, on_wait: Callable[[], None]) -> Iterator[bool]:
    """Hold an exclusive file lock, which the kernel releases; False if the worker stops first.

    Args:
        file: created if it does not exist; it stays.
        on_wait: called again and again while another process holds the lock.
    """
    # Without filelock's fallback for file systems without locks: that one outlives the process.
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
                on_wait()
                stopping.wait(_LOCK_RETRY_S)
            else:
                yield True
                return
        yield False
    finally:
        lock.release()
