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
from tests.support.jobs.deployment import Deployment
from workers import session as sessions
from workers.dbos_queue import queue_url
from workers.scheduler import SERVICE
from workers.session import WorkerSession


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A database without processes."""
    made = Deployment(tmp_path, SQLITE)
    yield made
    made.close()


@pytest.fixture
def start_session(deployment: Deployment) -> Iterator[Callable[..., WorkerSession]]:
    """Starts the one session there can be."""
    begun: list[WorkerSession] = []

    def start_session(**settings: Any) -> WorkerSession:
        of_worker = Settings(database_url=deployment.url, **settings)
        begun.append(
            WorkerSession(
                of_worker, deployment.database, deployment.jobs, alone=True, nudge=lambda: None
            )
        )
        return begun[-1]

    yield start_session
    for worker in begun:
        assert worker.end()


def until(worker: WorkerSession, condition: Callable[[], object]) -> None:
    """Step by step until it holds."""
    end = time.monotonic() + 30
    while not condition():
        worker.step()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_nothing_is_opened_before_there_is_a_job(
    deployment: Deployment, start_session: Callable[..., WorkerSession]
) -> None:
    """Without a job a step makes no file and knows no worker; with one, it does both."""
    worker = start_session()
    assert [False, False] == [worker.step(), worker.step()]
    queue = Path(str(queue_url(deployment.database.url).database))
    assert (False, set()) == (queue.exists(), worker.heartbeat.live_workers())
    job = deployment.enqueue("count", steps=0, pause=0.0)
    assert worker.step()
    assert (True, {worker.name}) == (queue.exists(), worker.heartbeat.live_workers())
    until(worker, lambda: deployment.show(job).finished)


def test_what_is_due_again_is_done(
    deployment: Deployment,
    start_session: Callable[..., WorkerSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A periodic kind is enqueued for no tenant, carried out, and not once more in its period."""
    monkeypatch.setattr(sessions, "_STARTUP_DELAY_S", 0.0)
    parameters = {"file": str(deployment.folder / "begun"), "steps": 0, "pause": 0.0}
    deployment.jobs.enqueue_every(timedelta(days=1000), "count", parameters)

    def jobs() -> list[JobRecord]:
        with deployment.database.reading() as session:
            return list(
                deployment.jobs.list(session, deployment.make_tenant(SERVICE), limit=10).items
            )

    worker = start_session()
    until(worker, lambda: [job.state for job in jobs()] == ["succeeded"])
    for _ in range(5):
        worker.step()
    assert 1 == len(jobs())


def test_what_was_claimed_and_never_read_is_done(
    deployment: Deployment,
    start_session: Callable[..., WorkerSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue's database fails between the claim of a turn and its start; then all is well."""
    monkeypatch.setattr(sessions, "_REVIEW_INTERVAL_S", 0.5)
    worker = start_session()
    first = deployment.enqueue("count", steps=0, pause=0.0)
    until(worker, lambda: deployment.show(first).finished)
    system = _get_dbos_instance()._sys_db
    failed: list[str] = []

    def away(*_: Any) -> Any:
        failed.append("a read")
        raise RuntimeError("connection lost")

    with monkeypatch.context() as patched:
        patched.setattr(system, "get_workflow_statuses", away)
        patched.setattr(system, "get_workflow_status", away)
        job = deployment.enqueue("count", steps=0, pause=0.0)
        until(worker, lambda: len(failed) >= 2)
    until(worker, lambda: deployment.show(job).finished)
    after = deployment.show(job)
    assert ("succeeded", 1, 1) == (after.state, after.attempts, deployment.effects(job))


def test_what_this_worker_holds_and_does_not_do_is_done(
    deployment: Deployment,
    start_session: Callable[..., WorkerSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that is running by its row alone is begun again; one that runs indeed is left alone,
    however long it says nothing.
    """
    monkeypatch.setattr(sessions, "_REVIEW_INTERVAL_S", 0.3)
    worker = start_session()
    deaf = deployment.enqueue("deaf", pause=1.5)
    until(worker, lambda: deployment.show(deaf).state == "running")
    job = deployment.enqueue("count", steps=0, pause=0.0)
    real = worker.executor.attempt

    def forgetful(job_id: str, dispatch_no: int) -> None:
        if dispatch_no > 1:
            real(job_id, dispatch_no)
            return
        with deployment.database.writing() as session:
            assert work.claim(session, job_id, dispatch_no, worker.name, datetime.now(UTC))

    monkeypatch.setattr(worker.executor, "attempt", forgetful)
    until(worker, lambda: deployment.show(job).finished and deployment.show(deaf).finished)
    assert ("succeeded", 2) == (deployment.show(job).state, deployment.show(job).dispatch_no)
    assert ("succeeded", [1]) == (deployment.show(deaf).state, deployment.begun(deaf))


def test_what_ended_long_ago_is_cleared_away(
    deployment: Deployment,
    start_session: Callable[..., WorkerSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs are kept as long as the setting says, and those that go are gone from the list."""
    monkeypatch.setattr(sessions, "_STARTUP_DELAY_S", 0.0)
    monkeypatch.setattr(sessions, "_PRUNE_INTERVAL_S", 0.0)
    worker = start_session(job_retention_days=1.5 / 86_400)  # days
    first = deployment.enqueue("count", steps=0, pause=0.0)
    until(worker, lambda: deployment.show(first).finished)

    def listed() -> set[str]:
        with deployment.database.reading() as session:
            return {
                job.id for job in deployment.jobs.list(session, deployment.tenant, limit=10).items
            }

    assert {first.id} == listed()
    until(worker, lambda: not listed())


def test_a_connection_for_nothing_is_given_up(
    deployment: Deployment,
    start_session: Callable[..., WorkerSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A life that had a job and has had none for a while is tired, one that never had is not."""
    monkeypatch.setattr(sessions, "_IDLE_TIMEOUT_S", 2.0)
    worker = start_session()
    time.sleep(2.1)
    worker.step()
    assert not worker.idle
    job = deployment.enqueue("count", steps=10, pause=0.05)
    until(worker, lambda: deployment.show(job).state == "running")
    assert not worker.idle
    until(worker, lambda: worker.idle)
    assert "succeeded" == deployment.show(job).state
