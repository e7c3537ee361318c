"""The revision recorder: every new content of a model is a revision, compared with its past.

Temporal self-overlap (paper, section 4.3) is measured once, when a revision is made. That happens
before the lock if possible, and again under it if the model has changed in between. This module
decides which supports are kept and releases the others; ``revisions`` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from app.infra.db.database import Reader, Writer
from app.infra.db.released_blobs import release
from app.infra.errors import Unavailable
from app.infra.storage.blobs import BlobStore
from app.models.catalog.records import ModelRecord, SelfOverlap
from app.models.catalog.repositories import revisions
from app.models.catalog.repositories.model_writes import Content
from app.models.catalog.repositories.revisions import (
    FirstRevision,
    KeptSupport,
    ModelPast,
    NewRevision,
)
from app.models.catalog.stored_supports import SupportDecoder
from app.models.spaces.records import SpaceRecord
from modelkin.core.estimators import jaccard_of
from modelkin.core.gaps import NO_GAPS
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.outside import overlap_outside
from modelkin.core.sketching.schemes import value_dtype
from modelkin.core.subspaces.affinity import affinity
from modelkin.core.subspaces.subspace import Subspace

__all__ = ["ModelChange", "Drift", "RevisionRecorder"]

_MAX_REVISIONS = 10_000
"""Revisions of a model that are listed, beside the first: a row of numbers each."""


@dataclass(frozen=True, slots=True)
class Drift:
    """The overlap of a new content with the model's past.

    Attributes:
        past: the model's past at the time of the measurement.
        previous: the overlap with the present content of that past.
        first: the overlap with the first known revision.
    """

    past: ModelPast
    previous: SelfOverlap
    first: SelfOverlap


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A model as read under the lock, its new content, and the drift measured before."""

    model: ModelRecord
    content: Content
    drift: Drift | None


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two contents to compare; either part may be missing."""

    packed: PackedSupport | None
    signature: bytes | None


class RevisionRecorder:
    """Records revisions, and releases the oldest.

    Args:
        blobs: stores supports.
        keep: supports of a model that are kept, the present one included; if that is more than
            one, that of the first revision is kept as well.
        remember: revisions of a model that are listed, beside the first; at least ``keep``.
    """

    def __init__(self, blobs: BlobStore, keep: int, *, remember: int = _MAX_REVISIONS) -> None:
        self._blobs = blobs
        self._keep = keep
        self._remember = remember

    def pasts(self, session: Reader, models: Sequence[ModelRecord]) -> dict[int, ModelPast]:
        """The pasts of models that are about to change, by their ids."""
        return revisions.pasts(session, models, signatures=False)

    def measure(
        self, space: SpaceRecord, past: ModelPast, packed: PackedSupport | None, signature: bytes
    ) -> Drift | None:
        """Measure the drift of a new content; None if that needs a signature that was not read.

        Args:
            packed: the new support; None if only a signature was sent.
            signature: the little-endian values of the new signature.
        """
        new, model, first = _Side(packed, signature), past.model, past.first
        before = self._side(space, model, past.signature)
        previous = _self_overlap(space, new, before)
        if previous is None:
            return None
        if first is None:
            return Drift(past, previous, previous)
        first_side = self._side(space, first, first.signature)
        overlap = _self_overlap(space, new, first_side)
        return None if overlap is None else Drift(past, previous, overlap)

    def add(self, session: Writer, space: SpaceRecord, changes: Sequence[ModelChange]) -> int:
        """Record the next revisions of models, before the rows of the models change.

        Returns the bytes of the supports that are no longer kept.

        Args:
            session: a transaction that holds the space's lock.
            changes: the changes of distinct models.
        """
        if not changes:
            return 0
        stale = [change.model for change in changes if not _is_current(change)]
        pasts = revisions.pasts(session, stale, signatures=True) if stale else {}
        drifts = [
            change.drift
            if change.drift is not None and change.model.id not in pasts
            else self._measure_again(space, pasts[change.model.id], change.content)
            for change in changes
        ]
        revisions.insert_revisions(
            session,
            [
                NewRevision(change.model, drift.past, change.content, drift.previous, drift.first)
                for change, drift in zip(changes, drifts, strict=True)
            ],
        )
        return self._drop_oldest(session, space, changes, [drift.past for drift in drifts])

    def forget(self, session: Writer, space: SpaceRecord, model: ModelRecord) -> int:
        """Release all supports of a model that is about to be deleted; returns their bytes."""
        blobs = revisions.blobs_of(session, model)
        release(session, space.tenant_id, blobs)
        return sum(size or 0 for size in blobs.values())

    def _measure_again(self, space: SpaceRecord, past: ModelPast, content: Content) -> Drift:
        new = self._side(space, content, content.signature)
        drift = self.measure(space, past, new.packed, content.signature)
        assert drift is not None, "every model has a signature"
        return drift

    def _drop_oldest(
        self,
        session: Writer,
        space: SpaceRecord,
        changes: Sequence[ModelChange],
        pasts: Sequence[ModelPast],
    ) -> int:
        """Release supports that are too old to be kept; returns their bytes."""
        dropped: dict[tuple[int, int], KeptSupport] = {}
        for change, past in zip(changes, pasts, strict=True):
            model, newest = change.model, change.model.revision + 1
            first = model.revision if past.first is None else past.first.revision
            blobs = {kept.revision: kept for kept in past.kept}
            if model.blob_key is not None:
                blobs[model.revision] = KeptSupport(model.revision, model.blob_key, model.blob_size)
            dropped |= {
                (model.id, number): kept
                for number, kept in blobs.items()
                if number <= newest - self._keep and (number != first or self._keep == 1)
            }
            if newest > self._remember:
                revisions.drop_rows(session, model.id, newest - self._remember)
        if not dropped:
            return 0
        freed = revisions.total_bytes(session, dropped)
        revisions.drop_blobs(session, dropped)
        sizes = {kept.blob_key: kept.blob_size for kept in dropped.values()}
        release(session, space.tenant_id, sizes)
        return freed

    def _side(
        self,
        space: SpaceRecord,
        stored: ModelRecord | FirstRevision | Content,
        signature: bytes | None,
    ) -> _Side:
        """A stored content; without its support if that is lost, damaged or just replaced."""
        packed = None
        if stored.blob_key is not None:
            decode = SupportDecoder(space, stored.support_size, stored.digest)
            with suppress(KeyError, Unavailable):
                packed = self._blobs.open_verified(stored.blob_key, decode)
        return _Side(packed, signature)


def _is_current(change: ModelChange) -> bool:
    """Whether the drift was measured with the model's present content."""
    if change.drift is None:
        return False
    model = change.drift.past.model
    return (model.id, model.revision) == (change.model.id, change.model.revision)


def _self_overlap(space: SpaceRecord, a: _Side, b: _Side) -> SelfOverlap | None:
    """The overlap of two contents, counted or else estimated; None if a signature is missing."""
    if a.packed is not None and b.packed is not None:
        found = overlap_outside(a.packed, b.packed, NO_GAPS)
        union = found.a + found.b - found.shared
        return SelfOverlap(found.shared / max(1, union), exact=True)
    if a.signature is None or b.signature is None:
        return None
    if space.subspaces is not None:
        similarity = _stored_affinity(a.signature, b.signature)
        return SelfOverlap(jaccard_of(similarity), exact=True)
    dtype = value_dtype(space.signature.scheme).newbyteorder("<")
    equal = np.frombuffer(a.signature, dtype) == np.frombuffer(b.signature, dtype)
    return SelfOverlap(float(np.count_nonzero(equal)) / space.signature.num_perm, exact=False)


def _stored_affinity(a: bytes, b: bytes) -> float:
    """S of two stored data subspaces, by the classes where both have any."""
    return affinity(Subspace.from_bytes(a), Subspace.from_bytes(b))
