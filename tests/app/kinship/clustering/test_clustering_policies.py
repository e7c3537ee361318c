"""Policies: when a space is clustered again, by a clock that the test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.infra.db.tables.jobs import JobRow
from app.jobs.records import JobRecord
from app.jobs.service import JobService
from app.kinship.clustering import service
from app.kinship.clustering.policies import NAME, PolicyService, PolicyTerms, observe
from app.kinship.clustering.records import ClusteringPolicy
from app.kinship.clustering.repositories import policies as policies_store
from app.kinship.clustering.request import ClusteringRequest
from tests.support.app.space import AppSpace
from tests.support.jobs.claims import claim
from tests.support.models.planted_clusters import named, planted

START = datetime(2026, 5, 1, tzinfo=UTC)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def after(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policies(kin: AppSpace, clock: Clock) -> PolicyService:
    """The policy service, with the clock of the test."""
    own = JobService(clock)
    own.register(service.JOB_KIND, lambda job, progress: {})
    return PolicyService(kin.database, own, clock)


def put(kin: AppSpace, policies: PolicyService, **terms: Any) -> ClusteringPolicy:
    """Set the policy of the space."""
    whole = {"after_changes": None, "every_seconds": None, "debounce_seconds": 0} | terms
    wanted = PolicyTerms(request=whole.pop("request", ClusteringRequest("agglomerative")), **whole)
    with kin.database.writing() as session:
        return policies.put(session, kin.space, wanted)


def end_all(kin: AppSpace) -> None:
    """Execute the queued jobs, as a worker would."""
    with kin.database.reading() as session:
        page = kin.services[JobService].list(
            session, kin.tenant, limit=100, state="queued", space=kin.name
        )
    for job in page.items:
        kin.finish(kin.begin(job))
        with kin.database.writing() as session:
            kin.services[JobService].cancel(session, kin.tenant, job.id)


def test_a_space_is_clustered_after_so_many_changes(
    kin: AppSpace, policies: PolicyService, clock: Clock
) -> None:
    """Existing models count; then it is clustered again whenever enough has changed."""
    put(kin, policies, after_changes=3)
    (job,) = policies.renew()
    assert (service.JOB_KIND, kin.name, "agglomerative") == (
        job.kind,
        job.space,
        job.parameters["algorithm"],
    )
    end_all(kin)
    assert 18 == kin.clusterings()[0].models
    clock.after(3600)
    kin.remove("org/m000", "org/m001")
    assert [] == policies.renew()
    kin.remove("org/m002")
    assert 1 == len(policies.renew())
    assert [] == policies.renew()


def test_a_space_is_clustered_after_a_time(
    kin: AppSpace, policies: PolicyService, clock: Clock
) -> None:
    """After that time it is clustered, but only if anything has changed."""
    put(kin, policies, every_seconds=60)
    assert 1 == len(policies.renew())
    end_all(kin)
    clock.after(3600)
    assert [] == policies.renew()
    kin.remove("org/m000")
    assert 1 == len(policies.renew())
    end_all(kin)
    kin.remove("org/m001")
    clock.after(59)
    assert [] == policies.renew()
    clock.after(1)
    assert 1 == len(policies.renew())


def test_a_busy_space_is_left_until_it_rests(
    kin: AppSpace, policies: PolicyService, clock: Clock
) -> None:
    """Nothing begins while changes go on, until ten times the debounce has passed."""
    put(kin, policies, after_changes=1, debounce_seconds=10)
    assert [] == policies.renew()
    clock.after(10)
    assert 1 == len(policies.renew())
    end_all(kin)
    waited = 0
    for number in range(17):
        kin.remove(f"org/m{number:03d}")
        if policies.renew():
            break
        clock.after(7)
        waited += 7
    assert 100 <= waited < 120


def test_no_second_clustering_waits_behind_the_first(
    kin: AppSpace, policies: PolicyService, clock: Clock
) -> None:
    """While the last job of a policy is unfinished no other is enqueued.

    Once it ends, the next one is, unless that job has seen all changes.
    """
    put(kin, policies, after_changes=1)
    (job,) = policies.renew()
    end = kin.begin(job)
    kin.remove("org/m000")
    clock.after(60)
    assert [] == policies.renew()
    kin.finish(end)
    with kin.database.writing() as session:
        kin.services[JobService].cancel(session, kin.tenant, job.id)
    assert 1 == len(policies.renew())
    kin.remove("org/m001")
    end_all(kin)
    assert [] == policies.renew()


def test_an_empty_space_is_left_alone(kin: AppSpace, policies: PolicyService) -> None:
    """A space without models gets no job, which would only fail."""
    put(kin, policies, after_changes=1)
    kin.remove(*(f"org/m{i:03d}" for i in range(18)))
    assert [] == policies.renew()


def test_a_policy_goes_with_its_space(kin: AppSpace, policies: PolicyService) -> None:
    """The policy of a deleted space enqueues nothing."""
    put(kin, policies, after_changes=1)
    kin.drop()
    assert [] == policies.renew()


def test_another_policy_starts_again(kin: AppSpace, policies: PolicyService, clock: Clock) -> None:
    """The same terms change nothing; with other terms all models count as changes again."""
    put(kin, policies, after_changes=5)
    policies.renew()
    end_all(kin)
    clock.after(60)
    kept = put(kin, policies, after_changes=5)
    assert (kin.space.version, START) == (kept.done_version, kept.done_at)
    assert [] == policies.renew()
    changed = put(kin, policies, after_changes=5, request=ClusteringRequest("leiden"))
    assert (0, START) == (changed.done_version, changed.created_at)
    assert ["leiden"] == [job.parameters["algorithm"] for job in policies.renew()]


def test_the_workers_check_policies(kin: AppSpace) -> None:
    """A periodic check enqueues a job if a clustering is due."""
    jobs = kin.services[JobService]
    (task,) = [each for each in jobs.periodic_tasks if each.name == NAME]
    assert task.every <= timedelta(minutes=1)
    assert not [each for each in jobs.periodic if each.kind == NAME]
    put(kin, kin.services[PolicyService], after_changes=1)
    due: Any = task.run()
    (job,) = due
    assert service.JOB_KIND == job.kind
    assert [] == task.run()
    kin.finish(kin.begin(job))


def test_a_space_at_rest_is_not_locked(
    kin: AppSpace, policies: PolicyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a space is clustered as its policy demands, a check reads and writes nothing."""
    put(kin, policies, after_changes=1)
    policies.renew()
    end_all(kin)
    policies.renew()
    locked: list[int] = []
    real = policies_store.lock_policy

    def counting(session: Any, space_id: int) -> Any:
        locked.append(space_id)
        return real(session, space_id)

    monkeypatch.setattr(policies_store, "lock_policy", counting)
    policies.renew()
    assert kin.id not in locked
    kin.remove("org/m000")
    policies.renew()
    assert kin.id in locked


