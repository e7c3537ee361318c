"""Ingest: a support or a signature becomes a model, or the next revision of one, whole and durable.

What takes time (signing, packing, writing the blob) is done in ``prepare`` before the write
transaction begins; ``put`` then only records it. One model or many: the rules are the same, and
stand in ``put_each``. Whatever becomes of the transaction, no blob is left that no row names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from app.services.rules import (
    PreparedSupport,
    Put,
    Stored,
    bytes_of,
    check_match,
    signature_content,
)
from app.stores.ports import BlobStore, ModelRecord, SpaceRecord
from app.stores.sql import models, spaces
from app.stores.sql.database import Reader, Writer
from modelkin.core.packed import PackedSupport
from modelkin.core.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import (
    ModelkinError,
    SpaceMismatch,
    Unavailable,
)
from modelkin.types import UNCHANGED, Unchanged

__all__ = ["IngestService"]


class IngestService:
    """The use cases that change models."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def prepare(
        self, session: Reader, space: SpaceRecord, name: str, support: Support
    ) -> PreparedSupport:
        """Do everything about ``support`` that needs no lock.

        Raises:
            SpaceMismatch: it is of another number of parameters.
            StorageFull, Unavailable: it could not be written.
        """
        if support.num_parameters != space.num_parameters:
            raise SpaceMismatch(
                f"the support is of {support.num_parameters} parameters, "
                f"space {space.name!r} of {space.num_parameters}"
            )
        spec = space.signature
        signature = support.signature(spec.num_perm, spec.seed, spec.scheme)
        packed = PackedSupport.pack(support).to_bytes()
        current = models.find_model(session, space, name)
        session.rollback()  # ends the read: the connection goes back while the disk is busy
        held = current.blob_key if current and current.digest == support.digest else None
        intact = held is not None and self._holds(held, packed)
        return PreparedSupport(
            support=support,
            signature=bytes_of(signature),
            packed=packed,
            blob_key=None if intact else self._blobs.put(str(space.id), packed),
            damaged=None if intact else held,
        )

    def put(self, session: Writer, space: SpaceRecord, put: Put) -> Stored:
        """Record one model.

        The same content again changes nothing, but mends a damaged file. A model that had only a
        signature becomes a full one with its support.

        Raises:
            SpaceMismatch: a signature whose scheme, number of values, seed or M is not the space's.
            SupportExists: a signature for a model that has a support.
            PreconditionFailed: the model is not the one of ``if_match``.
        """
        [stored] = self.put_each(session, space, [put])
        if isinstance(stored, ModelkinError):
            raise stored
        return stored

    def put_each(
        self, session: Writer, space: SpaceRecord, puts: Sequence[Put]
    ) -> list[Stored | ModelkinError]:
        """Record models of distinct names, in order; what :meth:`put` raises stands in its place.

        A refused one leaves the others as they are; new ones take as many statements as a single
        one does.
        """
        for put in puts:
            self._delete_unless_committed(session, put)
        space = spaces.lock_space(session, space)
        known = models.find_models(session, space, [put.name for put in puts])
        signatures = _signatures(session, known, puts)
        results: list[Stored | ModelkinError | None] = [None] * len(puts)
        new: dict[int, models.NewModel] = {}
        changed: dict[int, tuple[ModelRecord, models.Content]] = {}
        for place, put in enumerate(puts):
            current = known.get(put.name)
            try:
                content = self._content(session, space, put, current, signatures)
            except ModelkinError as error:
                self.discard(put)
                results[place] = error
                continue
            if current is None:
                assert content is not None
                new[place] = models.NewModel(
                    put.name, content, put.tags or (), put.attributes or {}
                )
            elif content is None:
                results[place] = _describe(session, space, put, current, None)
            else:
                changed[place] = current, content
        for place, model in zip(
            changed, self._change(session, space, changed.values()), strict=True
        ):
            described = _describe(session, space, puts[place], model, model.version)
            results[place] = Stored(described.model, "replaced")
        for place, model in zip(new, _insert(session, space, list(new.values())), strict=True):
            results[place] = Stored(model, "created")
        return [result for result in results if result is not None]

    def discard(self, put: Put) -> None:
        """Delete what was prepared for a put that is not to be."""
        if isinstance(put.content, PreparedSupport) and put.content.blob_key is not None:
            self._blobs.delete(put.content.blob_key)

    def update(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        *,
        tags: Sequence[str] | None,
        attributes: dict[str, Any] | None,
        source: str | Unchanged | None,
        base_model: str | Unchanged | None,
        if_match: str | None,
    ) -> ModelRecord:
        """Replace what is said of a model; what is None or UNCHANGED stays."""
        space = spaces.lock_space(session, space)
        current = models.get_model(session, space, name)
        check_match(current, if_match, name)
        columns = {
            column: value
            for column, value in (
                ("attributes", UNCHANGED if attributes is None else attributes),
                ("source", source),
                ("base_model", base_model),
            )
            if value is not UNCHANGED and value != getattr(current, column)
        }
        new_tags = None if tags is None or tuple(tags) == current.tags else tags
        if not columns and new_tags is None:
            return current
        version = spaces.advance(session, space)
        models.update_metadata(session, current, version=version, tags=new_tags, **columns)
        return models.get_model(session, space, name)

    def delete(
        self, session: Writer, space: SpaceRecord, name: str, *, if_match: str | None
    ) -> None:
        """Remove a model, its support and its signature."""
        space = spaces.lock_space(session, space)
        current = models.get_model(session, space, name)
        check_match(current, if_match, name)
        version = spaces.advance(session, space, **{f"{current.kind}s": -1})
        models.delete_model(session, current, version=version)
        self._delete_blob_after(session, current)

    def _content(
        self,
        session: Writer,
        space: SpaceRecord,
        put: Put,
        current: ModelRecord | None,
        signatures: dict[int, bytes],
    ) -> models.Content | None:
        """What the model is to be from now on; None where it is that already."""
        check_match(current, put.if_match, put.name)
        if isinstance(put.content, PreparedSupport):
            return self._support(session, space, put.content, current)
        return signature_content(space, put.name, put.content, current, signatures)

    def _support(
        self,
        session: Writer,
        space: SpaceRecord,
        prepared: PreparedSupport,
        current: ModelRecord | None,
    ) -> models.Content | None:
        blob_key = prepared.blob_key
        if current is not None and current.digest == prepared.support.digest:
            if blob_key is not None:
                unneeded = blob_key
                if current.blob_key is not None and current.blob_key == prepared.damaged:
                    unneeded = current.blob_key
                    models.move_blob(session, current, blob_key)
                session.after_commit(partial(self._blobs.delete, unneeded))
            return None
        if blob_key is None:  # the model changed between prepare and here, so its blob is not ours
            blob_key = self._blobs.put(str(space.id), prepared.packed)
            session.after_rollback(partial(self._blobs.delete, blob_key))
        return models.Content(
            kind="support",
            support_size=prepared.support.k,
            digest=prepared.support.digest,
            blob_key=blob_key,
            signature=prepared.signature,
        )

    def _change(
        self,
        session: Writer,
        space: SpaceRecord,
        changes: Collection[tuple[ModelRecord, models.Content]],
    ) -> list[ModelRecord]:
        if not changes:
            return []
        moved = Counter(content.kind for _, content in changes)
        moved.subtract(model.kind for model, _ in changes)
        first = (
            1
            - len(changes)
            + spaces.advance(
                session,
                space,
                by=len(changes),
                supports=moved["support"],
                signatures=moved["signature"],
            )
        )
        for model, _ in changes:
            self._delete_blob_after(session, model)
        return models.update_contents(
            session, [(*change, first + place) for place, change in enumerate(changes)]
        )

    def _delete_unless_committed(self, session: Writer, put: Put) -> None:
        if isinstance(put.content, PreparedSupport) and put.content.blob_key is not None:
            session.after_rollback(partial(self._blobs.delete, put.content.blob_key))

    def _holds(self, blob_key: str, packed: bytes) -> bool:
        """Whether the blob is there and is ``packed``: a disk may lose what it was given."""
        try:
            found = np.frombuffer(self._blobs.open(blob_key), np.uint8)
            return np.array_equal(found, np.frombuffer(packed, np.uint8))
        except (KeyError, Unavailable):
            return False

    def _delete_blob_after(self, session: Writer, model: ModelRecord) -> None:
        if model.blob_key is not None:
            session.after_commit(partial(self._blobs.delete, model.blob_key))


