"""The queries of the workers, on each database: claims, heartbeats and retention."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from app.jobs import queue
from app.jobs.claim import JobClaim
from tests.support.jobs.claims import begin, known
from tests.support.jobs.deployment import Deployment
from tests.support.jobs.execution import execute


@pytest.fixture
def deployment(idle_deployment: Deployment) -> Deployment:
    """A database whose workers are these tests."""
    return idle_deployment


def test_a_word_in_the_last_moment_counts(deployment: Deployment) -> None:
    """A worker whose heartbeat comes before it is removed stays registered."""
    known(deployment, "late")
    with deployment.database.reading() as session:
        last = queue.heartbeats(session)["late"]
    with deployment.database.writing() as session:
        queue.heartbeat(session, "late")
        assert [] == queue.remove_workers(session, {"late": last})
        assert ["late"] == queue.remove_workers(session, {"late": last + 1})


def test_what_ended_long_ago_is_forgotten(deployment: Deployment) -> None:
    """Ended jobs go by their age, some at a time; unfinished ones stay however old they are."""
    old = [
        execute(deployment, deployment.enqueue("count"), lambda job, progress: {}) for _ in range(3)
    ]
    waiting = deployment.enqueue("count")
    end = max(job.finished_at for job in old if job.finished_at) + timedelta(microseconds=1)
    young = execute(deployment, deployment.enqueue("count"), lambda job, progress: {})
    counts: list[int] = []
    while not counts or counts[-1]:
        with deployment.database.writing() as session:
            counts.append(queue.prune(session, end, limit=2))
    assert counts[0] == 2
    with deployment.database.reading() as session:
        left = {
            job.id for job in deployment.jobs.list(session, deployment.tenant, limit=1000).items
        }
    assert {waiting.id, young.id} <= left
    assert not {job.id for job in old} & left


def test_a_tenants_jobs_are_claimed_in_the_order_in_which_they_were_queued(
    deployment: Deployment,
) -> None:
    """One that is queued again comes behind the others; those that are not due are left out."""
    tenant = deployment.make_tenant("in order")
    worker = known(deployment, "in order")
    jobs = [deployment.enqueue("count", tenant=tenant) for _ in range(3)]
    later = datetime.now(UTC) + timedelta(days=1)
    deployment.enqueue("count", tenant=tenant, not_before=later)
    JobClaim(deployment.database, begin(deployment, jobs[0], worker), threading.Event()).requeue()

    def claimed() -> str | None:
        with deployment.database.writing() as session:
            found = queue.claim(session, worker, tenant.id, ["count"], datetime.now(UTC))
        return None if found is None else found.id

    assert [jobs[1].id, jobs[2].id, jobs[0].id, None] == [claimed() for _ in range(4)]


def test_what_is_available_is_due_or_of_a_dead_worker(deployment: Deployment) -> None:
    """A worker learns whose jobs of which kinds it may claim, each once."""
    tenants = [deployment.make_tenant(f"available-{n}") for n in range(4)]
    worker = known(deployment, "looks")
    later = datetime.now(UTC) + timedelta(days=1)
    for _ in range(2):
        deployment.enqueue("count", tenant=tenants[0])
    deployment.enqueue("watch", tenant=tenants[0])
    deployment.enqueue("count", tenant=tenants[1], not_before=later)
    begin(deployment, deployment.enqueue("count", tenant=tenants[2]), "nobody")
    begin(deployment, deployment.enqueue("count", tenant=tenants[3]), worker)
    with deployment.database.reading() as session:
        found = queue.available(session, worker, datetime.now(UTC))
    mine = sorted(each for each in found if each[0] in {tenant.id for tenant in tenants})
    first, dead = tenants[0].id, tenants[2].id
    assert [(first, "count"), (first, "watch"), (dead, "count")] == mine
