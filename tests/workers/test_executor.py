"""One job claimed by a worker, on each database: its records and refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from app.infra.db.database import Database, Writer
from app.infra.errors import Conflict, Unavailable
from app.jobs import queue
from app.jobs.claim import JobClaim, LeaseLost
from app.jobs.queue import MAX_ATTEMPTS
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, JobService, Progress, Unfinished
from modelkin.errors import JobCancelled
from tests.support.jobs.claims import begin, claim, known
from tests.support.jobs.deployment import Deployment
from tests.support.jobs.execution import Own, away, execute
from tests.support.jobs.records import error_of, progress_of
from workers.executor import JobExecutor


@pytest.fixture
def deployment(idle_deployment: Deployment) -> Deployment:
    """A database whose workers are these tests."""
    return idle_deployment


def test_a_job_is_one_workers(deployment: Deployment) -> None:
    """No second worker gets it while the first is alive, nor does the first one once more."""
    job = begin(deployment, deployment.enqueue("count"), known(deployment, "first"))
    for worker in ("second", "first"):
        with deployment.database.writing() as session:
            assert claim(session, job, worker) is None
    assert ("first", 1) == (deployment.show(job).worker, deployment.show(job).attempts)


def test_a_claim_that_nobody_heard_of_is_one(deployment: Deployment) -> None:
    """The worker asks again, has the job, carries it out, and has made one attempt; what it is
    carrying out it is not given again.
    """
    tenant = deployment.make_tenant("lost answers")
    job = deployment.enqueue("count", tenant=tenant)
    worker = known(deployment, "lost answers")
    begin(deployment, job, worker)

    def ask(*held: str) -> JobRecord | None:
        with deployment.database.writing() as session:
            now = datetime.now(UTC)
            return queue.claim(session, worker, tenant.id, ["count"], now, held=held)

    assert ask(job.id) is None
    again = ask()
    assert again is not None
    JobExecutor(deployment.database, Own(lambda job, progress: {"ok": 1})).execute(again)
    after = deployment.show(job)
    assert ("succeeded", {"ok": 1}, 1) == (after.state, after.result, after.attempts)


class Unheard:
    """A database that makes one change, and loses the connection before it can say so."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        with self._database.writing() as session:
            yield session
        self.lost += 1
        if self.lost == 1:
            raise Unavailable("the connection was lost in the commit")


def test_an_end_that_nobody_heard_of_stays(deployment: Deployment) -> None:
    """A job that has succeeded is not begun again where its worker lost the answer."""
    job = begin(deployment, deployment.enqueue("count"), known(deployment, "deaf to ends"))
    database: Any = Unheard(deployment.database)
    JobExecutor(database, Own(lambda job, progress: {"ok": 1})).execute(job)
    after = deployment.show(job)
    assert ("succeeded", {"ok": 1}, 1) == (after.state, after.result, after.attempts)


def test_who_lost_a_job_changes_nothing_about_it(deployment: Deployment) -> None:
    """Progress, end, error and putting back are refused, and the effects with them."""
    lost = begin(deployment, deployment.enqueue("count"), "an unregistered worker")
    held = begin(deployment, lost, known(deployment, "heir"))
    before = deployment.show(held)
    without = JobClaim(deployment.database, lost, threading.Event())
    with pytest.raises(LeaseLost):
        without.progress(1, 2)
    with pytest.raises(LeaseLost):
        without.finish({})
    without.fail("internal_error", "a bug")
    without.requeue()
    without.retry(Unavailable("not now"), 1.0, counts=True)
    assert before == deployment.show(held)


def test_the_effects_of_who_lost_a_job_are_undone(deployment: Deployment) -> None:
    """A worker that was taken for dead while it worked writes nothing in the end."""
    job = deployment.enqueue("count")

    def handler(job: JobRecord, progress: Progress) -> Any:
        begin(deployment, job, known(deployment, "faster"))

        def finish(session: Writer) -> Mapping[str, Any]:
            session.execute(text("INSERT INTO effects VALUES (:job)"), {"job": job.id})
            return {}

        return finish

    after = execute(deployment, job, handler, "slower")
    assert ("running", "faster", 0) == (after.state, after.worker, deployment.effects(job))


