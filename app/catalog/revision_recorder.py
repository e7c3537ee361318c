"""The history of models: every other content is a revision, held against what was before.

Temporal self-overlap (paper, section 4.3) is measured once, when a revision is made: before the
lock where that can be, and anew under it where the model has changed in between. Owns which
supports are kept and when the others go. Reading them is ``revisions``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from app.catalog.records import ModelRecord, SelfOverlap
from app.catalog.repositories import revisions
from app.catalog.repositories.models import Content
from app.catalog.repositories.revisions import NewRevision, Past
from app.errors import Unavailable
from app.infra.db.database import Reader, Writer
from app.infra.storage.blobs import BlobStore
from app.spaces.records import SpaceRecord
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.overlap import shared_packed
from modelkin.core.sketching.signature import value_dtype
from modelkin.errors import InvalidSupport

__all__ = ["Change", "Drift", "RevisionRecorder"]

_REMEMBERED = 10_000
"""Revisions of a model that are listed, beside the first: a row of numbers each."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How near a new content is to those before it.

    Attributes:
        past: of the model that it was held against.
        previous: to what the model is in that.
        first: to the first revision that is known.
    """

    past: Past
    previous: SelfOverlap
    first: SelfOverlap


@dataclass(frozen=True, slots=True)
class Change:
    """A model as it is under the lock, what it becomes, and what was measured of that before."""

    model: ModelRecord
    content: Content
    drift: Drift | None


@dataclass(frozen=True, slots=True)
class _Side:
    """One of two contents that are held against each other; either part may be missing."""

    packed: PackedSupport | None
    signature: bytes | None


class RevisionRecorder:
    """Makes revisions, and lets go of the oldest.

    Args:
        blobs: where supports are kept.
        keep: supports of a model that are kept, the present one included; where that is more than
            one, that of the first revision is kept as well.
        remember: revisions of a model that are listed, beside the first; no fewer than ``keep``.
    """

    def __init__(self, blobs: BlobStore, keep: int, *, remember: int = _REMEMBERED) -> None:
        self._blobs = blobs
        self._keep = keep
        self._remember = remember

    def look(self, session: Reader, model: ModelRecord) -> Past:
        """What a model is held against that is about to change."""
        return revisions.pasts(session, [model], signatures=False)[model.id]

    def measure(
        self, space: SpaceRecord, past: Past, packed: PackedSupport | None, signature: bytes
    ) -> Drift | None:
        """Hold a new content against a model's past; None where that takes the signature of the
        present one, which nobody asked for.

        Args:
            space: of the model.
            past: what it has been until now.
            packed: the new support; None where only a signature was sent.
            signature: the new one's little-endian values.
        """
        new, model, first = _Side(packed, signature), past.model, past.first
        before = self._side(space, model.blob_key, model.support_size, past.signature)
        previous = _self_overlap(space, new, before)
        if previous is None:
            return None
        if first is None:
            return Drift(past, previous, previous)
        origin = self._side(space, first.blob_key, first.support_size, first.signature)
        overlap = _self_overlap(space, new, origin)
        return None if overlap is None else Drift(past, previous, overlap)

    def add(self, session: Writer, space: SpaceRecord, changes: Sequence[Change]) -> None:
        """Record that these models change; the rows of the models still say what they were.

        Args:
            session: holds the space's lock.
            space: where.
            changes: of distinct models.
        """
        if not changes:
            return
        stale = [change.model for change in changes if not _fits(change)]
        pasts = revisions.pasts(session, stale, signatures=True) if stale else {}
        drifts = [
            change.drift
            if change.drift is not None and change.model.id not in pasts
            else self._measure_anew(space, pasts[change.model.id], change.content)
            for change in changes
        ]
        revisions.insert_revisions(
            session,
            [
                NewRevision(change.model, drift.past, change.content, drift.previous, drift.first)
                for change, drift in zip(changes, drifts, strict=True)
            ],
        )
        self._let_go(session, changes, [drift.past for drift in drifts])

    def forget(self, session: Writer, model: ModelRecord) -> None:
        """Let all supports of a model go that is about to be deleted."""
        for key in revisions.blob_keys_of(session, model):
            session.after_commit(partial(self._blobs.delete, key))

    def _measure_anew(self, space: SpaceRecord, past: Past, content: Content) -> Drift:
        new = self._side(space, content.blob_key, content.support_size, content.signature)
        drift = self.measure(space, past, new.packed, content.signature)
        assert drift is not None, "every model has a signature"
        return drift

    def _let_go(self, session: Writer, changes: Sequence[Change], pasts: Sequence[Past]) -> None:
        """Delete what is too old to be kept, once the change is durable."""
        dropped: dict[tuple[int, int], str] = {}
        for change, past in zip(changes, pasts, strict=True):
            model, newest = change.model, change.model.revision + 1
            first = model.revision if past.first is None else past.first.revision
            blobs = dict(past.kept)
            if model.blob_key is not None:
                blobs[model.revision] = model.blob_key
            dropped |= {
                (model.id, number): key
                for number, key in blobs.items()
                if number <= newest - self._keep and (number != first or self._keep == 1)
            }
            if newest > self._remember:
                revisions.drop_rows(session, model.id, newest - self._remember)
        if dropped:
            revisions.drop_blobs(session, dropped)
        for key in dropped.values():
            session.after_commit(partial(self._blobs.delete, key))

    def _side(
        self, space: SpaceRecord, blob_key: str | None, support_size: int, signature: bytes | None
    ) -> _Side:
        """A stored content; without its support where that is lost, damaged or just replaced."""
        packed = None
        if blob_key is not None:
            try:
                data = self._blobs.open(blob_key)
                packed = PackedSupport.from_buffer(data, space.num_parameters, support_size)
            except (KeyError, InvalidSupport, Unavailable):
                pass
        return _Side(packed, signature)


def _fits(change: Change) -> bool:
    """Whether what was measured before the lock was held against the model as it is."""
    if change.drift is None:
        return False
    model = change.drift.past.model
    return (model.id, model.revision) == (change.model.id, change.model.revision)


def _self_overlap(space: SpaceRecord, a: _Side, b: _Side) -> SelfOverlap | None:
    """How near they are, counted or else estimated; None where there is nothing to do that with."""
    if a.packed is not None and b.packed is not None:
        shared = shared_packed(a.packed, b.packed)
        return SelfOverlap(shared / (a.packed.k + b.packed.k - shared), exact=True)
    if a.signature is None or b.signature is None:
        return None
    dtype = value_dtype(space.signature.scheme).newbyteorder("<")
    equal = np.frombuffer(a.signature, dtype) == np.frombuffer(b.signature, dtype)
    return SelfOverlap(float(np.count_nonzero(equal)) / space.signature.num_perm, exact=False)
