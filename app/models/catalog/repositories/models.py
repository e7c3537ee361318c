"""Queries that read models: their rows, tags and signatures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, Text, bindparam, cast, func, select

from app.infra.db.database import Reader
from app.infra.db.pagination import page_length, page_of
from app.infra.db.suggestions import near_name
from app.infra.db.tables.catalog import ModelRow, SignatureRow, TagRow
from app.infra.errors import ModelNotFound
from app.models.catalog.records import EVERY_MODEL, ModelFilter, ModelOrder, ModelRecord, StoredKind
from app.models.catalog.repositories.model_filters import conditions, tag_conditions
from app.models.catalog.repositories.model_orders import after, apply_order, cursor_key
from app.models.spaces.records import SpaceRecord
from modelkin.types.paging import Page

__all__ = [
    "blob_keys",
    "find_model",
    "find_models",
    "get_model",
    "get_models",
    "ids_with_tags",
    "list_models",
    "missing_model",
    "models_by_id",
    "signature_of",
    "signatures_by_id",
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


def _record(row: Any) -> ModelRecord:
    kind: StoredKind = "support" if row.kind == "support" else "signature"
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
        base_models=tuple(row.base_models or ()),
        base_relation=row.base_relation,
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