def _signatures(
    session: Writer, known: dict[str, ModelRecord], puts: Sequence[Put]
) -> dict[int, bytes]:
    """The signatures that the puts' own are compared with, under the ids of their models."""
    compared = [
        known[put.name].id
        for put in puts
        if isinstance(put.content, Signature) and put.name in known
    ]
    return models.signatures_by_id(session, compared)


def _insert(
    session: Writer, space: SpaceRecord, new: Sequence[models.NewModel]
) -> list[ModelRecord]:
    if not new:
        return []
    supports = sum(model.content.kind == "support" for model in new)
    version = spaces.advance(
        session, space, by=len(new), supports=supports, signatures=len(new) - supports
    )
    return models.insert_models(session, space, new, version=version - len(new) + 1)


def _describe(
    session: Writer, space: SpaceRecord, put: Put, current: ModelRecord, version: int | None
) -> Stored:
    """Replace what is said of a model, where the put says something else.

    ``version`` is the one of this change where its content changed too.
    """
    tags = None if put.tags is None or tuple(put.tags) == current.tags else put.tags
    columns = {}
    if put.attributes is not None and put.attributes != current.attributes:
        columns["attributes"] = put.attributes
    if tags is None and not columns:
        return Stored(current, "unchanged")
    if version is None:
        version = spaces.advance(session, space)
    models.update_metadata(session, current, version=version, tags=tags, **columns)
    return Stored(models.get_model(session, space, current.name), "replaced")
