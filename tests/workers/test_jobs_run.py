"""The states of a job in a service that carries jobs out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.infra.errors import JobFinished, JobNotFound
from tests.support.jobs.deployment import Deployment
from tests.support.jobs.records import error_of, progress_of, result_of, span_of


@pytest.mark.smoke
def test_a_job_succeeds_with_its_effect(busy: Deployment) -> None:
    """It is started once, reports progress, and leaves its effect, its result and its times."""
    job = busy.enqueue("count", steps=10, pause=0.1)
    assert ("queued", None, 0) == (job.state, job.progress, job.attempts)
    seen = busy.until(job, lambda now: now.progress and 0 < now.progress["done"] < 10)
    assert ("running", 10, "counting") == (seen.state, *list(progress_of(seen).values())[1:])
    done = busy.ended(job)
    assert ("succeeded", {"counted": 10}, None) == (done.state, done.result, done.error)
    assert {"done": 10, "total": 10, "stage": "counting"} == done.progress
    started, finished = span_of(done)
    assert job.created_at <= started <= finished <= datetime.now(UTC)
    assert (1, [1]) == (busy.effects(job), busy.begun(job))


@pytest.mark.slow
def test_a_tenants_long_jobs_leave_a_place_to_others(busy: Deployment) -> None:
    """Beside six that do not end another tenant's job is carried out, though it came last."""
    labs = busy.make_tenant("labs")
    long = [busy.enqueue("watch", tenant=labs) for _ in range(6)]
    for job in long[:2]:
        busy.running(job)
    done = busy.ended(busy.enqueue("count", steps=0, pause=0.0))
    assert "succeeded" == done.state
    assert [2, 4] == [
        sum(busy.show(job).state == state for job in long) for state in ("running", "queued")
    ]
    for job in long:
        busy.folder.joinpath(job.id).touch()
    assert {"succeeded"} == {busy.ended(job).state for job in long}


def test_a_mistake_is_the_error_of_the_job(busy: Deployment) -> None:
    """A handler's refusal fails the job at once, with its code and its words."""
    done = busy.ended(job := busy.enqueue("wrong"))
    error = {"code": "invalid_parameter", "detail": "there are no such leaves"}
    assert ("failed", error, None, [1]) == (done.state, done.error, done.result, busy.begun(job))
    assert {"done": 1, "total": 3, "stage": "looking"} == done.progress


def test_a_bug_is_told_without_its_inside(busy: Deployment) -> None:
    """The client learns where the details are: the log has the traceback under the job's id."""
    done = busy.ended(job := busy.enqueue("buggy"))
    assert ("failed", "internal_error") == (done.state, error_of(done)["code"])
    assert job.id in error_of(done)["detail"]
    assert "division" not in error_of(done)["detail"]
    assert f"job {job.id} (buggy) failed by a bug" in busy.logs()
    assert "ZeroDivisionError" in busy.logs()


@pytest.mark.slow
def test_a_store_that_is_away_is_tried_again(busy: Deployment) -> None:
    """The job waits, says why, begins from the start, and the error is gone once it succeeds."""
    job = busy.enqueue("patient", until=2)
    waiting = busy.until(job, lambda now: now.error)
    assert ("queued", 1) == (waiting.state, waiting.attempts)
    detail = "the bucket store is away; the next attempt is in 1 s"
    assert {"code": "unavailable", "detail": detail} == waiting.error
    assert waiting.not_before is not None
    assert waiting.not_before > datetime.now(UTC) - timedelta(seconds=1)
    done = busy.ended(job)
    assert ("succeeded", {"attempts": 2}, None) == (done.state, done.result, done.error)
    assert [1, 2] == busy.begun(job)


def test_a_running_job_is_cancelled(busy: Deployment) -> None:
    """It is interrupted at its next report of progress, and has no effect."""
    job = busy.running(busy.enqueue("count", steps=600, pause=0.1))
    asked = busy.cancel(job)
    assert ("running", True, None) == (asked.state, asked.cancel_requested, asked.finished_at)
    assert busy.cancel(job).cancel_requested
    done = busy.ended(job)
    assert ("cancelled", "job_cancelled") == (done.state, error_of(done)["code"])
    assert (0, [1]) == (busy.effects(job), busy.begun(job))
    started, finished = span_of(done)
    assert started == asked.started_at
    assert (finished - started).total_seconds() < 30
    assert done == busy.cancel(job)


@pytest.mark.slow
def test_a_job_that_does_not_hear_is_cancelled_all_the_same(busy: Deployment) -> None:
    """What it answers in the end does not count once it was cancelled."""
    job = busy.enqueue("deaf", pause=1.0)
    busy.until(job, lambda now: now.state == "running")
    busy.cancel(job)
    assert ("cancelled", None) == ((done := busy.ended(job)).state, done.result)


