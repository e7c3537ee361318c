"""DBOS as it is used here: a turn is carried out once, and what is known of it can be asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.errors import Unavailable
from app.jobs.queue import Dispatch
from tests.support.backends import SQLITE
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
        queue = DbosQueue(url, worker, execute, concurrency=2, migrate=True)
        queue.start()
        queues.append(queue)
        return queue

    yield opened
    assert queues[-1].close(10)


def wait_for(condition: Callable[[], object]) -> None:
    """Until it holds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


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


def test_what_waits_for_others_has_places_of_its_own(tmp_path: Path) -> None:
    """A tenant whose jobs apart do not end keeps neither its other jobs nor another tenant's jobs
    apart from their places, nor takes more than all but one of these.
    """
    begun: list[str] = []
    over = threading.Event()

    def execute(job_id: str, _: int) -> None:
        begun.append(job_id)
        if job_id.startswith("slow"):
            over.wait(20)

    url = make_url(SQLITE.url(tmp_path))
    queue = DbosQueue(url, "w", execute, concurrency=4, hub_kinds={"ingest"}, migrate=True)
    queue.start()
    try:
        for number in range(3):
            queue.enqueue(Dispatch(f"slow{number}", 1, 7, None, "ingest"))
        wait_for(lambda: begun)
        queue.enqueue(Dispatch("mine", 1, 7, None, "cluster"))
        queue.enqueue(Dispatch("theirs", 1, 8, None, "ingest"))
        wait_for(lambda: len(begun) == 3)
        assert {"mine", "theirs"} == {name for name in begun if not name.startswith("slow")}
        over.set()
        wait_for(lambda: len(begun) == 5)
    finally:
        over.set()
        assert queue.close(10)


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
