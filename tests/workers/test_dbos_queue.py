"""DBOS as it is used here: a turn is carried out once, and what is known of it can be asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.errors import Unavailable
from app.jobs.queue import Dispatch
from app.jobs.records import QueueName
from tests.support.backends import SQLITE
from tests.support.servers.waiting import wait_for
from workers.dbos_queue import DbosQueue, DispatchState, queue_url

Open = Callable[[str, list[tuple[str, int]]], DbosQueue]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens the queue beside one SQLite file, as a worker of some name; one at a time."""
    queues: list[DbosQueue] = []

    def opened(worker: str, done: list[tuple[str, int]]) -> DbosQueue:
        def execute(job_id: str, dispatch_no: int) -> None:
            done.append((job_id, dispatch_no))

        url = make_url(SQLITE.url(tmp_path))
        queue = DbosQueue(url, worker, execute, concurrency=4, migrate=True)
        queue.start()
        queues.append(queue)
        return queue

    yield opened
    assert queues[-1].close(10)


def test_a_turn_is_carried_out_once(opened: Open) -> None:
    """Handed over again and again, in the middle and in the end, it runs once; the next turn of
    the same job is another one. What has ended can be forgotten.
    """
    done: list[tuple[str, int]] = []
    queue = opened("w", done)
    first, second, never = (
        Dispatch("j", 1, 7, None),
        Dispatch("j", 2, 7, None),
        Dispatch("k", 1, 8, None),
    )
    for offer in (first, first, second, first):
        queue.enqueue(offer)
    wait_for(lambda: all(s and s.ended for s in queue.states([first, second]).values()))
    queue.enqueue(first)
    expected: dict[Dispatch, Any] = {
        first: DispatchState(True, None),
        second: DispatchState(True, None),
        never: None,
    }
    assert expected == queue.states([first, second, never])
    assert [("j", 1), ("j", 2)] == sorted(done)
    queue.prune(timedelta(hours=1))
    assert expected == queue.states([first, second, never])
    queue.prune(timedelta(seconds=-1))
    assert {first: None, second: None} == queue.states([first, second])


@dataclass
class Places:
    """A queue whose jobs named ``slow...`` do not end until :meth:`release`."""

    queue: DbosQueue
    begun: list[str]
    release: threading.Event

    def enqueue(self, kind: str, tenant: int, *names: str) -> None:
        """Enqueue jobs of a kind and a tenant."""
        for name in names:
            self.queue.enqueue(Dispatch(name, 1, tenant, None, kind))

    def until(self, *names: str) -> None:
        """Wait until exactly these jobs have begun."""
        wait_for(lambda: set(names) <= set(self.begun))
        time.sleep(0.5)  # more than two polls: any other job would have begun
        assert set(names) == set(self.begun)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A queue of four places, beside those of short jobs."""
    begun: list[str] = []
    release = threading.Event()

    def execute(job_id: str, _: int) -> None:
        begun.append(job_id)
        if job_id.startswith("slow"):
            release.wait(20)

    url = make_url(SQLITE.url(tmp_path))
    queues: dict[str, QueueName] = {"ingest": "hubs", "events": "short"}
    queue = DbosQueue(url, "w", execute, concurrency=4, queues=queues, migrate=True)
    queue.start()
    try:
        yield Places(queue, begun, release)
    finally:
        release.set()
        assert queue.close(10)


def test_what_waits_for_others_has_places_of_its_own(places: Places) -> None:
    """A tenant whose jobs apart do not end keeps neither its other jobs nor another tenant's jobs
    apart from their places, nor takes more than all but one of these.
    """
    places.enqueue("ingest", 7, "slow0", "slow1", "slow2")
    wait_for(lambda: places.begun)
    (mine,) = places.begun
    places.enqueue("cluster", 7, "mine")
    places.enqueue("ingest", 8, "theirs")
    places.until(mine, "mine", "theirs")
    places.release.set()
    wait_for(lambda: len(places.begun) == 5)


def test_a_tenant_leaves_a_place_of_each_queue_to_others(places: Places) -> None:
    """Its long jobs wait for each other, while those of another tenant come and go."""
    places.enqueue("cluster", 7, *(f"slow{number}" for number in range(5)))
    wait_for(lambda: places.begun)
    (mine,) = places.begun
    places.enqueue("cluster", 8, "a", "b", "c")
    places.until(mine, "a", "b", "c")


def test_short_jobs_wait_for_no_others(places: Places) -> None:
    """Where all other places are taken they begin at once, those of several tenants."""
    for number, kind in enumerate(["cluster", "cluster", "ingest", "ingest"]):
        places.enqueue(kind, number, f"slow{number}")
    full = [f"slow{number}" for number in range(4)]
    places.until(*full)
    places.enqueue("cluster", 9, "waits")
    places.enqueue("events", 1, "slow own", "slow own too", "slow own waits")
    places.enqueue("events", 9, "theirs")
    wait_for(lambda: "theirs" in places.begun)
    time.sleep(0.5)
    own = {name for name in places.begun if "own" in name}
    assert (2, {*full, *own, "theirs"}) == (len(own), set(places.begun))


def test_one_process_has_one_queue(opened: Open) -> None:
    """A second one is refused while the first is open, and works once that is closed."""
    queue = opened("first", [])
    with pytest.raises(Unavailable, match="still being closed"):
        opened("second", [])
    assert queue.close(10)
    done: list[tuple[str, int]] = []
    opened("second", done).enqueue(Dispatch("j", 1, 7, None))
    wait_for(lambda: done)


def test_a_file_that_is_no_queue_is_named(opened: Open, tmp_path: Path) -> None:
    """What keeps the queue from starting is one line, and the next try is free to succeed."""
    url = queue_url(make_url(SQLITE.url(tmp_path)))
    assert "m.jobs.db" == Path(str(url.database)).name
    Path(str(url.database)).write_text("no database" * 500)
    with pytest.raises(Unavailable, match="the job queue cannot start: file is not a database"):
        opened("w", [])
    Path(str(url.database)).unlink()
    opened("w", [])


def test_the_queue_is_in_the_database_or_beside_it() -> None:
    """On Postgres it is the same database, on SQLite a file of its own."""
    url = make_url("postgresql+psycopg://u:p@h/db")
    assert url == queue_url(url)
    assert "/x/y.jobs.db" == queue_url(make_url("sqlite:////x/y.db")).database
