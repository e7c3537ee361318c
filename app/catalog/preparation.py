"""The preparation of a put: a support is processed before the lock, and finished under it.

This module owns the blobs of a put: after any transaction, every blob has a row that names it or is
listed as released. It writes no other row, except for the new place of a repaired blob.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from app.catalog.origins import require_same_origin
from app.catalog.puts import (
    PreparedSupport,
    Put,
    require_met,
    require_size,
    signature_content,
)
from app.catalog.records import ModelRecord
from app.catalog.repositories import models, revisions, tensor_counts
from app.catalog.revision_recorder import RevisionRecorder
from app.catalog.sketches import require_fitting
from app.errors import Unavailable
from app.index.banding import BandValueService, signature_bytes
from app.infra.db.database import Reader, Writer
from app.infra.db.released_blobs import release
from app.infra.storage.blobs import BlobGroup, BlobStore
from app.spaces import layout_repository
from app.spaces import repository as spaces
from app.spaces.records import SpaceRecord
from modelkin.core.packed import PackedSupport
from modelkin.core.support import Support
from modelkin.errors import SpaceMismatch

__all__ = ["Preparation"]


class Preparation:
    """Prepares the contents of puts.

    Args:
        blobs: stores supports.
        bands: the band values of spaces with a stop-list.
        history: of the models.
    """

    def __init__(
        self, blobs: BlobStore, bands: BandValueService, history: RevisionRecorder
    ) -> None:
        self._blobs = blobs
        self._bands = bands
        self._history = history

    def group(self, space: SpaceRecord) -> BlobGroup:
        """For supports whose files are synced together."""
        return self._blobs.group(str(space.id))

    def prepare(
        self,
        session: Reader,
        space: SpaceRecord,
        name: str,
        support: Support,
        group: BlobGroup | None = None,
    ) -> PreparedSupport:
        """Process ``support`` as far as that needs no lock.

        Args:
            session: ends its transaction.
            space: of the model.
            name: of the model.
            support: to be stored.
            group: with what it is synced; by default it is synced here.

        Raises:
            SpaceMismatch: it is of another number of parameters, or larger than the space allows.
            StorageFull, Unavailable: it could not be written.
        """
        if support.num_parameters != space.num_parameters:
            raise SpaceMismatch(
                f"the support is of {support.num_parameters} parameters, "
                f"space {space.name!r} of {space.num_parameters}"
            )
        require_size(space, support.k)
        spec = space.signature
        form = PackedSupport.pack(support)
        signature = signature_bytes(form.signature(spec.num_perm, spec.seed, spec.scheme))
        packed = form.to_bytes()
        band_values = self._bands.prepare(session, space, support)
        sizes = layout_repository.tensor_sizes(session, space)
        current = models.find_model(session, space, name)
        same = current is not None and current.digest == support.digest
        past = None if current is None or same else self._history.past(session, current)
        session.rollback()  # ends the read: the connection goes back while the disk is busy
        drift = None if past is None else self._history.measure(space, past, form, signature)
        held = current.blob_key if current is not None and same else None
        intact = held is not None and self._holds(held, packed)
        counts = tensor_counts.encode(space, sizes, support.indices)
        return PreparedSupport(  # nothing may fail any more once the blob is written
            support=support,
            signature=signature,
            packed=packed,
            blob_key=None if intact else self._written(space, packed, group),
            damaged=None if intact else held,
            band_values=band_values,
            tensor_counts=counts,
            drift=drift,
        )

    def _written(self, space: SpaceRecord, packed: bytes, group: BlobGroup | None) -> str:
        return self._blobs.put(str(space.id), packed) if group is None else group.put(packed)

    def of(
        self,
        session: Writer,
        space: SpaceRecord,
        put: Put,
        current: ModelRecord | None,
        signatures: dict[int, bytes],
    ) -> models.Content | None:
        """The new content of the model; None if the model has it already.

        Args:
            session: holds the space's lock.
            space: of the model.
            put: to be stored.
            current: the model as stored, or None.
            signatures: stored values by the ids of their models.

        Raises:
            PreconditionFailed, SpaceMismatch, SupportExists: the put is refused.
        """
        require_met(put.precondition, put.name, current)
        require_same_origin(space, put.origin)
        if isinstance(put.content, PreparedSupport):
            return self._support(session, space, put.content, current)
        content = signature_content(space, put.name, put.content, current, signatures)
        if put.sketch is None:
            return content
        require_fitting(space, put.content.support_size, put.sketch)
        return None if content is None else replace(content, sketch=put.sketch.to_bytes())

    def discard(self, put: Put, content: models.Content | None = None) -> None:
        """Delete the prepared blob of a refused put, and the one that its content has."""
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
    ) -> models.Content | None:
        blob_key = prepared.blob_key
        if current is not None and current.digest == prepared.support.digest:
            if blob_key is None:
                return None
            if current.blob_key is not None and current.blob_key == prepared.damaged:
                self._move(session, space, current, blob_key, len(prepared.packed))
                release(session, space.tenant_id, {current.blob_key: current.blob_size})
            else:
                session.after_commit(partial(self._blobs.delete, blob_key))
            return None
        if blob_key is None:  # the model changed between prepare and here, so its blob is not ours
            blob_key = self._blobs.put(str(space.id), prepared.packed)
            session.after_rollback(partial(self._blobs.delete, blob_key))
        return models.Content(
            kind="support",
            support_size=prepared.support.k,
            digest=prepared.support.digest,
            blob_key=blob_key,
            blob_size=len(prepared.packed),
            signature=prepared.signature,
            band_values=self._bands.settle(session, space, prepared.support, prepared.band_values),
            tensor_counts=prepared.tensor_counts,
        )

    @staticmethod
    def _move(
        session: Writer, space: SpaceRecord, model: ModelRecord, blob_key: str, blob_size: int
    ) -> None:
        """Record the new blob of a repaired support."""
        models.move_blob(session, model, blob_key, blob_size)
        revisions.move_blob(session, model, blob_key, blob_size)
        if blob_size != (model.blob_size or 0):
            spaces.add_support_bytes(session, space, blob_size - (model.blob_size or 0))

    def _holds(self, blob_key: str, packed: bytes) -> bool:
        """Whether the blob exists and equals ``packed``: a disk may lose data."""
        try:
            found = np.frombuffer(self._blobs.open(blob_key), np.uint8)
            return np.array_equal(found, np.frombuffer(packed, np.uint8))
        except (KeyError, Unavailable):
            return False
