"""What a worker does step by step, here in the process of the test and on SQLite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.infra.db.database import Writer
from app.infra.errors import Unavailable
from app.jobs import queue as work
from app.jobs.records import JobRecord
from app.settings import Settings
from tests.support.backends import SQLITE
from tests.support.jobs.claims import claim
from tests.support.jobs.deployment import Deployment
from tests.support.jobs.handlers import watch
from workers import named_worker
from workers.named_worker import NamedWorker
from workers.scheduler import SERVICE


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A database without processes."""
    made = Deployment(tmp_path, SQLITE)
    yield made
    made.close()


@pytest.fixture
def start_worker(deployment: Deployment) -> Iterator[Callable[..., NamedWorker]]:
    """Start the one named worker there can be."""
    begun: list[NamedWorker] = []

    def start_worker(**settings: Any) -> NamedWorker:
        of_worker = Settings(database_url=deployment.url, **settings)
        begun.append(
            NamedWorker(
                of_worker, deployment.database, deployment.jobs, alone=True, nudge=lambda: None
            )
        )
        return begun[-1]

    yield start_worker
    for worker in begun:
        assert worker.end()


def until(worker: NamedWorker, condition: Callable[[], object]) -> None:
    """Step by step until it holds."""
    end = time.monotonic() + 30
    while not condition():
        worker.step()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_nothing_is_written_before_there_is_a_job(
    deployment: Deployment, start_worker: Callable[..., NamedWorker]
) -> None:
    """Without a job a step registers no worker; with one, it does."""
    worker = start_worker()
    assert [False, False] == [worker.step(), worker.step()]
    assert set() == deployment.registered_workers()
    job = deployment.enqueue("count", steps=0, pause=0.0)
    assert worker.step()
    assert {worker.name} == deployment.registered_workers()
    until(worker, lambda: deployment.show(job).finished)


def test_what_is_due_again_is_done(
    deployment: Deployment,
    start_worker: Callable[..., NamedWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A periodic kind is enqueued for no tenant, carried out, and not once more in its period."""
    monkeypatch.setattr(named_worker, "_STARTUP_DELAY_S", 0.0)
    parameters = {"file": str(deployment.folder / "begun"), "steps": 0, "pause": 0.0}
    deployment.jobs.enqueue_every(timedelta(days=1000), "count", parameters)

    def jobs() -> list[JobRecord]:
        with deployment.database.reading() as session:
            return list(
                deployment.jobs.list(session, deployment.make_tenant(SERVICE), limit=10).items
            )

    worker = start_worker()
    until(worker, lambda: [job.state for job in jobs()] == ["succeeded"])
    for _ in range(5):
        worker.step()
    assert 1 == len(jobs())


def test_periodic_tasks_do_not_wait_for_a_start(
    deployment: Deployment, start_worker: Callable[..., NamedWorker]
) -> None:
    """They run at the first step, as verdicts on the first models follow from them; jobs wait."""
    ran = list[int]()
    deployment.jobs.run_every(timedelta(days=1000), "task", lambda: ran.append(1))
    deployment.jobs.enqueue_every(timedelta(days=1000), "count", {})
    worker = start_worker()
    for _ in range(3):
        worker.step()
    assert [1] == ran
    with deployment.database.reading() as session:
        service = deployment.make_tenant(SERVICE)
        assert () == tuple(deployment.jobs.list(session, service, limit=10).items)


def test_a_claim_whose_answer_was_lost_is_made_good(
    deployment: Deployment,
    start_worker: Callable[..., NamedWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database fails right after it has committed a claim; the next step begins the job, which
    has made one attempt.
    """
    worker = start_worker()
    worker.register()
    job = deployment.enqueue("count", steps=0, pause=0.0)
    real = deployment.database.writing

    @contextmanager
    def lost() -> Iterator[Writer]:
        with real() as session:
            yield session
        raise Unavailable("the connection was lost in the commit")

    with monkeypatch.context() as patched:
        patched.setattr(deployment.database, "writing", lost)
        with pytest.raises(Unavailable):
            worker.step()
    assert ("running", []) == (deployment.show(job).state, deployment.begun(job))
    until(worker, lambda: deployment.show(job).finished)
    after = deployment.show(job)
    assert ("succeeded", 1, 1) == (after.state, after.attempts, deployment.effects(job))


@pytest.mark.slow
def test_what_this_worker_holds_and_does_not_do_is_done(
    deployment: Deployment,
    start_worker: Callable[..., NamedWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that is running by its row alone is begun again; one that runs indeed is left alone,
    however long it says nothing.
    """
    monkeypatch.setattr(named_worker, "_REVIEW_INTERVAL_S", 0.3)
    worker = start_worker()
    deaf = deployment.enqueue("deaf", pause=1.5)
    until(worker, lambda: deployment.show(deaf).state == "running")
    job = deployment.enqueue("count", steps=0, pause=0.0)
    with deployment.database.writing() as session:
        assert claim(session, job, worker.name)
    until(worker, lambda: deployment.show(job).finished and deployment.show(deaf).finished)
    assert ("succeeded", [1]) == (deployment.show(job).state, deployment.begun(job))
    assert ("succeeded", [1]) == (deployment.show(deaf).state, deployment.begun(deaf))


def test_a_dead_workers_job_is_taken_over_at_once(
    deployment: Deployment, start_worker: Callable[..., NamedWorker]
) -> None:
    """The one process that works on SQLite knows that no other is alive."""
    job = deployment.enqueue("count", steps=0, pause=0.0)
    with deployment.database.writing() as session:
        work.add_worker(session, "dead", datetime.now(UTC))
        assert claim(session, job, "dead")
    worker = start_worker()
    assert worker.step()
    until(worker, lambda: deployment.show(job).finished)
    after = deployment.show(job)
    assert ("succeeded", [2], worker.name) == (after.state, deployment.begun(job), after.worker)


@pytest.mark.slow
def test_what_ended_long_ago_is_cleared_away(
    deployment: Deployment,
    start_worker: Callable[..., NamedWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs are kept as long as the setting says, and those that go are gone from the list."""
    monkeypatch.setattr(named_worker, "_STARTUP_DELAY_S", 0.0)
    monkeypatch.setattr(named_worker, "_PRUNE_INTERVAL_S", 0.0)
    worker = start_worker(job_retention_days=1.5 / 86_400)  # days
    first = deployment.enqueue("count", steps=0, pause=0.0)
    until(worker, lambda: deployment.show(first).finished)

    def listed() -> set[str]:
        with deployment.database.reading() as session:
            return {
                job.id for job in deployment.jobs.list(session, deployment.tenant, limit=10).items
            }

    assert {first.id} == listed()
    until(worker, lambda: not listed())


def test_backfills_give_way(
    deployment: Deployment, start_worker: Callable[..., NamedWorker]
) -> None:
    """One begins where no job of a hub waits, and takes none of their places."""
    deployment.jobs.register("of_a_hub", watch, queue="hubs")
    deployment.jobs.register("backfill", watch, queue="backfills")
    worker = start_worker(job_concurrency=4)
    old, first, second = map(deployment.enqueue, ("backfill", "of_a_hub", "of_a_hub"))

    def states() -> list[str]:
        return [deployment.show(job).state for job in (old, first, second)]

    assert worker.step()
    assert not worker.step()
    assert ["queued", "running", "queued"] == states()
    (deployment.folder / first.id).touch()
    until(worker, lambda: "running" == deployment.show(second).state)
    assert worker.step()
    assert ["running", "succeeded", "running"] == states()
