"""``Heartbeat``: shows that this worker is alive, and detects dead workers.

A worker is dead when its heartbeat has not changed over several checks. The checks are counted and
no clocks are compared. So neither a database outage nor a wrong clock makes a worker look dead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from app.infra.db.database import Database
from app.infra.errors import Unavailable, explain
from app.jobs import queue

__all__ = ["CHECKS_PER_LEASE", "Heartbeat"]

CHECKS_PER_LEASE = 6
"""Checks without a new heartbeat after which a worker is dead."""

log = logging.getLogger(__name__)


class Heartbeat:
    """The heartbeat of this worker, in a thread of its own, and its checks of other workers.

    Args:
        worker: the unique name of this worker.
        lease: seconds without a heartbeat after which other workers may take over a worker's jobs.
        alone: whether this worker holds an exclusive lock, so that no other worker is alive.
        on_silence: called, in that thread, when dead workers were found.
    """

    def __init__(
        self,
        database: Database,
        worker: str,
        *,
        lease: float,
        alone: bool,
        on_silence: Callable[[], None],
    ) -> None:
        self._database = database
        self._worker = worker
        self._every = lease / CHECKS_PER_LEASE
        self._alone = alone
        self._on_silence = on_silence
        self._last_seen: dict[str, tuple[int, int]] = {}
        self._registered = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = threading.Event()
        """Set once another worker has removed this one: other workers take its jobs over."""

    def start(self) -> None:
        """Register this worker, once, and start the heartbeat unless it is alone.

        Raises:
            Unavailable: the database cannot serve this now.
        """
        if self._registered:
            return
        with self._database.writing() as session:
            if self._alone:
                queue.remove_workers(session, queue.heartbeats(session))
            queue.add_worker(session, self._worker, datetime.now(UTC))
        self._registered = True
        log.info("worker %s takes jobs", self._worker)
        if not self._alone:
            self._thread = threading.Thread(
                target=self._send_heartbeat, name="heartbeat", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop the heartbeat and unregister, so that this worker's jobs are free at once."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if not self._registered:
            return
        try:
            with self._database.writing() as session:
                queue.remove_workers(session, _only(queue.heartbeats(session), self._worker))
        except Unavailable as error:
            log.info("this worker is not unregistered; its lease will expire: %s", explain(error))

    def _send_heartbeat(self) -> None:
        while not self._ending.wait(self._every):
            try:
                with self._database.writing() as session:
                    known = queue.heartbeat(session, self._worker)
                if not known:
                    self.lost.set()
                    return
                self.check_others()
            except Unavailable as error:
                log.debug("no heartbeat now: %s", error)

    def check_others(self) -> None:
        """Check the other workers once, and unregister the dead ones."""
        with self._database.reading() as session:
            counts = queue.heartbeats(session)
        silent = {}
        for worker, count in counts.items():
            last, checks = self._last_seen.get(worker, (None, 0))
            checks = checks + 1 if count == last else 0
            self._last_seen[worker] = count, checks
            if checks >= CHECKS_PER_LEASE and worker != self._worker:
                silent[worker] = count
        self._last_seen = {worker: self._last_seen[worker] for worker in counts}
        if not silent:
            return
        with self._database.writing() as session:
            gone = queue.remove_workers(session, silent)
        for worker in gone:
            log.warning("worker %s is dead: its jobs are taken over", worker)
        if gone:
            self._on_silence()


def _only(counts: dict[str, int], worker: str) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name == worker}