@pytest.mark.slow
def test_a_waiting_job_is_cancelled_at_once(busy: Deployment) -> None:
    """It never begins, and neither does one that was handed to the queue already."""
    later = datetime.now(UTC) + timedelta(hours=1)
    waiting = busy.enqueue("count", steps=1, pause=0.0, not_before=later)
    full = [busy.enqueue("count", steps=15, pause=0.1) for _ in range(2)]
    for job in full:
        busy.running(job)
    queued = busy.enqueue("count", steps=1, pause=0.0)
    for job in (waiting, queued):
        now = busy.cancel(job)
        assert ("cancelled", True) == (now.state, now.finished)
    last = busy.enqueue("count", steps=1, pause=0.0)
    assert {"succeeded"} == {busy.ended(job).state for job in (*full, last)}
    assert ([], []) == (busy.begun(waiting), busy.begun(queued))


@pytest.mark.slow
def test_a_job_begins_no_sooner_than_it_may(busy: Deployment) -> None:
    """``not_before`` holds."""
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    done = busy.ended(busy.enqueue("count", steps=1, pause=0.0, not_before=due))
    assert ("succeeded", due) == (done.state, done.not_before)
    assert span_of(done)[0] >= due


@pytest.mark.slow
def test_one_key_is_one_unfinished_job(busy: Deployment) -> None:
    """While a job of a key waits or runs, a second one is the first; then it is another one."""
    first = busy.enqueue("count", steps=10, pause=0.1, dedup_key="k")
    assert first.id == busy.enqueue("count", steps=99, pause=9.0, dedup_key="k").id
    busy.running(first)
    assert first.id == busy.enqueue("count", steps=99, pause=9.0, dedup_key="k").id
    others = [
        busy.enqueue("patient", until=1, dedup_key="k"),
        busy.enqueue("count", tenant=busy.make_tenant("x"), steps=0, pause=0.0, dedup_key="k"),
        busy.enqueue("count", steps=0, pause=0.0),
    ]
    assert 4 == len({first.id, *(job.id for job in others)})
    assert {"count": 10, "id": first.id} == {
        "count": result_of(busy.ended(first))["counted"],
        "id": first.id,
    }
    again = busy.enqueue("count", steps=0, pause=0.0, dedup_key="k")
    assert first.id != again.id
    assert {"succeeded"} == {busy.ended(job).state for job in (*others, again)}


@pytest.mark.slow
def test_a_tenant_of_many_jobs_holds_nobody_up(busy: Deployment) -> None:
    """A tenant with one job is served long before another one's many are done."""
    crowd, single = busy.make_tenant("crowd"), busy.make_tenant("single")
    many = [busy.enqueue("count", tenant=crowd, steps=1, pause=0.1) for _ in range(40)]
    one = busy.ended(busy.enqueue("count", tenant=single, steps=1, pause=0.1))
    states = [busy.show(job).state for job in many]
    assert ("succeeded", True) == (one.state, states.count("queued") > 5)
    assert {"succeeded"} == {busy.ended(job).state for job in many}
    assert {1} == {busy.effects(job) for job in many}


def test_an_ended_job_stays_as_it_is(busy: Deployment) -> None:
    """A job that has succeeded cannot be cancelled."""
    done = busy.ended(busy.enqueue("count", steps=0, pause=0.0))
    with pytest.raises(JobFinished, match="succeeded"):
        busy.cancel(done)
    assert done == busy.show(done)


def test_a_job_is_its_tenants(busy: Deployment) -> None:
    """Another tenant finds no such job, and cancels none."""
    job = busy.enqueue("count", steps=0, pause=0.0)
    other = busy.make_tenant("other")
    with pytest.raises(JobNotFound), busy.database.reading() as session:
        busy.jobs.get(session, other, job.id)
    with pytest.raises(JobNotFound), busy.database.writing() as session:
        busy.jobs.cancel(session, other, job.id)
    assert "succeeded" == busy.ended(job).state


def test_a_rolled_back_change_leaves_no_job(busy: Deployment) -> None:
    """A job is stored with the change that enqueues it, or not at all."""
    seen = []

    def change() -> None:
        with busy.database.writing() as session:
            parameters = {"file": str(busy.folder / "begun"), "steps": 0, "pause": 0.0}
            seen.append(busy.jobs.enqueue(session, busy.tenant, "count", parameters))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    with pytest.raises(JobNotFound):
        busy.show(seen[0])
    assert [] == busy.begun(seen[0])
