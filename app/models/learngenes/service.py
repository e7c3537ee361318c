"""The use cases of learngenes: publish, read, list and delete versions, and read kept files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Protocol

from app.infra.db import released_blobs
from app.infra.db.database import Database, Reader, Writer
from app.infra.db.ids import new_id
from app.infra.errors import ClusterNotFound, Unavailable, ValuesNotKept
from app.infra.preconditions import Precondition
from app.infra.storage.blobs import BlobStore, DamagedBlob
from app.infra.storage.verified_files import FileDecoder
from app.models.learngenes import repository
from app.models.learngenes.events import learngene_published
from app.models.learngenes.records import (
    WHOLE_SPACE,
    ClusterSet,
    Content,
    Details,
    LearngeneRecord,
    shown_cluster,
)
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import spaces
from app.models.spaces.repositories.layouts import find_layout
from app.tenancy.auth.records import Identity
from app.tenancy.quotas.service import QuotaService
from app.webhooks.outbox import Outbox
from modelkin.core.learngenes.manifest import (
    LearngeneTensor,
    Shapes,
    check_among,
    same_tensors,
)
from modelkin.core.learngenes.references import reference_from_json
from modelkin.errors import InvalidLearngene
from modelkin.types.paging import Page

__all__ = ["BLOB_FOLDER", "Clusters", "LearngeneService"]

BLOB_FOLDER: Final = released_blobs.LEARNGENES
"""The folder of kept files in that of all blobs, with a folder for each space."""
MAX_VERSIONS: Final = 100
"""Manifests of a cluster that stay; the oldest are deleted."""


class Clusters(Protocol):
    """Knows the clusters of a space; ``app.kinship.clustering`` does."""

    def latest(self, session: Reader, space: SpaceRecord, scope: str = "") -> ClusterSet | None:
        """The clusters of the newest clustering of a scope; None where there is none."""

    def of(self, session: Reader, space: SpaceRecord, clustering: str) -> ClusterSet:
        """The clusters of a clustering; raises ``ClusteringNotFound``."""


class LearngeneService:
    """Learngenes by cluster and version.

    The service never fetches a reference: it opens no connection to a hub for a learngene.

    Args:
        database: the database, which is the truth.
        blobs: the store of kept files.
        outbox: the outbox, which gets an event for each new version.
        max_bytes: the most bytes of a kept file; 0 where none is kept.
        kept: the number of files of a cluster that are kept.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        clusters: Clusters,
        outbox: Outbox,
        quotas: QuotaService,
        *,
        max_bytes: int,
        kept: int,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._clusters = clusters
        self._outbox = outbox
        self._quotas = quotas
        self.max_bytes = max_bytes
        self._kept = kept

    # --- reading ------------------------------------------------------------------------------

    def get(
        self, session: Reader, space: SpaceRecord, cluster: int, version: int | None = None
    ) -> LearngeneRecord:
        """A version of a cluster's learngene, by default the newest.

        Raises:
            LearngeneNotFound: there is none.
        """
        return repository.get_learngene(session, space, cluster, version)

    def newest(self, session: Reader, space: SpaceRecord, cluster: int) -> LearngeneRecord | None:
        """Return the starting point of a newcomer of a cluster; None if none was published for it.

        Args:
            cluster: an id; or -1, which ``assign`` answers if no cluster is near, for the learngene
                of the whole space.
        """
        return repository.find_newest(session, space, cluster)

    def tensors(self, session: Reader, learngene: LearngeneRecord) -> tuple[LearngeneTensor, ...]:
        """The tensors of a learngene."""
        return repository.tensors_of(session, learngene)

    def list(
        self,
        session: Reader,
        space: SpaceRecord,
        cluster: int | None = None,
        *,
        limit: int,
        cursor: str | None,
    ) -> Page[LearngeneRecord]:
        """List the learngenes of a space, or of one cluster, newest first."""
        return repository.list_learngenes(session, space, cluster, limit=limit, cursor=cursor)

    def is_stale(self, session: Reader, space: SpaceRecord, learngene: LearngeneRecord) -> bool:
        """Whether the newest clustering has no such cluster any more."""
        return bool(self.stale_among(session, space, [learngene]))

    def stale_among(
        self, session: Reader, space: SpaceRecord, learngenes: Sequence[LearngeneRecord]
    ) -> set[str]:
        """Return the ids of learngenes whose cluster the newest clustering of its scope lacks."""
        asked = [each for each in learngenes if each.cluster != WHOLE_SPACE]
        latest = {
            scope: self._clusters.latest(session, space, scope)
            for scope in {each.scope for each in asked}
        }
        return {each.id for each in asked if not _has(latest[each.scope], each.cluster)}

    def file(self, learngene: LearngeneRecord) -> memoryview:
        """Return the bytes of a kept file.

        Raises:
            ValuesNotKept: the file is not kept; the reference names its place at its owner's.
            Unavailable: the file is lost or damaged.
        """
        if learngene.blob_key is None:
            raise _not_kept(learngene)
        try:
            digest = bytes.fromhex(learngene.digest.removeprefix("sha256:"))
            return self._blobs.open_verified(learngene.blob_key, FileDecoder(digest), mapped=True)
        except KeyError:
            raise Unavailable(f"the file of {_label(learngene)} is lost") from None
        except DamagedBlob as error:
            raise Unavailable(f"the file of {_label(learngene)} is damaged") from error

    # --- changing -----------------------------------------------------------------------------

    def publish(
        self,
        reading: Reader,
        identity: Identity,
        space: SpaceRecord,
        cluster: int,
        content: Content,
        details: Details,
        precondition: Precondition | None = None,
    ) -> tuple[LearngeneRecord, bool]:
        """Store a new version of a cluster's learngene.

        The content of the newest version again changes nothing; a file that comes only now is kept.

        Args:
            reading: a reader for the checks before anything is locked.

        Returns:
            The version, and whether it is new.

        Raises:
            ValuesNotKept: the request has a file, and the service keeps none.
            ClusterNotFound: the clustering has no such cluster.
            ClusteringNotFound: there is no such clustering.
            InvalidLearngene: a tensor is not in the space's layout, or has another shape.
            PreconditionFailed: the newest version is another one.
            QuotaExceeded: the tenant's quota of bytes is used up.
        """
        if content.data is not None:
            self.require_keeping()
        found = self._cluster_set(reading, space, cluster, details.clustering)
        first = self._require_tensors(reading, space, content)
        reading.rollback()  # nothing is held while it waits for the disk, and the lock
        blob_key = self._write_blob(space, content)
        with self._database.writing() as session:
            if blob_key is not None:
                session.after_rollback(partial(self._blobs.delete, blob_key))
            space = spaces.lock_space(session, space)
            newest = repository.find_newest(session, space, cluster)
            if precondition is not None:
                version = None if newest is None else newest.version_tag
                precondition(str(shown_cluster(cluster)), version)
            if newest is not None and newest.digest == content.digest:
                return self._keep_newest(session, space, newest, content, blob_key), False
            if first != repository.first_id(session, space):
                self._require_tensors(session, space, content)
            record = self._new(identity, space, cluster, content, details, found)
            record = replace(
                record,
                version=repository.next_version(session, space, cluster),
                blob_key=blob_key,
                stored_bytes=record.stored_bytes + (0 if blob_key is None else record.size),
            )
            self._require_room(session, space, record.stored_bytes)
            repository.insert_learngene(session, record, content.tensors)
            self._prune(session, space, cluster)
            learngene_published(self._outbox, session, space, record)
        return record, True

    def require_keeping(self) -> None:
        """Raise :class:`ValuesNotKept` where the service keeps no files."""
        if not self.max_bytes:
            raise ValuesNotKept(
                "this service keeps no values of models: publish a manifest with a reference, as "
                "application/json (an operator keeps files with MODELKIN_MAX_LEARNGENE_BYTES)"
            )

    def delete(
        self, session: Writer, space: SpaceRecord, cluster: int, version: int | None
    ) -> None:
        """Delete a version, by default the newest, with its file if that is kept.

        Raises:
            LearngeneNotFound: there is none.
        """
        space = spaces.lock_space(session, space)
        learngene = repository.get_learngene(session, space, cluster, version)
        self._release(session, learngene)
        repository.delete_learngene(session, learngene)

    # --- parts --------------------------------------------------------------------------------

    def _cluster_set(
        self, session: Reader, space: SpaceRecord, cluster: int, clustering: str | None
    ) -> ClusterSet | None:
        """The clusters of the clustering that a learngene is published for; None for ``all``."""
        found = None
        if clustering is not None:
            found = self._clusters.of(session, space, clustering)
        if cluster == WHOLE_SPACE:
            return found
        if found is None:
            found = self._clusters.latest(session, space)
        if found is None:
            raise ClusterNotFound(
                f"space {space.name!r} has no clustering of all its models, so no cluster "
                f"{cluster}: request one with POST, or publish for the cluster all"
            )
        if cluster not in found.ids:
            raise ClusterNotFound(
                f"clustering {found.clustering} of space {space.name!r} has no cluster {cluster}"
            )
        return found

    def _require_tensors(self, session: Reader, space: SpaceRecord, content: Content) -> str | None:
        """Check that the tensors are the space's; the id of its first learngene, if that counts."""
        layout = find_layout(session, space)
        if layout is not None:
            known: Shapes = {tensor.name: tensor.shape for tensor in layout.tensors}
            check_among(content.tensors, known, f"the layout of space {space.name!r}")
        first = repository.first_id(session, space)
        if layout is None and first is not None:
            known = repository.shapes_of(session, first)
            check_among(content.tensors, known, f"the first learngene of space {space.name!r}")
        return first

    def _write_blob(self, space: SpaceRecord, content: Content) -> str | None:
        if content.data is None:
            return None
        return self._blobs.put(f"{BLOB_FOLDER}/{space.id}", content.data)

    def _new(
        self,
        identity: Identity,
        space: SpaceRecord,
        cluster: int,
        content: Content,
        details: Details,
        found: ClusterSet | None,
    ) -> LearngeneRecord:
        now = datetime.now(UTC)
        return LearngeneRecord(
            id=new_id(now),
            tenant_id=space.tenant_id,
            space_id=space.id,
            cluster=cluster,
            version=0,
            clustering=None if found is None else found.clustering,
            scope="" if found is None else found.scope,
            digest=content.digest,
            size=content.size,
            num_tensors=len(content.tensors),
            reference=content.reference,
            blob_key=None,
            stored_bytes=repository.manifest_bytes(content.tensors),
            members=details.members,
            rounds=details.rounds,
            metrics=details.metrics,
            note=details.note,
            published_by=identity.prefix,
            created_at=now,
        )

    def _keep_newest(
        self,
        session: Writer,
        space: SpaceRecord,
        newest: LearngeneRecord,
        content: Content,
        blob_key: str | None,
    ) -> LearngeneRecord:
        """Return the newest version again, with its file if that came now.

        Raises:
            InvalidLearngene: the manifest contradicts the file with its digest.
        """
        stated = repository.tensors_of(session, newest)
        if newest.size != content.size or not same_tensors(stated, content.tensors):
            raise InvalidLearngene(
                f"version {newest.version} has this digest, and states other tensors or bytes: one "
                f"of the two is not of that file; delete that version if it is wrong",
                field="tensors",
            )
        if blob_key is None:
            return newest
        if newest.blob_key is not None:
            session.after_commit(partial(self._blobs.delete, blob_key))
            return newest
        self._require_room(session, space, newest.size)
        repository.keep_file(session, newest, blob_key)
        self._prune(session, space, newest.cluster)
        return replace(newest, blob_key=blob_key)

    def _require_room(self, session: Writer, space: SpaceRecord, more: int) -> None:
        taken = repository.stored_bytes(session, space.tenant_id)
        allowance = self._quotas.allowance(session, space.tenant_id)
        allowance.take(models=0, support_bytes=taken + more)

    def _prune(self, session: Writer, space: SpaceRecord, cluster: int) -> None:
        """Delete the files beyond those that are kept, and the manifests beyond theirs."""
        for old in repository.oldest_beyond(session, space, cluster, MAX_VERSIONS):
            self._release(session, old)
            repository.delete_learngene(session, old)
        for old in repository.beyond_kept(session, space, cluster, self._kept):
            self._release(session, old)
            repository.drop_file(session, old)

    def _release(self, session: Writer, learngene: LearngeneRecord) -> None:
        if learngene.blob_key is not None:
            released_blobs.release(
                session, learngene.tenant_id, {learngene.blob_key: learngene.size}
            )


def _has(found: ClusterSet | None, cluster: int) -> bool:
    return found is not None and cluster in found.ids


def _not_kept(learngene: LearngeneRecord) -> ValuesNotKept:
    where: Mapping[str, Any] | None = learngene.reference
    if where is None:
        return ValuesNotKept(f"the file of {_label(learngene)} is not kept any more")
    address = reference_from_json(where).address
    return ValuesNotKept(
        f"this service does not keep the file of {_label(learngene)}: get it from {address}",
        reference=where,
    )


def _label(learngene: LearngeneRecord) -> str:
    cluster = shown_cluster(learngene.cluster)
    return f"version {learngene.version} of the learngene of cluster {cluster}"
