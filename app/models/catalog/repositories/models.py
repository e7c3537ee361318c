"""Queries for models: their rows, tags and signatures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import page_length, page_of
from app.infra.db.suggestions import near_name
from app.infra.db.tables.base import table_of
from app.infra.db.tables.catalog import ModelRow, SignatureRow, TagRow, TombstoneRow
from app.infra.errors import ModelNotFound
from app.models.catalog.records import EVERY_MODEL, Kind, ModelFilter, ModelOrder, ModelRecord
from app.models.catalog.repositories.model_filters import conditions, tag_conditions
from app.models.catalog.repositories.model_orders import after, apply_order, cursor_key
from app.models.catalog.repositories.sketches import (
    draw_content_id,
    insert_sketches,
    replace_sketches,
)
from app.models.catalog.repositories.tensor_counts import insert_counts, replace_counts
from app.models.spaces.records import SpaceRecord
from modelkin.types.paging import Page

__all__ = [
    "Content",
    "NewModel",
    "blob_keys",
    "delete_model",
    "find_model",
    "find_models",
    "get_model",
    "get_models",
    "ids_with_tags",
    "insert_models",
    "list_models",
    "missing_model",
    "models_by_id",
    "signature_of",
    "move_blob",
    "signatures_by_id",
    "update_contents",
    "update_metadata",
]

T = TypeVar("T")
_MAX_TAG_MARKS = 3  # quotes and a comma
_BETWEEN_TAGS = "\n"  # no tag holds it
_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters

# Built once, because compiling costs more than executing.
_SIGNATURES = select(SignatureRow.model_id, SignatureRow.values).where(
    SignatureRow.model_id.in_(bindparam("models", expanding=True))
)
_SIGNATURE = select(SignatureRow.values).where(SignatureRow.model_id == bindparam("model"))


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

    kind: Kind
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


def find_model(session: Reader, space: SpaceRecord, name: str) -> ModelRecord | None:
    """The model of this name, or None."""
    row: Any = session.rows(_query_by_name(), space=space.id, named=name).first()
    return None if row is None else _record(row)


def get_model(session: Reader, space: SpaceRecord, name: str) -> ModelRecord:
    """The model of this name, or :class:`ModelNotFound`, which names a near one."""
    model = find_model(session, space, name)
    if model is None:
        raise missing_model(session, space, [name])
    return model


def find_models(
    session: Reader, space: SpaceRecord, names: Iterable[str]
) -> dict[str, ModelRecord]:
    """The existing models among ``names``, by name."""
    found: dict[str, ModelRecord] = {}
    for some in _batches(dict.fromkeys(names)):
        records = map(_record, session.rows(_all_named(), space=space.id, names=some))
        found.update((record.name, record) for record in records)
    return found


def get_models(session: Reader, space: SpaceRecord, names: Sequence[str]) -> list[ModelRecord]:
    """The models of these names, in order; :class:`ModelNotFound` names the first missing."""
    found = find_models(session, space, names)
    missing = [name for name in names if name not in found]
    if missing:
        raise missing_model(session, space, missing)
    return [found[name] for name in names]


def missing_model(session: Reader, space: SpaceRecord, names: Sequence[str]) -> ModelNotFound:
    """The error for models that are not in the space; it names the first, and one near to it."""
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    near = near_name(session, ModelRow.name, _in(space), names[0])
    return ModelNotFound(f"there is no model {names[0]!r} in space {space.name!r}{more}{near}")


def models_by_id(session: Reader, ids: Iterable[int]) -> dict[int, ModelRecord]:
    """The existing models among ``ids``, by id."""
    found: dict[int, ModelRecord] = {}
    for some in _batches(ids):
        records = map(_record, session.rows(_by_id(), ids=some))
        found.update((record.id, record) for record in records)
    return found


def signature_of(session: Reader, model_id: int) -> bytes:
    """The little-endian values of the signature of a model that exists."""
    values: bytes = session.rows(_SIGNATURE, model=model_id).scalar_one()
    return values


def signatures_by_id(session: Reader, ids: Iterable[int]) -> dict[int, bytes]:
    """The signatures' little-endian values, by model id."""
    found: dict[int, bytes] = {}
    connection = session.connection()
    for some in _batches(ids):
        rows = connection.execute(_SIGNATURES, {"models": some})
        found.update((model_id, values) for model_id, values in rows)
    return found


