"""Clustering policies: the changes or the time after which a space is clustered again.

A periodic task of the workers checks every policy. A due clustering waits until the space has been
calm for a while, but not without limit; then the task enqueues a job, like that of a request. The
policy is satisfied once the clustering is recorded. If an outage prevents that, the task tries
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import ClusteringNotFound, QueueFull
from app.jobs.records import JobRecord
from app.jobs.repository import find_by_dedup_key, find_job
from app.jobs.service import JobService
from app.kinship.clustering.records import ClusteringPolicy
from app.kinship.clustering.repositories import policies
from app.kinship.clustering.request import ClusteringRequest
from app.kinship.clustering.service import JOB_KIND as CLUSTERING
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.tenancy.auth.records import Tenant
from modelkin.errors import InvalidParameter

__all__ = ["CHECK_INTERVAL", "NAME", "PolicyService", "observe"]

NAME: Final = "clustering_policies"
"""The name of the periodic task that renews clusterings."""
CHECK_INTERVAL: Final = timedelta(seconds=30)
_MAX_DEBOUNCE_FACTOR = 10
"""Debounce times that a clustering waits at most, while the space never comes to rest."""
_OUTAGES: Final = frozenset({"unavailable", "storage_full", "backend_unavailable", "worker_lost"})
"""The errors of jobs that may succeed if tried again, though nothing has changed."""
_RETRY_DELAY, _MAX_RETRY_DELAY = timedelta(minutes=5), timedelta(days=1)
"""The delay after an outage, doubled after each further one, and its maximum."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """The terms of a policy.

    Attributes:
        request: the request for a clustering.
        after_changes: changes of the space after which a clustering is made; None for no such
            limit.
        every_seconds: seconds after which a clustering is made, if anything changed; None for
            never.
        debounce_seconds: seconds without a change that must pass first.
    """

    request: ClusteringRequest
    after_changes: int | None
    every_seconds: int | None
    debounce_seconds: int


class PolicyService:
    """The use cases of policies.

    Args:
        database: the database, which is the truth.
        jobs: the service that enqueues clusterings.
        now: returns the present moment, in UTC.
    """

    def __init__(
        self,
        database: Database,
        jobs: JobService,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._now = now

    def get(self, session: Reader, space: SpaceRecord) -> ClusteringPolicy:
        """The policy of a space, or :class:`ClusteringNotFound`."""
        policy = policies.find_policy(session, space)
        if policy is None:
            raise ClusteringNotFound(f"space {space.name!r} has no clustering policy")
        return policy

    def put(self, session: Writer, space: SpaceRecord, wanted: PolicyTerms) -> ClusteringPolicy:
        """Set the policy. If its terms differ, all models of the space count as changes again.

        Raises:
            InvalidParameter: its clustering is invalid, or it names no time.
        """
        wanted.request.check()
        wanted.request.check_kind(space)
        if wanted.after_changes is None and wanted.every_seconds is None:
            raise InvalidParameter(
                "a policy needs a time: give after_changes, every_seconds or both",
                field="after_changes",
            )
        space = spaces.lock_space(session, space)
        now = self._now()
        current = policies.find_policy(session, space)
        policy = ClusteringPolicy(
            space_id=space.id,
            request=wanted.request.to_json(),
            after_changes=wanted.after_changes,
            every_seconds=wanted.every_seconds,
            debounce_seconds=wanted.debounce_seconds,
            created_at=now if current is None else current.created_at,
            updated_at=now,
            done_version=0,
            done_at=None,
            seen_version=space.version,
            seen_at=now,
            due_since=None,
        )
        if current is not None and _terms(current) == _terms(policy):
            return current
        policies.put_policy(session, policy)
        return policy

    def delete(self, session: Writer, space: SpaceRecord) -> None:
        """Delete the policy; :class:`ClusteringNotFound` if the space has none."""
        if not policies.delete_policy(session, space):
            raise ClusteringNotFound(f"space {space.name!r} has no clustering policy")

    def renew(self) -> list[JobRecord]:
        """Check the policies of spaces that have changed; return the enqueued jobs."""
        with self._database.reading() as session:
            space_ids = policies.spaces_to_check(session)
        enqueued = []
        for space_id in space_ids:
            with self._database.writing() as session:
                job = self._renew(session, space_id)
            if job is not None:
                enqueued.append(job)
        return enqueued

    def _renew(self, session: Writer, space_id: int) -> JobRecord | None:
        """Record the observed changes, and enqueue a clustering if one is due."""
        found = policies.lock_policy(session, space_id)
        if found is None:
            return None
        policy, space, tenant = found
        now = self._now()
        changed_at = min(policies.last_change(session, space) or now, now)
        tried = find_job(session, tenant, policy.tried_job) if policy.tried_job else None
        seen, due = observe(policy, space, changed_at, now, tried)
        job = self._enqueue(session, tenant, space, seen) if due else None
        if job is not None:
            seen = replace(
                seen,
                due_since=None,
                tried_job=job.id,
                tried_version=space.version,
                failures=policy.failures + 1 if _is_outage(tried) else 0,
            )
        if seen != policy:
            policies.put_policy(session, seen)
        return job

    def _enqueue(
        self, session: Writer, tenant: Tenant, space: SpaceRecord, policy: ClusteringPolicy
    ) -> JobRecord | None:
        """The new job; None while the last one is unfinished, or too many others are."""
        key = f"policy of {space.id}"
        if find_by_dedup_key(session, tenant, CLUSTERING, key) is not None:
            return None
        try:
            return self._jobs.enqueue(
                session, tenant, CLUSTERING, policy.request, space=space, dedup_key=key
            )
        except QueueFull as error:  # raised before anything is written
            log.info("the policy of space %d waits: %s", space.id, error)
            return None


def observe(
    policy: ClusteringPolicy,
    space: SpaceRecord,
    changed_at: datetime,
    now: datetime,
    tried: JobRecord | None = None,
) -> tuple[ClusteringPolicy, bool]:
    """Return the policy with the observed state of its space, and whether to cluster the space now.

    Args:
        changed_at: the time when the space got its version, if known; else ``now``.
        tried: the last job that the policy enqueued, while it is kept.
    """
    seen = policy
    if space.version != policy.seen_version:
        seen = replace(policy, seen_version=space.version, seen_at=changed_at)
    if space.models == 0 or not _is_due(seen, space, now, tried):
        return replace(seen, due_since=None), False
    seen = replace(seen, due_since=seen.due_since or now)
    assert seen.due_since is not None
    calm = timedelta(seconds=policy.debounce_seconds)
    rested = now - seen.seen_at >= calm
    return seen, rested or now - seen.due_since >= _MAX_DEBOUNCE_FACTOR * calm


def _is_due(
    policy: ClusteringPolicy, space: SpaceRecord, now: datetime, tried: JobRecord | None
) -> bool:
    version, at = policy.done_version, policy.done_at
    if tried is not None and _is_outage(tried):
        if now - (tried.finished_at or now) < _retry_delay(policy.failures):
            return False
    elif tried is not None:
        # The job runs, succeeded, or failed for a reason that stays until the space changes.
        version = max(version, policy.tried_version)
        at = max(at or tried.created_at, tried.created_at)
    pending = space.version - version
    if policy.after_changes is not None and pending >= policy.after_changes:
        return True
    if policy.every_seconds is None or pending == 0:
        return False
    period = timedelta(seconds=policy.every_seconds)
    return at is None or now - at >= period


def _is_outage(tried: JobRecord | None) -> bool:
    if tried is None or tried.state != "failed":
        return False
    return (tried.error or {}).get("code") in _OUTAGES


def _retry_delay(failures: int) -> timedelta:
    """The delay before the next try after an outage, for a number of failures before."""
    doubled: int = 2 ** min(failures, 10)
    return min(_RETRY_DELAY * doubled, _MAX_RETRY_DELAY)


def _terms(policy: ClusteringPolicy) -> tuple[object, ...]:
    return (
        policy.request,
        policy.after_changes,
        policy.every_seconds,
        policy.debounce_seconds,
    )