def fail(kin: AppSpace, job: JobRecord, at: datetime, code: str) -> None:
    """End a job as a worker does after a failure."""
    state: Any = "cancelled" if code == "job_cancelled" else "failed"
    with kin.database.writing() as session:
        worker = f"w{job.id}"
        assert claim(session, job, worker, at) is not None
        row = session.get_one(JobRow, job.id)
        row.state, row.finished_at, row.dedup_key = state, at, None
        row.error = {"code": code, "detail": "after 5 attempts"}


@pytest.mark.slow
@pytest.mark.parametrize("code", ["unavailable", "storage_full", "worker_lost"])
def test_a_clustering_is_tried_again_after_an_outage(
    kin: AppSpace, policies: PolicyService, clock: Clock, code: str
) -> None:
    """A space at rest is clustered once the store is back.

    The first retry comes after five minutes, each further one after twice as long.
    """
    put(kin, policies, after_changes=5, every_seconds=60)
    (job,) = policies.renew()
    for minutes in (5, 10, 20):
        fail(kin, job, clock(), code)
        with kin.database.reading() as session:
            policy = policies.get(session, kin.space)
        assert (0, None) == (policy.done_version, policy.done_at)
        clock.after(60 * minutes - 1)
        assert [] == policies.renew()
        clock.after(1)
        (job,) = policies.renew()
    requested_at = clock()
    end_all(kin)
    with kin.database.reading() as session:
        policy = policies.get(session, kin.space)
    assert (kin.space.version, requested_at) == (policy.done_version, policy.done_at)
    clock.after(86_400)
    assert [] == policies.renew()
    kin.remove("org/m000")
    (job,) = policies.renew()
    fail(kin, job, clock(), code)
    clock.after(300)
    assert 1 == len(policies.renew())


@pytest.mark.parametrize("code", ["job_cancelled", "invalid_parameter"])
def test_a_permanent_failure_waits_for_changes(
    kin: AppSpace, policies: PolicyService, clock: Clock, code: str
) -> None:
    """After an invalid or cancelled job the policy waits until enough has changed."""
    put(kin, policies, after_changes=2)
    (job,) = policies.renew()
    fail(kin, job, clock(), code)
    clock.after(86_400)
    kin.remove("org/m000")
    assert [] == policies.renew()
    kin.remove("org/m001")
    assert 1 == len(policies.renew())


def test_the_same_clustering_by_hand_counts(kin: AppSpace, policies: PolicyService) -> None:
    """A requested clustering with the policy's terms satisfies it; one with others does not."""
    put(kin, policies, after_changes=1)
    kin.cluster(ClusteringRequest("agglomerative", {"linkage": "average"}))
    with kin.database.reading() as session:
        assert policies.get(session, kin.space).done_version == 0
    kin.cluster(ClusteringRequest("agglomerative"))
    with kin.database.reading() as session:
        assert policies.get(session, kin.space).done_version == kin.space.version
    assert [] == policies.renew()


@pytest.mark.parametrize(("ago", "due"), [(0, False), (9, False), (10, True), (500, True)])
def test_a_space_changed_long_ago_is_calm(kin: AppSpace, ago: int, due: bool) -> None:
    """A space that came to rest before the first check is clustered at that check."""
    policy = ClusteringPolicy(
        space_id=kin.id,
        request={},
        after_changes=1,
        every_seconds=None,
        debounce_seconds=10,
        created_at=START,
        updated_at=START,
        done_version=0,
        done_at=None,
        seen_version=3,
        seen_at=START,
        due_since=None,
    )
    now = START + timedelta(seconds=600)
    changed_at = now - timedelta(seconds=ago)
    seen, found = observe(policy, kin.space, changed_at, now)
    assert (kin.space.version, changed_at, now, due) == (
        seen.seen_version,
        seen.seen_at,
        seen.due_since,
        found,
    )
    later = now + timedelta(seconds=10)
    assert (seen, True) == observe(seen, kin.space, later, later)


def test_the_time_of_the_last_change_is_known(kin: AppSpace) -> None:
    """A stored model has a time of change; a removal does not."""
    begin = datetime.now(UTC)
    kin.put(named(planted((1,), seed=5)[0]))
    with kin.database.reading() as session:
        changed = policies_store.last_change(session, kin.space)
    assert changed is not None
    assert begin - timedelta(seconds=1) <= changed <= datetime.now(UTC)
    kin.remove("org/m001")
    with kin.database.reading() as session:
        assert policies_store.last_change(session, kin.space) is None
