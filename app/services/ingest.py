"""Ingest: a support or a signature becomes a model, or the next revision of one, whole and durable.

What takes time (signing, packing, writing the blob) is done in ``prepare`` before the write
transaction begins; ``put`` then only records it. One model or many: the rules are the same, and
stand in ``put_each``. Whatever becomes of the transaction, no blob is left that no row names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from app.stores.ports import BlobStore, ModelRecord, SpaceRecord
from app.stores.sql import models, spaces
from app.stores.sql.database import Reader, Writer
from modelkin.core.packed import PackedSupport
from modelkin.core.signature import Signature, value_dtype
from modelkin.core.support import Support
from modelkin.errors import (
    ModelkinError,
    PreconditionFailed,
    SpaceMismatch,
    SupportExists,
    Unavailable,
)
from modelkin.types import UNCHANGED, Unchanged

__all__ = ["IngestService", "PreparedSupport", "Put", "Stored", "etag_of", "require_same_space"]


@dataclass(frozen=True, slots=True)
class PreparedSupport:
    """A support ready to be recorded: signed, and packed for overlap."""

    support: Support
    signature: bytes
    packed: bytes
    blob_key: str | None
    """Where the packed form already lies; None if the model holds this very support."""
    damaged: str | None
    """The blob of this very support, if it is lost or not what was stored."""


@dataclass(frozen=True, slots=True)
class Put:
    """What is to stand under a name; tags and attributes that are None stay as they are."""

    name: str
    content: PreparedSupport | Signature
    tags: Sequence[str] | None = None
    attributes: dict[str, Any] | None = None
    if_match: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A model as it stands now, and what the put did to it."""

    model: ModelRecord
    status: Literal["created", "replaced", "unchanged"]


def etag_of(model: ModelRecord) -> str:
    """The entity tag of a model as it stands: it changes with every change of the model.

    It tells nothing of other tenants, as an id would: the version is the space's own. A space that
    was deleted and made again counts from 0, so the tag holds the time of the model's making too.
    """
    made = model.created_at.timestamp()
    return f'"{model.version:x}-{model.revision:x}-{round(made * 1e6):x}"'


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
            signature=_bytes_of(signature),
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
        results: list[Stored | ModelkinError | None] = []
        new: list[models.NewModel] = []
        for put in puts:
            current = known.get(put.name)
            try:
                content = self._content(session, space, put, current, signatures)
            except ModelkinError as error:
                self.discard(put)
                results.append(error)
                continue
            if current is not None:
                results.append(self._replace(session, space, put, current, content))
                continue
            assert content is not None
            new.append(models.NewModel(put.name, content, put.tags or (), put.attributes or {}))
            results.append(None)
        created = iter(self._insert(session, space, new))
        return [Stored(next(created), "created") if r is None else r for r in results]

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
        _check_match(current, if_match, name)
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
        _check_match(current, if_match, name)
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
        _check_match(current, put.if_match, put.name)
        if isinstance(put.content, PreparedSupport):
            return self._support(session, space, put.content, current)
        return _signature(space, put.name, put.content, current, signatures)

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

    def _insert(
        self, session: Writer, space: SpaceRecord, new: Sequence[models.NewModel]
    ) -> list[ModelRecord]:
        if not new:
            return []
        supports = sum(model.content.kind == "support" for model in new)
        version = spaces.advance(
            session, space, by=len(new), supports=supports, signatures=len(new) - supports
        )
        return models.insert_models(session, space, new, version=version - len(new) + 1)

    def _replace(
        self,
        session: Writer,
        space: SpaceRecord,
        put: Put,
        current: ModelRecord,
        content: models.Content | None,
    ) -> Stored:
        tags = None if put.tags is None or tuple(put.tags) == current.tags else put.tags
        columns = {}
        if put.attributes is not None and put.attributes != current.attributes:
            columns["attributes"] = put.attributes
        if content is None and tags is None and not columns:
            return Stored(current, "unchanged")
        moved = {} if content is None else _moved(current.kind, content.kind)
        version = spaces.advance(session, space, **moved)
        if content is not None:
            models.update_content(session, current, content, version=version)
            self._delete_blob_after(session, current)
        if tags is not None or columns:
            models.update_metadata(session, current, version=version, tags=tags, **columns)
        return Stored(models.get_model(session, space, current.name), "replaced")

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


def require_same_space(space: SpaceRecord, signature: Signature) -> None:
    """:class:`SpaceMismatch` unless ``signature`` compares with the space's."""
    spec = space.signature
    for what, theirs, ours in (
        ("scheme", signature.scheme, spec.scheme),
        ("num_perm", signature.num_perm, spec.num_perm),
        ("seed", signature.seed, spec.seed),
        ("num_parameters", signature.num_parameters, space.num_parameters),
    ):
        if theirs != ours:
            raise SpaceMismatch(
                f"the signature's {what} is {theirs}, that of space {space.name!r} is {ours}"
            )


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


def _signature(
    space: SpaceRecord,
    name: str,
    signature: Signature,
    current: ModelRecord | None,
    signatures: dict[int, bytes],
) -> models.Content | None:
    require_same_space(space, signature)
    values = _bytes_of(signature)
    if current is not None:
        if current.kind == "support":
            raise SupportExists(
                f"model {name!r} has a support, and its signature is computed from that: "
                f"read it here, or delete the model first"
            )
        if signatures.get(current.id) == values and current.support_size == signature.support_size:
            return None
    return models.Content(
        kind="signature",
        support_size=signature.support_size,
        digest=None,
        blob_key=None,
        signature=values,
    )


def _bytes_of(signature: Signature) -> bytes:
    dtype = np.dtype(value_dtype(signature.scheme)).newbyteorder("<")
    return signature.values.astype(dtype, copy=False).tobytes()


def _moved(before: str, after: str) -> dict[str, int]:
    """How the space's counts change when a model of one kind becomes one of another."""
    return {} if before == after else {f"{before}s": -1, f"{after}s": 1}


def _check_match(current: ModelRecord | None, if_match: str | None, name: str) -> None:
    """RFC 9110, 13.1.1: ``*`` asks that there is a model, tags that it is one of those."""
    if if_match is None:
        return
    if current is None:
        raise PreconditionFailed(f"If-Match was sent, and there is no model {name!r}")
    wanted = [tag.strip() for tag in if_match.split(",")]
    if "*" not in wanted and etag_of(current) not in wanted:
        raise PreconditionFailed(
            f"model {name!r} has changed: it is {etag_of(current)} now, If-Match said {if_match}"
        )
