"""The clustering service: enqueue clusterings, execute them as jobs, read them, assign new models.

A clustering has the id of the job that made it. It is recorded, numbered and given its cluster
ids in the one transaction in which that job succeeds (:meth:`ClusteringService._record`). Further
effects of a new clustering belong there as well.
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

from app.infra.db.database import Database, Reader, Writer
from app.infra.errors import ClusteringNotFound, SpaceNotFound
from app.infra.storage.blobs import BlobStore
from app.infra.storage.guarded_maps import intact_maps
from app.jobs.records import JobRecord
from app.jobs.service import CommitHook, JobService, Progress
from app.kinship.clustering.assignment import NewcomerAssignment
from app.kinship.clustering.events import clustering_completed
from app.kinship.clustering.packages import missing_package, require_package
from app.kinship.clustering.pipeline import Clusters, cluster_models
from app.kinship.clustering.records import ClusteringContent, ClusteringRecord
from app.kinship.clustering.repositories import clusterings, policies
from app.kinship.clustering.request import ALGORITHMS, ClusteringRequest
from app.kinship.clustering.snapshot import Snapshot, take_snapshot
from app.models.catalog.reader import Subject
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.search.constants import SpaceConstants
from app.tenancy.auth.records import Tenant
from app.webhooks.outbox import Outbox
from modelkin.core.clustering.clustering import NOISE, agreement, lasting_ids
from modelkin.types.clusterings import Assignment
from modelkin.types.paging import Page
from modelkin.types.vocabulary import Compare

__all__ = ["JOB_KIND", "LATEST", "ClusteringService"]

JOB_KIND: Final = "clustering"
"""The kind of the jobs that make clusterings."""
LATEST: Final = "latest"
"""Stands for the id of the newest clustering of all models."""
_MAX_CLUSTERINGS = 100
"""Clusterings of a space that are kept, beside the newest one of all models."""
_READING: Final = "reading"

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Previous:
    """The previous clustering, whose cluster ids a new one continues, if there is one."""

    id: str | None
    labels: Mapping[str, int]

    @classmethod
    def of(cls, session: Reader, space: SpaceRecord, scope: str) -> _Previous:
        latest = clusterings.find_latest(session, space, scope)
        if latest is None:
            return cls(None, {})
        content = clusterings.content(session, latest)
        return cls(latest.id, dict(zip(content.models, content.labels, strict=True)))


@dataclass(frozen=True, slots=True)
class _Continuation:
    """The relation of a clustering to the previous one.

    Attributes:
        ids: the ids of the clusters, -1 for a new one; shape ``(k,)``.
        agreement: the adjusted Rand index over the models of both; None if they share none.
    """

    ids: Labels
    agreement: float | None

    @classmethod
    def of(cls, names: Sequence[str], labels: Labels, previous: _Previous) -> _Continuation:
        both = [row for row, name in enumerate(names) if name in previous.labels]
        old = np.array([previous.labels[names[row]] for row in both], np.int64)
        agreed = agreement(labels[both], old) if both else None
        return cls(lasting_ids(names, labels, previous.labels), agreed)


class ClusteringService:
    """The use cases of clusterings.

    Args:
        database: the database to read from.
        blobs: the store of supports.
        jobs: the service that enqueues the clusterings.
        newcomers: the service that assigns new models to clusters.
        constants: knows the tensors that are left out.
        max_mapped: the most supports that a job may hold mapped at a time.
        outbox: the outbox, which gets an event for each recorded clustering.
        works_here: whether this process carries out the jobs, so that what it lacks is known.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        jobs: JobService,
        newcomers: NewcomerAssignment,
        constants: SpaceConstants,
        *,
        max_mapped: int,
        outbox: Outbox | None = None,
        works_here: bool = False,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._jobs = jobs
        self._newcomers = newcomers
        self._constants = constants
        self._max_mapped = max_mapped
        self._outbox = outbox
        self._works_here = works_here

    # --- asking -------------------------------------------------------------------------------

    def missing_packages(self) -> dict[str, str]:
        """The packages that algorithms need and that are known not to be installed, by these."""
        if not self._works_here:
            return {}
        missing = {each: missing_package(each) for each in ALGORITHMS}
        return {name: package for name, package in missing.items() if package is not None}

    def create(
        self, session: Writer, tenant: Tenant, space: SpaceRecord, request: ClusteringRequest
    ) -> JobRecord:
        """Enqueue the job of a clustering, or return a pending job of the same request.

        Raises:
            InvalidParameter: the request is invalid, or invalid for this number of models.
            ModelNotFound: a named model does not exist.
            MissingExtra: the algorithm's package is not installed, and jobs are carried out here.
        """
        request.check()
        request.check_kind(space)
        plan = request.resolve(
            clusterings.count_members(session, space, request.tags, request.models)
        )
        if self._works_here and plan.count > 1:
            require_package(plan.algorithm)
        given = request.to_json()
        same = json.dumps([space.id, space.version, given], sort_keys=True)
        key = hashlib.sha256(same.encode()).hexdigest()
        return self._jobs.enqueue(session, tenant, JOB_KIND, given, space=space, dedup_key=key)

    # --- reading ------------------------------------------------------------------------------

    def list(
        self, session: Reader, space: SpaceRecord, *, limit: int, cursor: str | None
    ) -> Page[ClusteringRecord]:
        """The clusterings of a space, newest first."""
        return clusterings.list_clusterings(session, space, limit=limit, cursor=cursor)

    def get(
        self, session: Reader, space: SpaceRecord, clustering_id: str, tags: Sequence[str] = ()
    ) -> ClusteringRecord:
        """Return a clustering.

        Args:
            clustering_id: the id, or :data:`LATEST`, the newest clustering of all models.
            tags: for the latest: the newest clustering of the models that carry all of these tags
                instead.

        Raises:
            ClusteringNotFound: there is no such clustering.
        """
        if clustering_id != LATEST:
            return clusterings.get_clustering(session, space, clustering_id)
        found = clusterings.find_latest(session, space, ClusteringRequest(tags=tuple(tags)).scope)
        if found is None:
            whose = f"the models tagged {', '.join(tags)}" if tags else "all its models"
            raise ClusteringNotFound(
                f"space {space.name!r} has no clustering of {whose}: request one with POST"
            )
        return found

    def newest(self, session: Reader, space: SpaceRecord) -> ClusteringRecord | None:
        """The last clustering of all models of the space; None before the first."""
        return clusterings.find_latest(session, space)

    def content(self, session: Reader, clustering: ClusteringRecord) -> ClusteringContent:
        """The labels of a clustering."""
        return clusterings.content(session, clustering)

    def assign(
        self,
        session: Reader,
        space: SpaceRecord,
        clustering: ClusteringRecord,
        subject: Subject,
        compare: Compare | None = None,
    ) -> Assignment:
        """Find the cluster that a subject would be in; the clustering stays as it is.

        Args:
            compare: the blocks of data subspaces that meet; None for those that the clustering
                compared.
        """
        content = clusterings.content(session, clustering)
        tags = ClusteringRequest.from_json(clustering.parameters).tags
        return self._newcomers.assign(session, space, clustering, content, subject, tags, compare)

    def join(
        self, session: Writer, space: SpaceRecord, clustering_id: str, subject: Subject
    ) -> Assignment:
        """Assign a stored model to a cluster, which it then counts as a member of.

        Models join one after the other, so each is compared with those before it.

        Raises:
            ClusteringNotFound: there is no such clustering.
            InvalidParameter: see :meth:`NewcomerAssignment.join`.
        """
        space = spaces.lock_space(session, space)
        clustering = self.get(session, space, clustering_id)
        content = clusterings.content(session, clustering)
        placed, joined = self._newcomers.join(session, space, clustering, content, subject)
        if placed.cluster != NOISE:
            clusterings.replace_content(session, clustering, joined)
        return placed

    def delete(self, session: Writer, space: SpaceRecord, clustering_id: str) -> None:
        """Delete one clustering; its cluster ids are never used again."""
        clustering = clusterings.get_clustering(session, space, clustering_id)
        clusterings.delete_clustering(session, clustering)

    # --- carrying out -------------------------------------------------------------------------

    def execute(self, job: JobRecord, progress: Progress) -> CommitHook:
        """Make the clustering of a job; the final transaction decides its id and cluster ids."""
        began = time.monotonic()
        request = ClusteringRequest.from_json(job.parameters)
        progress(0, 0, _READING)
        with self._database.reading() as session:
            space = spaces.find_space_by_id(session, job.space_id or 0)
            if space is None:
                raise SpaceNotFound(f"there is no space {job.space!r} any more")
            constants = self._constants.of(session, space)
            snapshot = take_snapshot(
                session,
                self._blobs,
                space,
                request,
                self._max_mapped,
                constants,
                with_chance=True,
            )
            previous = _Previous.of(session, space, request.scope)
        with intact_maps():
            found = cluster_models(snapshot, progress)
        continuation = _Continuation.of(snapshot.names, found.labels, previous)

        def finish(session: Writer) -> Mapping[str, Any]:
            finished = _FinishedClustering(job, request, snapshot, found, time.monotonic() - began)
            return self._record(session, finished, previous, continuation)

        return finish

    def _record(
        self,
        session: Writer,
        finished: _FinishedClustering,
        previous: _Previous,
        continuation: _Continuation,
    ) -> Mapping[str, Any]:
        """Store a finished clustering, in the transaction in which its job succeeds.

        Raises:
            SpaceNotFound: the space was deleted meanwhile.
        """
        space = spaces.lock_space(session, finished.snapshot.space)
        latest = clusterings.find_latest(session, space, finished.request.scope)
        if (None if latest is None else latest.id) != previous.id:  # another job was faster
            previous = _Previous.of(session, space, finished.request.scope)
            continuation = _Continuation.of(
                finished.snapshot.names, finished.groups.labels, previous
            )
        new = continuation.ids == NOISE
        series = clusterings.reserve_ids(session, space, int(new.sum()))
        ids = continuation.ids.copy()
        ids[new] = series.next_cluster + np.arange(int(new.sum()))
        record = finished.record(series.number, previous.id, continuation.agreement)
        clusterings.insert_clustering(session, record, finished.content(ids))
        clusterings.prune(session, space, _MAX_CLUSTERINGS)
        request, version = record.parameters, record.version
        policies.record_clustering(session, space, request, version, finished.job.created_at)
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
class _FinishedClustering:
    """A computed clustering, before it is related to the previous one."""

    job: JobRecord
    request: ClusteringRequest
    snapshot: Snapshot
    groups: Clusters
    seconds: float

    def record(self, number: int, previous: str | None, agreed: float | None) -> ClusteringRecord:
        labels = self.groups.labels
        return ClusteringRecord(
            id=self.job.id,
            space_id=self.snapshot.space.id,
            number=number,
            scope=self.request.scope,
            algorithm=self.groups.algorithm,
            parameters=self.request.to_json(),
            chosen=self.groups.chosen | self._compared,
            version=self.snapshot.space.version,
            similarity=self.groups.similarity,
            models=len(self.snapshot),
            clusters=self.groups.exemplars.size,
            noise=int(np.count_nonzero(labels == NOISE)),
            quality=asdict(self.groups.quality),
            previous=previous,
            agreement=agreed,
            seconds=round(self.seconds, 3),
            created_at=datetime.now(UTC),
        )

    @property
    def _compared(self) -> dict[str, Any]:
        compare, constants = self.snapshot.compare, self.snapshot.constants
        blocks = {} if compare is None else {"compare": compare}
        covered = self.snapshot.covered
        shares = {} if covered is None else {"covered": covered}
        left_out = {"constant_tensors": list(constants.names)} if constants else {}
        note = {} if self.groups.note is None else {"note": self.groups.note}
        return blocks | shares | left_out | note

    def content(self, ids: Labels) -> ClusteringContent:
        names = self.snapshot.names
        # The last entry is the id of no cluster, which label -1 refers to.
        known = np.append(ids, NOISE)
        return ClusteringContent(
            models=names,
            labels=tuple(known[self.groups.labels].tolist()),
            clusters=tuple(ids.tolist()),
            exemplars=tuple(names[row] for row in self.groups.exemplars),
            within=tuple(self.groups.within.round(9).tolist()),
            overall=round(self.groups.overall, 9),
            log10_p=tuple(None if p is None else round(p, 3) for p in self.groups.log10_p),
            kappa=tuple(None if k is None else round(k, 4) for k in self.groups.kappa),
        )