def list_models(
    session: Reader,
    space: SpaceRecord,
    *,
    limit: int,
    cursor: str | None,
    wanted: ModelFilter = EVERY_MODEL,
    order: ModelOrder = "name",
) -> Page[ModelRecord]:
    """The space's models that meet the filter, in this order."""
    query = apply_order(select(ModelRow).where(_in(space)), order)
    if cursor is not None:
        query = query.where(after(cursor, order))
    if wanted != EVERY_MODEL:
        # Found first: the filter is computed once, and not again to measure and to load the page.
        met = conditions(wanted, session.get_bind().dialect)
        found = query.with_only_columns(ModelRow.id).where(*met).limit(limit + 1)
        query = query.where(ModelRow.id.in_(session.scalars(found).all()))
    tag_bytes = select(func.sum(func.length(TagRow.tag) + _MAX_TAG_MARKS))
    each = tag_bytes.where(TagRow.model_id == ModelRow.id).scalar_subquery()
    count, more = page_length(session, query, limit, func.coalesce(each, 0))
    page = session.execute(query.with_only_columns(*_columns()).limit(count))
    return page_of(map(_record, page), more, lambda model: cursor_key(model, order))


def ids_with_tags(session: Reader, space: SpaceRecord, tags: Sequence[str]) -> list[int]:
    """The ids of the models that carry all of ``tags``."""
    return list(session.scalars(select(ModelRow.id).where(_in(space), *tag_conditions(tags))))


def blob_keys(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that are the support of a model."""
    found: set[str] = set()
    for some in _batches(keys):
        query = select(ModelRow.blob_key).where(ModelRow.blob_key.in_(some))
        found.update(key for key in session.scalars(query) if key is not None)
    return found


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


def _in(space: SpaceRecord) -> Any:
    return ModelRow.space_id == space.id


@cache
def _columns() -> tuple[ColumnElement[Any], ...]:
    """The columns of a record, attributes as text: a parsed megabyte of them takes up to 26."""
    columns = [each for each in ModelRow.__table__.columns if each.key != "attributes"]
    tags = select(func.aggregate_strings(TagRow.tag, _BETWEEN_TAGS))
    return (
        *columns,
        cast(ModelRow.attributes, Text).label("attributes_json"),
        tags.where(TagRow.model_id == ModelRow.id).scalar_subquery().label("tags"),
    )


# Each query is built once: to build it takes as long as to ask it.


@cache
def _query_by_name() -> Select[Any]:
    named = ModelRow.space_id == bindparam("space"), ModelRow.name == bindparam("named")
    return select(*_columns()).where(*named)


@cache
def _all_named() -> Select[Any]:
    named = ModelRow.name.in_(bindparam("names", expanding=True))
    return select(*_columns()).where(ModelRow.space_id == bindparam("space"), named)


@cache
def _by_id() -> Select[Any]:
    return select(*_columns()).where(ModelRow.id.in_(bindparam("ids", expanding=True)))


@cache
def _insert_statement() -> ReturningInsert[int, int]:
    return insert(table_of(ModelRow)).returning(ModelRow.version, ModelRow.id)


def _record(row: Any) -> ModelRecord:
    kind: Kind = "support" if row.kind == "support" else "signature"
    return ModelRecord(
        id=row.id,
        space_id=row.space_id,
        name=row.name,
        kind=kind,
        support_size=row.support_size,
        digest=row.digest,
        blob_key=row.blob_key,
        blob_size=row.blob_size,
        revision=row.revision,
        version=row.version,
        attributes_json=row.attributes_json,
        source=row.source,
        base_model=row.base_model,
        created_at=row.created_at,
        updated_at=row.updated_at,
        content_id=row.content_id,
        tags=tuple(sorted(row.tags.split(_BETWEEN_TAGS))) if row.tags else (),
    )


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    batch: list[T] = []
    for item in items:
        batch.append(item)
        if len(batch) == _IDS_PER_STATEMENT:
            yield batch
            batch = []
    if batch:
        yield batch