def test_a_job_cancelled_at_its_end_has_no_effect(deployment: Deployment) -> None:
    """Whatever the handler did, what it leaves to the end does not come about."""
    job = deployment.enqueue("count", dedup_key="k")

    def handler(job: JobRecord, progress: Progress) -> Any:
        deployment.cancel(job)

        def finish(session: Writer) -> Mapping[str, Any]:
            session.execute(text("INSERT INTO effects VALUES (:job)"), {"job": job.id})
            return {}

        return finish

    after = execute(deployment, job, handler)
    assert ("cancelled", None, 0) == (after.state, after.result, deployment.effects(job))
    assert deployment.enqueue("count", dedup_key="k").id != job.id


def test_asked_again_while_it_dies_there_is_another(deployment: Deployment) -> None:
    """The key of a running job is free as soon as it is cancelled."""
    dying = begin(
        deployment, deployment.enqueue("count", dedup_key="d"), known(deployment, "slow to stop")
    )
    assert dying.id == deployment.enqueue("count", dedup_key="d").id
    assert ("running", True) == (
        deployment.cancel(dying).state,
        deployment.show(dying).cancel_requested,
    )
    another = deployment.enqueue("count", dedup_key="d")
    assert (True, "queued", False) == (
        another.id != dying.id,
        another.state,
        another.cancel_requested,
    )
    JobClaim(deployment.database, dying, threading.Event()).fail("conflict", "too late")
    assert "cancelled" == deployment.show(dying).state
    assert another.id == deployment.enqueue("count", dedup_key="d").id


def test_an_effect_that_fails_fails_the_job(deployment: Deployment) -> None:
    """An error while the effects are written is the job's, and undoes what was written."""
    job = deployment.enqueue("count")

    def finish(session: Writer) -> Mapping[str, Any]:
        session.execute(text("INSERT INTO effects VALUES (:job)"), {"job": job.id})
        raise Conflict("the space has changed")

    after = execute(deployment, job, lambda job, progress: finish)
    assert ("failed", "conflict", 0) == (
        after.state,
        error_of(after)["code"],
        deployment.effects(job),
    )


def test_a_store_that_stays_away_is_the_error_in_the_end(deployment: Deployment) -> None:
    """After so many attempts, with growing pauses, the job fails and says how many."""
    job = deployment.enqueue("count")
    pauses = []
    for _ in range(MAX_ATTEMPTS):
        begun = datetime.now(UTC)
        after = execute(deployment, job, away)
        if after.not_before is not None and not after.finished:
            pauses.append(round((after.not_before - begun).total_seconds()))
    assert [1, 5, 30, 120] == pauses
    error = {"code": "unavailable", "detail": f"Redis is away (after {MAX_ATTEMPTS} attempts)"}
    assert ("failed", error, MAX_ATTEMPTS) == (after.state, after.error, after.attempts)


