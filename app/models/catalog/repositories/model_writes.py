"""Queries that insert, change and delete models: their rows, tags and signatures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import delete, insert, update
from sqlalchemy.sql.dml import ReturningInsert

from app.infra.db.database import Writer
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SignatureRow, TagRow, TombstoneRow
from app.models.catalog.records import DeclaredBases, ModelRecord, StoredKind
from app.models.catalog.repositories.sketches import (
    draw_content_id,
    insert_sketches,
    replace_sketches,
)
from app.models.catalog.repositories.tensor_counts import insert_counts, replace_counts
from app.models.spaces.records import SpaceRecord

__all__ = [
    "Content",
    "NewModel",
    "delete_model",
    "insert_models",
    "move_blob",
    "update_contents",
    "update_declarations",
    "update_metadata",
]


@dataclass(frozen=True, slots=True)
class NewModel:
    """The initial data of a model."""

    name: str
    content: Content
    tags: Sequence[str] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    source: str | None = None
    base_model: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a model, without its metadata: its support or signature, and derived data."""

    kind: StoredKind
    support_size: int
    digest: str | None
    blob_key: str | None
    signature: bytes
    sketch: bytes | None = None
    """Sent by the client beside a signature, in the native format."""
    tensor_counts: bytes | None = None
    """The number of a support's indices in each tensor, in a space with a layout."""
    blob_size: int | None = None
    """The bytes of the blob; None for a signature."""

    def new_id(self) -> int:
        """A new id for this content; 0 if there can be no sketch of it."""
        if self.kind == "signature" and self.sketch is None:
            return 0
        return draw_content_id()


def insert_models(
    session: Writer, space: SpaceRecord, new: Sequence[NewModel], *, version: int
) -> list[ModelRecord]:
    """Insert models, in order, in as few statements as possible.

    The caller holds the space's lock, and has made sure that their names are free and distinct.
    ``version`` is the first model's version, and each following model has the next.
    """
    now = datetime.now(UTC)
    columns: list[dict[str, Any]] = [
        {
            "tenant_id": space.tenant_id,
            "space_id": space.id,
            "name": model.name,
            "kind": model.content.kind,
            "support_size": model.content.support_size,
            "digest": model.content.digest,
            "blob_key": model.content.blob_key,
            "blob_size": model.content.blob_size,
            "revision": 1,
            "version": version + position,
            "attributes": model.attributes,
            "source": model.source,
            "base_model": model.base_model,
            "created_at": now,
            "updated_at": now,
            "content_id": model.content.new_id(),
        }
        for position, model in enumerate(new)
    ]
    # Rows come back in any order, and are found by their versions.
    ids = {row.version: row.id for row in session.execute(_insert_statement(), columns)}
    made = []
    for position, (row, model) in enumerate(zip(columns, new, strict=True)):
        shown = {name: row[name] for name in row.keys() - {"tenant_id", "attributes"}}
        attributes, tags = json.dumps(model.attributes), tuple(model.tags)
        shown |= {"attributes_json": attributes, "tags": tags, "id": ids[version + position]}
        made.append(ModelRecord(**shown))
    pairs = list(zip(made, new, strict=True))
    session.execute(
        insert(table_of(SignatureRow)),
        [{"model_id": row.id, "values": model.content.signature} for row, model in pairs],
    )
    insert_sketches(session, {row.id: model.content.sketch for row, model in pairs})
    insert_counts(session, {row.id: model.content.tensor_counts for row, model in pairs})
    if tagged := [{"model_id": row.id, "tag": tag} for row in made for tag in row.tags]:
        session.execute(insert(TagRow), tagged)
    return made


def update_contents(
    session: Writer, changes: Sequence[tuple[ModelRecord, Content, int]]
) -> list[ModelRecord]:
    """Replace the contents of models, each at a version: their next revisions, in few statements.

    The caller holds the space's lock, so the records are up to date.
    """
    now = datetime.now(UTC)
    changed = [
        replace(
            model,
            kind=content.kind,
            support_size=content.support_size,
            digest=content.digest,
            blob_key=content.blob_key,
            blob_size=content.blob_size,
            revision=model.revision + 1,
            version=version,
            updated_at=now,
            content_id=content.new_id(),
        )
        for model, content, version in changes
    ]
    columns = (
        *("id", "kind", "support_size", "digest", "blob_key", "blob_size"),
        *("revision", "version", "content_id"),
    )
    session.execute(
        update(ModelRow),
        [{"updated_at": now, **{c: getattr(model, c) for c in columns}} for model in changed],
    )
    session.execute(
        update(SignatureRow),
        [{"model_id": model.id, "values": content.signature} for model, content, _ in changes],
    )
    replace_sketches(session, {model.id: content.sketch for model, content, _ in changes})
    replace_counts(session, {model.id: content.tensor_counts for model, content, _ in changes})
    return changed


def move_blob(session: Writer, model: ModelRecord, blob_key: str, blob_size: int) -> None:
    """Record that the same support is in another blob; version and content stay."""
    _update(session, model, blob_key=blob_key, blob_size=blob_size)


def update_metadata(
    session: Writer,
    model: ModelRecord,
    *,
    version: int,
    tags: Sequence[str] | None = None,
    **columns: Any,
) -> None:
    """Replace the metadata of the model: ``tags`` if given, and any of the columns."""
    _update(session, model, version=version, updated_at=datetime.now(UTC), **columns)
    if tags is not None:
        _set_tags(session, model.id, tags)


def update_declarations(
    session: Writer, changes: Sequence[tuple[ModelRecord, DeclaredBases, dict[str, Any], int]]
) -> None:
    """Replace the declared bases and the attributes of models, each at a version."""
    now = datetime.now(UTC)
    session.execute(
        update(ModelRow),
        [
            {
                "id": model.id,
                "version": version,
                "updated_at": now,
                "attributes": attributes,
                **declared.columns,
            }
            for model, declared, attributes, version in changes
        ],
    )


def delete_model(session: Writer, model: ModelRecord, *, version: int) -> None:
    """Delete the model and leave a tombstone for the indexes that hold it."""
    session.execute(delete(ModelRow).where(ModelRow.id == model.id))
    session.execute(
        insert(TombstoneRow).values(space_id=model.space_id, version=version, model_id=model.id)
    )


def _update(session: Writer, model: ModelRecord, **columns: Any) -> None:
    session.execute(
        update(ModelRow)
        .where(ModelRow.id == model.id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


def _set_tags(session: Writer, model_id: int, tags: Sequence[str]) -> None:
    session.execute(delete(TagRow).where(TagRow.model_id == model_id))
    if tags:
        session.execute(insert(TagRow), [{"model_id": model_id, "tag": tag} for tag in tags])


@cache
def _insert_statement() -> ReturningInsert[int, int]:
    return insert(table_of(ModelRow)).returning(ModelRow.version, ModelRow.id)
