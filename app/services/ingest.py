"""Ingest: a support or a signature becomes a model, or the next revision of one, whole and durable.

What takes time (signing, packing, writing the blob) is done in ``prepare`` before the write
transaction begins; ``put_support`` then only records it. Whatever becomes of the transaction, no
blob is left that no row names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from app.stores.ports import BlobStore, ModelRecord, SpaceRecord
from app.stores.sql import models, spaces
from app.stores.sql.database import Reader, Writer
from modelkin.core.packed import PackedSupport
from modelkin.core.signature import Signature, value_dtype
from modelkin.core.support import Support
from modelkin.errors import PreconditionFailed, SpaceMismatch, SupportExists, Unavailable
from modelkin.types import UNCHANGED, Unchanged

__all__ = ["IngestService", "PreparedSupport", "etag_of"]


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


def etag_of(model: ModelRecord) -> str:
    """The entity tag of a model as it stands: it changes with every change of the model.

    It tells nothing of other tenants, as an id would: the version is the space's own.
    """
    return f'"{model.version:x}-{model.revision:x}"'


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

    def put_support(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        prepared: PreparedSupport,
        *,
        tags: Sequence[str] | None,
        if_match: str | None,
    ) -> tuple[ModelRecord, bool]:
        """Record a prepared support under ``name``; answers the model and whether it is new.

        The same content again changes nothing, but mends a damaged file. ``tags`` replaces the
        model's tags where given. A model that had only a signature becomes a full one.
        """
        blob_key = prepared.blob_key
        if blob_key is not None:
            session.after_rollback(partial(self._blobs.delete, blob_key))
        space = spaces.lock_space(session, space)
        current = models.find_model(session, space, name)
        _check_match(current, if_match, name)
        if current is not None and current.digest == prepared.support.digest:
            if blob_key is not None:
                unneeded = blob_key
                if current.blob_key is not None and current.blob_key == prepared.damaged:
                    unneeded = current.blob_key
                    models.move_blob(session, current, blob_key)
                session.after_commit(partial(self._blobs.delete, unneeded))
            return self._retag(session, space, current, tags), False
        if blob_key is None:  # the model changed between prepare and here, so its blob is not ours
            blob_key = self._blobs.put(str(space.id), prepared.packed)
            session.after_rollback(partial(self._blobs.delete, blob_key))
        content = models.Content(
            kind="support",
            support_size=prepared.support.k,
            digest=prepared.support.digest,
            blob_key=blob_key,
            signature=prepared.signature,
        )
        return self._record(session, space, current, name, content, tags)

    def put_signature(
        self,
        session: Writer,
        space: SpaceRecord,
        name: str,
        signature: Signature,
        *,
        tags: Sequence[str] | None,
        if_match: str | None,
    ) -> tuple[ModelRecord, bool]:
        """Record a signature alone under ``name``; answers the model and whether it is new.

        Raises:
            SpaceMismatch: its scheme, number of values, seed or M is not the space's.
            SupportExists: the model has a support, whose signature the service computes.
        """
        require_same_space(space, signature)
        space = spaces.lock_space(session, space)
        current = models.find_model(session, space, name)
        _check_match(current, if_match, name)
        values = _bytes_of(signature)
        if current is not None:
            if current.kind == "support":
                raise SupportExists(
                    f"model {name!r} has a support, and its signature is computed from that: "
                    f"read it here, or delete the model first"
                )
            same = models.signatures_by_id(session, [current.id]).get(current.id) == values
            if same and current.support_size == signature.support_size:
                return self._retag(session, space, current, tags), False
        content = models.Content(
            kind="signature",
            support_size=signature.support_size,
            digest=None,
            blob_key=None,
            signature=values,
        )
        return self._record(session, space, current, name, content, tags)

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

    def _record(
        self,
        session: Writer,
        space: SpaceRecord,
        current: ModelRecord | None,
        name: str,
        content: models.Content,
        tags: Sequence[str] | None,
    ) -> tuple[ModelRecord, bool]:
        if current is None:
            version = spaces.advance(session, space, **{f"{content.kind}s": 1})
            created = models.insert_model(
                session, space, name, content, version=version, tags=tags or ()
            )
            return created, True
        version = spaces.advance(session, space, **_moved(current.kind, content.kind))
        models.update_content(session, current, content, version=version)
        if tags is not None:
            models.update_metadata(session, current, version=version, tags=tags)
        self._delete_blob_after(session, current)
        return models.get_model(session, space, name), False

    def _retag(
        self,
        session: Writer,
        space: SpaceRecord,
        current: ModelRecord,
        tags: Sequence[str] | None,
    ) -> ModelRecord:
        if tags is None or tuple(tags) == current.tags:
            return current
        version = spaces.advance(session, space)
        models.update_metadata(session, current, version=version, tags=tags)
        return models.get_model(session, space, current.name)

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
