"""Which workers live: each says so in the database, and hears whether the others do.

Whoever says nothing while this worker looks again and again is silent. Looks are counted, and no
clock is compared: a database that was away, or a machine whose time is wrong, silences nobody.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from app.errors import Unavailable
from app.infra.db.database import Database
from app.jobs import queue

__all__ = ["LOOKS", "Heartbeat"]

LOOKS = 6
"""Looks without a word after which a worker is silent: so many make up the lease."""

log = logging.getLogger(__name__)


class Heartbeat:
    """The pulse of this worker, beating in a thread of its own, and what it hears of others.

    Args:
        database: the truth.
        worker: the name of this worker, which no other ever has.
        lease: seconds of silence after which others may take over what a worker held.
        alone: no other worker can live, because this one holds what only one can.
        on_silence: called, in that thread, when others were found silent.
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
        self._every = lease / LOOKS
        self._alone = alone
        self._on_silence = on_silence
        self._heard: dict[str, tuple[int, int]] = {}
        self._known = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = threading.Event()
        """Others took this worker for dead: nothing that it does counts any more."""

    def start(self) -> None:
        """Be known, unless that is so, and beat where there can be others to hear it.

        Raises:
            Unavailable: the database cannot serve this now.
        """
        if self._known:
            return
        with self._database.writing() as session:
            if self._alone:
                queue.remove_workers(session, queue.heartbeats(session))
            queue.add_worker(session, self._worker, datetime.now(UTC))
        self._known = True
        if not self._alone:
            self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
            self._thread.start()

    def living(self) -> set[str]:
        """The workers that are known, this one among them."""
        with self._database.reading() as session:
            return set(queue.heartbeats(session))

    def stop(self) -> None:
        """Beat no more, and be known no more: what this worker held is free at once."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        if not self._known:
            return
        try:
            with self._database.writing() as session:
                queue.remove_workers(session, _only(queue.heartbeats(session), self._worker))
        except Unavailable as error:
            log.info("others will have to find out that this worker is gone: %s", error)

    def _beat(self) -> None:
        while not self._ending.wait(self._every):
            try:
                with self._database.writing() as session:
                    known = queue.heartbeat(session, self._worker)
                if not known:
                    self.lost.set()
                    return
                self.check_others()
            except Unavailable as error:
                log.debug("no pulse now: %s", error)

    def check_others(self) -> None:
        """Look once at the others; know those no more that are silent."""
        with self._database.reading() as session:
            beats = queue.heartbeats(session)
        silent = {}
        for worker, beat in beats.items():
            last, looks = self._heard.get(worker, (None, 0))
            looks = looks + 1 if beat == last else 0
            self._heard[worker] = beat, looks
            if looks >= LOOKS and worker != self._worker:
                silent[worker] = beat
        self._heard = {worker: self._heard[worker] for worker in beats}
        if not silent:
            return
        with self._database.writing() as session:
            gone = queue.remove_workers(session, silent)
        for worker in gone:
            log.warning("worker %s is silent: what it held is taken over", worker)
        if gone:
            self._on_silence()


def _only(beats: dict[str, int], worker: str) -> dict[str, int]:
    return {name: beat for name, beat in beats.items() if name == worker}
