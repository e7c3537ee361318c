"""The preparation of a put: a support is processed before the lock, and finished under it.

This module owns the blobs of a put: after any transaction, every blob has a row that names it or is
listed as released. It writes no other row, except for the new place of a repaired blob.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.infra.db.database import Reader, Writer
from app.infra.db.released_blobs import release
from app.infra.storage.blobs import BlobStore
from app.models.catalog.puts import (
    PreparedSupport,
    Put,
    require_covering,
    require_met,
    require_same_order,
    require_size,
    signature_content,
    subspace_content,
)
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories import model_writes, models, revisions, tensor_counts
from app.models.catalog.revision_recorder import RevisionRecorder
from app.models.catalog.sketches import require_fitting
from app.models.index.banding import signature_bytes
from app.models.index.sketch_heads import head_of
from app.models.spaces.origins import require_same_origin
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories import layouts, spaces
from modelkin.core.packed import PackedSupport
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import ModelkinError, SpaceMismatch

__all__ = ["Preparation"]


class Preparation:
    """Prepares the contents of puts.

    Args:
        blobs: the store of supports.
        history: the recorder of the models' revisions.
    """

    def __init__(self, blobs: BlobStore, history: RevisionRecorder) -> None:
        self._blobs = blobs
        self._history = history

    def prepare(
        self, session: Reader, space: SpaceRecord, supports: Sequence[tuple[str, Support]]
    ) -> list[PreparedSupport | ModelkinError]:
        """Process the supports of some models as far as that needs no lock.

        A support of another number of parameters or order, or larger than the space allows,
        becomes an error in its place.

        Raises:
            StorageFull, Unavailable: a store failed, or cannot say whether it has a support; no
                blob is left.
        """
        refusals = [_refusal(space, support) for _, support in supports]
        fitting = [pair for pair, no in zip(supports, refusals, strict=True) if no is None]
        prepared = iter(self._prepare(session, space, fitting))
        return [next(prepared) if no is None else no for no in refusals]

    def _prepare(
        self, session: Reader, space: SpaceRecord, supports: Sequence[tuple[str, Support]]
    ) -> list[PreparedSupport]:
        """Prepare supports that fit the space, and write their blobs."""
        if not supports:
            return []
        sizes = layouts.tensor_sizes(session, space)
        current = models.find_models(session, space, [name for name, _ in supports])
        held = [_holder(current.get(name), support) for name, support in supports]
        changing = [
            current[name]
            for (name, _), same in zip(supports, held, strict=True)
            if name in current and same is None
        ]
        pasts = self._history.pasts(session, changing)
        session.rollback()  # ends the read: the connection goes back while the disk is busy
        prepared = []
        for (name, support), same in zip(supports, held, strict=True):
            form, spec = PackedSupport.pack(support), space.signature
            signature = signature_bytes(form.signature(spec.num_perm, spec.seed, spec.scheme))
            past = pasts.get(current[name].id) if name in current and same is None else None
            drift = None if past is None else self._history.measure(space, past, form, signature)
            prepared.append(
                PreparedSupport(
                    support=support,
                    signature=signature,
                    packed=form.to_bytes(),
                    blob_key=None,
                    damaged=None if same is None else same.blob_key,
                    tensor_counts=tensor_counts.encode(space, sizes, support.indices),
                    drift=drift,
                )
            )
        return self._with_blobs(space, prepared)

    def _with_blobs(
        self, space: SpaceRecord, prepared: Sequence[PreparedSupport]
    ) -> list[PreparedSupport]:
        """Write the blobs of all supports but those that their models hold undamaged.

        Nothing may fail any more once they are written.
        """
        intact = [
            each.damaged is not None and self._blobs.holds(each.damaged, each.packed)
            for each in prepared
        ]
        missing = [each for each, kept in zip(prepared, intact, strict=True) if not kept]
        keys = iter(
            self._blobs.put_many(
                str(space.id),
                [each.packed for each in missing],
                [self._head(space, each) for each in missing],
            )
        )
        return [
            replace(each, damaged=None) if kept else replace(each, blob_key=next(keys))
            for each, kept in zip(prepared, intact, strict=True)
        ]

    def of(
        self,
        session: Writer,
        space: SpaceRecord,
        put: Put,
        current: ModelRecord | None,
        signatures: dict[int, bytes],
    ) -> model_writes.Content | None:
        """Return the new content of the model; None if the model has it already.

        Args:
            session: a transaction that holds the space's lock.
            current: the model as stored, or None.
            signatures: stored values by the ids of their models.

        Raises:
            PreconditionFailed, SpaceMismatch, SupportExists, WrongKind, PayloadTooLarge: the put is
                refused.
        """
        require_met(put.precondition, put.name, current)
        require_same_origin(space, put.origin)
        if isinstance(put.content, PreparedSupport):
            return self._support(session, space, put.content, current)
        if isinstance(put.content, Subspace):
            return subspace_content(space, put.content, current)
        content = signature_content(space, put.name, put.content, current, signatures)
        if put.sketch is None:
            return content
        require_fitting(space, put.content.support_size, put.sketch)
        return None if content is None else replace(content, sketch=put.sketch.to_bytes())

    def discard(self, put: Put, content: model_writes.Content | None = None) -> None:
        """Delete the prepared blob of a refused put, and the blob of its content."""
        keys = {None if content is None else content.blob_key}
        if isinstance(put.content, PreparedSupport):
            keys.add(put.content.blob_key)
        for key in keys - {None}:
            self._blobs.delete(str(key))

    def delete_unless_committed(self, session: Writer, put: Put) -> None:
        """Delete the prepared blob if the transaction fails."""
        session.after_rollback(partial(self.discard, put))

    def _support(
        self,
        session: Writer,
        space: SpaceRecord,
        prepared: PreparedSupport,
        current: ModelRecord | None,
    ) -> model_writes.Content | None:
        blob_key = prepared.blob_key
        if current is not None and current.digest == prepared.support.digest:
            if blob_key is None:
                return None
            if current.blob_key is not None and current.blob_key == prepared.damaged:
                self._move(session, space, current, blob_key, len(prepared.packed))
                release(session, space.tenant_id, {current.blob_key: current.blob_size})
            else:
                release(session, space.tenant_id, {blob_key: len(prepared.packed)})
            return None
        if blob_key is None:  # the model changed between prepare and here, so its blob is not ours
            blob_key = self._blobs.put(str(space.id), prepared.packed, self._head(space, prepared))
            session.after_rollback(partial(self._blobs.delete, blob_key))
        return model_writes.Content(
            kind="support",
            support_size=prepared.support.k,
            digest=prepared.support.digest,
            blob_key=blob_key,
            blob_size=len(prepared.packed),
            signature=prepared.signature,
            tensor_counts=prepared.tensor_counts,
        )

    @staticmethod
    def _move(
        session: Writer, space: SpaceRecord, model: ModelRecord, blob_key: str, blob_size: int
    ) -> None:
        """Record the new blob of a repaired support."""
        model_writes.move_blob(session, model, blob_key, blob_size)
        revisions.move_blob(session, model, blob_key, blob_size)
        if blob_size != (model.blob_size or 0):
            spaces.add_support_bytes(session, space, blob_size - (model.blob_size or 0))

    def _head(self, space: SpaceRecord, prepared: PreparedSupport) -> bytes:
        """The sketch of a support, for stores from which machines read it without the support."""
        if not self._blobs.keeps_heads:
            return b""
        m, k = space.num_parameters, prepared.support.k
        return head_of(PackedSupport.from_buffer(prepared.packed, m, k))


def _refusal(space: SpaceRecord, support: Support) -> ModelkinError | None:
    """Return the error for a support that the space refuses, or None."""
    if support.num_parameters != space.num_parameters:
        return SpaceMismatch(
            f"the support is of {support.num_parameters} parameters, "
            f"space {space.name!r} of {space.num_parameters}"
        )
    try:
        require_covering(space, support)
        require_same_order(space, support)
        require_size(space, support.k)
    except ModelkinError as error:
        return error
    return None


def _holder(current: ModelRecord | None, support: Support) -> ModelRecord | None:
    """The model, if it has this very support already."""
    return current if current is not None and current.digest == support.digest else None
