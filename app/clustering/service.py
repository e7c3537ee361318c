"""Clusterings as they are used: asked for, carried out by a job, read, and asked about newcomers.

A clustering has the id of the job that made it. It is recorded, numbered and given its ids of
clusters in the one transaction in which that job succeeds (:meth:`ClusteringService._record`): this
is the place for whatever else has to happen once a clustering is there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from app.auth.records import Tenant
from app.catalog.reader import Subject
from app.clustering import policy_repository, repository
from app.clustering.assignment import NewcomerAssignment
from app.clustering.events import clustering_completed
from app.clustering.pipeline import Groups, group
from app.clustering.records import ClusteringContent, ClusteringRecord
from app.clustering.request import ClusteringRequest
from app.clustering.snapshot import Snapshot, take
from app.errors import ClusteringNotFound, SpaceNotFound
from app.infra.db.database import Database, Reader, Writer
from app.infra.storage.blobs import BlobStore
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, JobService, Progress
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from app.webhooks.outbox import Outbox
from modelkin.core.clustering.clustering import NOISE, agreement, lasting_ids
from modelkin.types.clusterings import Assignment
from modelkin.types.paging import Page

__all__ = ["KIND", "LATEST", "ClusteringService"]

KIND: Final = "clustering"
"""The kind of the jobs that make clusterings."""
LATEST: Final = "latest"
"""Stands for the id of the newest clustering of all models."""
_KEPT = 100
"""Clusterings of a space that are kept, and the newest one of all models beside them."""
_READING: Final = "reading"

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Before:
    """The clustering that a new one goes on from, if there is one."""

    id: str | None
    labels: Mapping[str, int]

    @classmethod
    def of(cls, session: Reader, space: SpaceRecord, scope: str) -> _Before:
        latest = repository.find_latest(session, space, scope)
        if latest is None:
            return cls(None, {})
        held = repository.content(session, latest)
        return cls(latest.id, dict(zip(held.models, held.labels, strict=True)))


@dataclass(frozen=True, slots=True)
class _Lasting:
    """What a clustering has of the one before it.

    Attributes:
        ids: of the clusters, -1 where one is new; shape ``(k,)``.
        agreement: the adjusted Rand index over the models of both; None where there are none.
    """

    ids: Labels
    agreement: float | None

    @classmethod
    def of(cls, names: Sequence[str], labels: Labels, before: _Before) -> _Lasting:
        both = [row for row, name in enumerate(names) if name in before.labels]
        old = np.array([before.labels[names[row]] for row in both], np.int64)
        agreed = agreement(labels[both], old) if both else None
        return cls(lasting_ids(names, labels, before.labels), agreed)


class ClusteringService:
    """The use cases of clusterings.

    Args:
        database: the truth.
        blobs: where supports are kept.
        jobs: carry clusterings out; the kind is registered here.
        newcomers: tells which cluster is nearest to what is not stored.
        most_mapped: supports that a job may hold mapped at a time.
        outbox: is told of what was recorded.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        jobs: JobService,
        newcomers: NewcomerAssignment,
        *,
        most_mapped: int,
        outbox: Outbox | None = None,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._jobs = jobs
        self._newcomers = newcomers
        self._most_mapped = most_mapped
        self._outbox = outbox

    # --- asking -------------------------------------------------------------------------------

    def create(
        self, session: Writer, tenant: Tenant, space: SpaceRecord, asked: ClusteringRequest
    ) -> JobRecord:
        """The job that will make a clustering; one that waits for the very same is answered.

        Raises:
            InvalidParameter: what is asked makes no sense, or not for so many models.
            ModelNotFound: one of the models that are named does not exist.
        """
        asked.check()
        asked.check_for(repository.count_members(session, space, asked.tags, asked.models))
        given = asked.to_json()
        same = json.dumps([space.id, space.version, given], sort_keys=True)
        key = hashlib.sha256(same.encode()).hexdigest()
        return self._jobs.enqueue(session, tenant, KIND, given, space=space, dedup_key=key)

    # --- reading ------------------------------------------------------------------------------

    def list(
        self, session: Reader, space: SpaceRecord, *, limit: int, cursor: str | None
    ) -> Page[ClusteringRecord]:
        """The clusterings of a space, newest first."""
        return repository.list_clusterings(session, space, limit=limit, cursor=cursor)

    def get(
        self, session: Reader, space: SpaceRecord, clustering_id: str, tags: Sequence[str] = ()
    ) -> ClusteringRecord:
        """One clustering.

        Args:
            clustering_id: or :data:`LATEST`, the newest one of all models.
            tags: of the latest: the newest one of the models that carry all of these instead.

        Raises:
            ClusteringNotFound: there is none.
        """
        if clustering_id != LATEST:
            return repository.get_clustering(session, space, clustering_id)
        found = repository.find_latest(session, space, ClusteringRequest(tags=tuple(tags)).scope)
        if found is None:
            whose = f"the models tagged {', '.join(tags)}" if tags else "all its models"
            raise ClusteringNotFound(
                f"space {space.name!r} has no clustering of {whose}: ask for one with POST"
            )
        return found

    def content(self, session: Reader, clustering: ClusteringRecord) -> ClusteringContent:
        """Which model is in which cluster."""
        return repository.content(session, clustering)

    def assign(
        self, session: Reader, space: SpaceRecord, clustering: ClusteringRecord, subject: Subject
    ) -> Assignment:
        """The cluster that something which is not stored would be in; it stays as it is."""
        held = repository.content(session, clustering)
        tags = ClusteringRequest.from_json(clustering.parameters).tags
        return self._newcomers.assign(session, space, clustering.id, held, subject, tags)

    def delete(self, session: Writer, space: SpaceRecord, clustering_id: str) -> None:
        """Forget one clustering; its ids of clusters are never used again."""
        clustering = repository.get_clustering(session, space, clustering_id)
        repository.delete_clustering(session, clustering)

    # --- carrying out -------------------------------------------------------------------------

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Make the clustering of a job; what it is called and where it goes on is for the end."""
        began = time.monotonic()
        asked = ClusteringRequest.from_json(job.parameters)
        progress(0, 0, _READING)
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, job.space_id or 0)
            if space is None:
                raise SpaceNotFound(f"there is no space {job.space!r} any more")
            snapshot = take(session, self._blobs, space, asked, self._most_mapped)
            before = _Before.of(session, space, asked.scope)
        found = group(snapshot, asked, progress)
        lasting = _Lasting.of(snapshot.names, found.labels, before)

        def finish(session: Writer) -> Mapping[str, Any]:
            made = _Made(job, asked, snapshot, found, time.monotonic() - began)
            return self._record(session, made, before, lasting)

        return finish

    def _record(
        self, session: Writer, made: _Made, before: _Before, lasting: _Lasting
    ) -> Mapping[str, Any]:
        """Store a finished clustering, in the transaction in which its job succeeds.

        Raises:
            SpaceNotFound: the space was deleted meanwhile.
        """
        space = spaces.lock_space(session, made.snapshot.space)
        latest = repository.find_latest(session, space, made.asked.scope)
        if (None if latest is None else latest.id) != before.id:  # another one was faster
            before = _Before.of(session, space, made.asked.scope)
            lasting = _Lasting.of(made.snapshot.names, made.groups.labels, before)
        new = lasting.ids == NOISE
        series = repository.take_numbers(session, space, int(new.sum()))
        ids = lasting.ids.copy()
        ids[new] = series.next_cluster + np.arange(int(new.sum()))
        record = made.record(series.number, before.id, lasting.agreement)
        repository.insert_clustering(session, record, made.content(ids))
        repository.prune(session, space, _KEPT)
        asked, version = record.parameters, record.version
        policy_repository.note_done(session, space, asked, version, made.job.created_at)
        if self._outbox is not None:
            clustering_completed(self._outbox, session, space, record)
        return {
            "clustering": record.id,
            "url": f"/v1/spaces/{space.name}/clusterings/{record.id}",
            "algorithm": record.algorithm,
            "models": record.models,
            "clusters": record.clusters,
        }


@dataclass(frozen=True, slots=True)
class _Made:
    """A clustering that is done, but for what it has of the one before it."""

    job: JobRecord
    asked: ClusteringRequest
    snapshot: Snapshot
    groups: Groups
    seconds: float

    def record(self, number: int, previous: str | None, agreed: float | None) -> ClusteringRecord:
        labels = self.groups.labels
        return ClusteringRecord(
            id=self.job.id,
            space_id=self.snapshot.space.id,
            number=number,
            scope=self.asked.scope,
            algorithm=self.groups.algorithm,
            parameters=self.asked.to_json(),
            chosen=self.groups.chosen,
            version=self.snapshot.space.version,
            similarity=self.groups.kind,
            models=len(self.snapshot),
            clusters=self.groups.exemplars.size,
            noise=int(np.count_nonzero(labels == NOISE)),
            quality=asdict(self.groups.quality),
            previous=previous,
            agreement=agreed,
            seconds=round(self.seconds, 3),
            created_at=datetime.now(UTC),
        )

    def content(self, ids: Labels) -> ClusteringContent:
        names = self.snapshot.names
        # One more id behind the last: that of no cluster, which label -1 finds there.
        known = np.append(ids, NOISE)
        return ClusteringContent(
            models=names,
            labels=tuple(known[self.groups.labels].tolist()),
            clusters=tuple(ids.tolist()),
            exemplars=tuple(names[row] for row in self.groups.exemplars),
        )