def test_a_job_that_kills_its_workers_fails(deployment: Deployment) -> None:
    """After so many workers fell silent over it, it is not begun again."""
    job = deployment.enqueue("count")
    for number in range(MAX_ATTEMPTS):
        begin(deployment, job, f"victim {number}")
    begun: list[JobRecord] = []

    def handler(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        begun.append(job)
        return {}

    after = execute(deployment, job, handler)
    assert ("failed", "worker_lost", []) == (after.state, error_of(after)["code"], begun)
    assert f"{MAX_ATTEMPTS} attempts" in error_of(after)["detail"]
    assert "victim" not in error_of(after)["detail"]


def test_a_job_cancelled_while_nobody_held_it_ends(deployment: Deployment) -> None:
    """The worker that takes over from a dead one sees that it was cancelled."""
    job = begin(deployment, deployment.enqueue("count"), "dead")
    deployment.cancel(job)
    after = execute(deployment, job, away)
    assert ("cancelled", "job_cancelled") == (after.state, error_of(after)["code"])


def test_an_unknown_kind_waits_for_a_worker_that_knows_it(deployment: Deployment) -> None:
    """Workers of two versions share a database; the older one leaves the job to the newer."""
    job = deployment.enqueue("patient", until=1)
    after = execute(deployment, job, away)
    assert ("queued", "unavailable") == (after.state, error_of(after)["code"])
    assert "knows no jobs of kind 'patient'" in error_of(after)["detail"]


def test_progress_is_recorded_now_and_then(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may report as often as it likes; its last report is kept when it ends."""
    written: list[int] = []

    @contextmanager
    def counting() -> Iterator[Writer]:
        with real() as session:
            yield session
        written.append(progress_of(deployment.show(job))["done"])

    job = deployment.enqueue("count")
    real = deployment.database.writing

    def handler(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        monkeypatch.setattr(deployment.database, "writing", counting)
        for done in range(10_000):
            progress(done, 10_000, "counting")
        return {}

    after = execute(deployment, job, handler)
    assert ("succeeded", 9_999) == (after.state, progress_of(after)["done"])
    assert written[0] == 0
    assert len(written) < 20


def test_a_stopping_worker_puts_its_job_back(deployment: Deployment) -> None:
    """The running job is interrupted, goes to another worker, and no attempt was lost."""
    job = begin(deployment, deployment.enqueue("count"), "w")
    heard = threading.Event()

    def handler(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        heard.set()
        while True:
            progress(0, 0)

    executor = JobExecutor(deployment.database, Own(handler))
    thread = threading.Thread(target=executor.execute, args=(job,))
    thread.start()
    assert heard.wait(10)
    executor.stopping.set()
    thread.join()
    after = deployment.show(job)
    assert ("queued", 0, None) == (after.state, after.attempts, after.worker)


@pytest.mark.parametrize("in_the_hook", [False, True])
def test_an_unfinished_job_is_queued_again(deployment: Deployment, in_the_hook: bool) -> None:
    """It goes on as often as it wants, writes nothing before its end, and keeps its key."""
    slices: list[str] = []

    def handler(job: JobRecord, progress: Progress) -> CommitHook:
        slices.append(job.id)
        unfinished = len(slices) <= MAX_ATTEMPTS
        if unfinished and not in_the_hook:
            raise Unfinished

        def finish(session: Writer) -> Mapping[str, Any]:
            session.execute(text("INSERT INTO effects VALUES (:job)"), {"job": job.id})
            if unfinished:
                raise Unfinished
            return {}

        return finish

    job = deployment.enqueue("count", dedup_key="one")
    for _ in range(MAX_ATTEMPTS):
        found = execute(deployment, job, handler)
        assert ("queued", 0) == (found.state, found.attempts)
        assert job.id == deployment.enqueue("count", dedup_key="one").id
        assert 0 == deployment.effects(job)
    assert "succeeded" == execute(deployment, job, handler).state
    assert 1 == deployment.effects(job)


def test_cancelling_reaches_a_handler_as_an_error(deployment: Deployment) -> None:
    """``progress`` raises JobCancelled, so that what the handler opened is closed."""
    seen: list[type[BaseException]] = []

    def handler(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        deployment.cancel(job)
        try:
            progress(1, 2)
        except BaseException as error:
            seen.append(type(error))
            raise
        return {}

    assert "cancelled" == execute(deployment, deployment.enqueue("count"), handler).state
    assert [JobCancelled] == seen


def test_a_job_ends_after_its_time(deployment: Deployment) -> None:
    """At the first report after it: with how far it came and what to do, and without its effect."""
    worker = known(deployment, "in a hurry")
    reports: list[int] = []

    def slow(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        for step in range(1000):
            reports.append(step)
            progress(step, 1000, "counting")
            time.sleep(0.02)
        return {}

    done = execute(deployment, deployment.enqueue("count"), slow, worker, timeout=0.2)
    last = reports[-1]
    assert 0 < last < 20
    assert ("failed", "timed_out", None) == (done.state, error_of(done)["code"], done.result)
    assert {"done": last, "total": 1000, "stage": "counting"} == progress_of(done)
    for part in ("0.2 s", f"{last} of 1000 (counting)", "MODELKIN_JOB_TIMEOUT_SECONDS"):
        assert part in error_of(done)["detail"]
    assert 1 == done.attempts


def test_what_is_late_and_done_counts(deployment: Deployment) -> None:
    """A job that reports nothing ends by itself, and its effect is not thrown away."""

    def deaf(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        time.sleep(0.05)
        return {"late": True}

    worker = known(deployment, "deaf")
    done = execute(deployment, deployment.enqueue("count"), deaf, worker, timeout=0.01)
    assert ("succeeded", {"late": True}) == (done.state, done.result)


def test_what_waits_for_hubs_has_limits_of_its_own(deployment: Deployment) -> None:
    """The limit of all other kinds does not hold for it."""

    def download(job: JobRecord, progress: Progress) -> Mapping[str, Any]:
        for step in range(5):
            progress(step, 5, "downloading")
            time.sleep(0.02)
        return {"downloaded": 5}

    jobs = JobService()
    jobs.register("count", download, queue="hubs")
    job, worker = deployment.enqueue("count"), known(deployment, "downloads")
    executor = JobExecutor(deployment.database, jobs, timeout=0.01)
    executor.execute(begin(deployment, job, worker))
    assert "succeeded" == deployment.show(job).state
