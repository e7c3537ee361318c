"""What a worker does step by step, here in the process of the test and on SQLite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dbos._dbos import _get_dbos_instance

from app.jobs import queue as work
from app.jobs.records import JobRecord
from app.settings import Settings
from tests.support.backends import SQLITE
from tests.support.worker_harness import Shop
from workers import session as lives
from workers.dbos_queue import beside
from workers.scheduler import SERVICE
from workers.session import WorkerSession


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A database without processes."""
    made = Shop(tmp_path, SQLITE)
    yield made
    made.close()


@pytest.fixture
def live(shop: Shop) -> Iterator[Callable[..., WorkerSession]]:
    """Begins the one life there can be."""
    begun: list[WorkerSession] = []

    def live(**settings: Any) -> WorkerSession:
        of_worker = Settings(database_url=shop.url, **settings)
        begun.append(
            WorkerSession(of_worker, shop.database, shop.jobs, alone=True, nudge=lambda: None)
        )
        return begun[-1]

    yield live
    for life in begun:
        assert life.end()


def until(life: WorkerSession, condition: Callable[[], object]) -> None:
    """Step by step until it holds."""
    end = time.monotonic() + 30
    while not condition():
        life.step()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_nothing_is_opened_before_there_is_a_job(
    shop: Shop, live: Callable[..., WorkerSession]
) -> None:
    """Without a job a step makes no file and knows no worker; with one, it does both."""
    life = live()
    assert [False, False] == [life.step(), life.step()]
    queue = Path(str(beside(shop.database.url).database))
    assert (False, set()) == (queue.exists(), life._pulse.living())
    job = shop.enqueue("count", steps=0, pause=0.0)
    assert life.step()
    assert (True, {life.name}) == (queue.exists(), life._pulse.living())
    until(life, lambda: shop.show(job).finished)


def test_what_is_due_again_is_done(
    shop: Shop, live: Callable[..., WorkerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A periodic kind is enqueued for no tenant, carried out, and not once more in its period."""
    monkeypatch.setattr(lives, "_BEGIN", 0.0)
    parameters = {"file": str(shop.folder / "begun"), "steps": 0, "pause": 0.0}
    shop.jobs.every(timedelta(days=1000), "count", parameters)

    def jobs() -> list[JobRecord]:
        with shop.database.reading() as session:
            return list(shop.jobs.list(session, shop.make_tenant(SERVICE), limit=10).items)

    life = live()
    until(life, lambda: [job.state for job in jobs()] == ["succeeded"])
    for _ in range(5):
        life.step()
    assert 1 == len(jobs())


def test_what_was_claimed_and_never_read_is_done(
    shop: Shop, live: Callable[..., WorkerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue's database fails between the claim of a turn and its start; then all is well."""
    monkeypatch.setattr(lives, "_REVIEW", 0.5)
    life = live()
    first = shop.enqueue("count", steps=0, pause=0.0)
    until(life, lambda: shop.show(first).finished)
    system = _get_dbos_instance()._sys_db
    failed: list[str] = []

    def away(*_: Any) -> Any:
        failed.append("a read")
        raise RuntimeError("connection lost")

    with monkeypatch.context() as patched:
        patched.setattr(system, "get_workflow_statuses", away)
        patched.setattr(system, "get_workflow_status", away)
        job = shop.enqueue("count", steps=0, pause=0.0)
        until(life, lambda: len(failed) >= 2)
    until(life, lambda: shop.show(job).finished)
    after = shop.show(job)
    assert ("succeeded", 1, 1) == (after.state, after.attempts, shop.effects(job))


def test_what_this_worker_holds_and_does_not_do_is_done(
    shop: Shop, live: Callable[..., WorkerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is running by its row alone is begun again; one that runs indeed is left alone,
    however long it says nothing.
    """
    monkeypatch.setattr(lives, "_REVIEW", 0.3)
    life = live()
    deaf = shop.enqueue("deaf", pause=1.5)
    until(life, lambda: shop.show(deaf).state == "running")
    job = shop.enqueue("count", steps=0, pause=0.0)
    real = life._bench._carry_out

    def forgetful(job_id: str, dispatch_no: int) -> None:
        if dispatch_no > 1:
            real(job_id, dispatch_no)
            return
        with shop.database.writing() as session:
            assert work.begin(session, job_id, dispatch_no, life.name, datetime.now(UTC))

    monkeypatch.setattr(life._bench, "_carry_out", forgetful)
    until(life, lambda: shop.show(job).finished and shop.show(deaf).finished)
    assert ("succeeded", 2) == (shop.show(job).state, shop.show(job).dispatch_no)
    assert ("succeeded", [1]) == (shop.show(deaf).state, shop.begun(deaf))


def test_what_ended_long_ago_is_cleared_away(
    shop: Shop, live: Callable[..., WorkerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs are kept as long as the setting says, and those that go are gone from the list."""
    monkeypatch.setattr(lives, "_BEGIN", 0.0)
    monkeypatch.setattr(lives, "_TIDY", 0.0)
    life = live(job_retention_days=1.5 / 86_400)  # days
    first = shop.enqueue("count", steps=0, pause=0.0)
    until(life, lambda: shop.show(first).finished)

    def listed() -> set[str]:
        with shop.database.reading() as session:
            return {job.id for job in shop.jobs.list(session, shop.tenant, limit=10).items}

    assert {first.id} == listed()
    until(life, lambda: not listed())


def test_a_connection_for_nothing_is_given_up(
    shop: Shop, live: Callable[..., WorkerSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life that had a job and has had none for a while is tired, one that never had is not."""
    monkeypatch.setattr(lives, "_REST", 0.2)
    life = live()
    time.sleep(0.3)
    life.step()
    assert not life.tired
    job = shop.enqueue("count", steps=10, pause=0.05)
    until(life, lambda: shop.show(job).state == "running")
    assert not life.tired
    until(life, lambda: life.tired)
    assert "succeeded" == shop.show(job).state
