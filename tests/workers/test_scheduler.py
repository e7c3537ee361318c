"""Periodic jobs and tasks: one job in each slot, whichever worker enqueues it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.infra.db.database import Reader
from app.infra.errors import Unavailable
from app.jobs.records import JobRecord
from tests.support.jobs.deployment import Deployment
from tests.support.jobs.execution import Own, away, execute
from workers.scheduler import SERVICE, Scheduler, slot_of


@pytest.fixture
def deployment(idle_deployment: Deployment) -> Deployment:
    """A database whose workers are these tests."""
    return idle_deployment


def service_jobs(deployment: Deployment, kind: str) -> list[JobRecord]:
    """The service's own jobs of a kind."""
    with deployment.database.reading() as session:
        return list(
            deployment.jobs.list(
                session, deployment.make_tenant(SERVICE), limit=100, kind=kind
            ).items
        )


def test_a_slot_has_one_job(deployment: Deployment) -> None:
    """Any worker, at any rate: one job a period, none while the one before is unfinished, and
    no tenant is shown it.
    """
    jobs = Own(away)
    jobs.enqueue_every(timedelta(minutes=10), "count", {"all": True})
    now = datetime(2026, 5, 4, 10, 3, tzinfo=UTC)
    schedules = [Scheduler(deployment.database, jobs) for _ in range(3)]
    for schedule in schedules:
        schedule.tick(now)
        schedule.tick(now + timedelta(minutes=5))
    (first,) = service_jobs(deployment, "count")
    assert ({"all": True}, "queued") == (first.parameters, first.state)
    schedules[0].tick(now + timedelta(minutes=10))
    assert [first] == service_jobs(deployment, "count")
    assert "succeeded" == execute(deployment, first, lambda job, progress: {}).state
    for schedule in (*schedules, Scheduler(deployment.database, jobs)):
        schedule.tick(now + timedelta(minutes=21))
    assert 2 == len(service_jobs(deployment, "count"))
    with deployment.database.reading() as session:
        shown = deployment.jobs.list(session, deployment.tenant, limit=1000).items
    assert first.id not in {job.id for job in shown}


def test_what_nobody_wants_is_not_enqueued(deployment: Deployment) -> None:
    """A periodic job is enqueued only if its query finds work, which runs once a period."""
    jobs, looks = Own(away), list[Reader]()

    def wanted(session: Reader) -> bool:
        looks.append(session)
        return False

    jobs.enqueue_every(timedelta(hours=1), "count", wanted=wanted)
    before = service_jobs(deployment, "count")
    schedule = Scheduler(deployment.database, jobs)
    now = datetime(2027, 5, 4, 10, tzinfo=UTC)
    for minutes in (1, 2, 59, 61):
        schedule.tick(now + timedelta(minutes=minutes))
    assert (2, before) == (len(looks), service_jobs(deployment, "count"))


def test_a_look_is_taken_without_a_job(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in a slot by each worker, beside the jobs; one that fails keeps nothing else up, and is
    taken again in the next slot.
    """
    jobs, looks = Own(away), []

    def fails(error: Exception) -> Any:
        looks.append(type(error).__name__)
        raise error

    jobs.run_every(timedelta(minutes=1), "away", lambda: fails(Unavailable("not now")))
    jobs.run_every(timedelta(minutes=1), "buggy", lambda: fails(ZeroDivisionError("a bug")))
    jobs.run_every(timedelta(minutes=2), "well", lambda: looks.append("well"))
    schedules = [Scheduler(deployment.database, jobs) for _ in range(2)]
    before = service_jobs(deployment, "count")
    now = datetime(2028, 5, 4, 10, tzinfo=UTC)
    for seconds in (0, 1, 59, 60, 61):
        for schedule in schedules:
            schedule.tick(now + timedelta(seconds=seconds))
    assert {"Unavailable": 4, "ZeroDivisionError": 4, "well": 2} == Counter(looks)
    assert before == service_jobs(deployment, "count")
    assert "the periodic task away failed: not now" in caplog.text
    assert "the periodic task buggy failed, because of a bug" in caplog.text


def test_slots_are_the_same_for_all() -> None:
    """A slot begins at a multiple of the period since 1970, whenever one asks within it."""
    hour = timedelta(hours=1)
    now = datetime(2026, 5, 4, 10, 59, 59, tzinfo=UTC)
    assert datetime(2026, 5, 4, 10, tzinfo=UTC) == slot_of(now, hour)
    assert datetime(2026, 5, 4, 11, tzinfo=UTC) == slot_of(now + timedelta(seconds=1), hour)
