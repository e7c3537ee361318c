"""Queries about learngenes: their manifests, versions and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Select, delete, func, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.learngenes import LearngeneRow, LearngeneSeriesRow
from app.infra.errors import LearngeneNotFound
from app.models.learngenes.records import LearngeneRecord, shown_cluster
from app.models.spaces.records import SpaceRecord
from modelkin.core.learngenes.manifest import LearngeneTensor, Shapes
from modelkin.types.paging import Page

__all__ = [
    "beyond_kept",
    "blob_keys",
    "delete_learngene",
    "drop_file",
    "find_newest",
    "first_id",
    "get_learngene",
    "insert_learngene",
    "keep_file",
    "kept_after",
    "list_learngenes",
    "manifest_bytes",
    "next_version",
    "oldest_beyond",
    "shapes_of",
    "stored_bytes",
    "tensors_of",
]

_IDS_PER_STATEMENT: Final = 500  # below every backend's limit of bound parameters
_COLUMNS = tuple(LearngeneRecord.__dataclass_fields__)


def find_newest(session: Reader, space: SpaceRecord, cluster: int) -> LearngeneRecord | None:
    """The newest version of a cluster's learngene; None if it has none."""
    row = session.scalar(_of(space, cluster).limit(1))
    return None if row is None else _record(row)


def get_learngene(
    session: Reader, space: SpaceRecord, cluster: int, version: int | None
) -> LearngeneRecord:
    """A version of a cluster's learngene, or :class:`LearngeneNotFound`.

    Args:
        version: None for the newest.
    """
    query = _of(space, cluster)
    if version is not None:
        query = query.where(LearngeneRow.version == version)
    row = session.scalar(query.limit(1))
    if row is None:
        which = "" if version is None else f" of version {version}"
        raise LearngeneNotFound(
            f"cluster {shown_cluster(cluster)} of space {space.name!r} has no learngene{which}"
        )
    return _record(row)


def list_learngenes(
    session: Reader, space: SpaceRecord, cluster: int | None, *, limit: int, cursor: str | None
) -> Page[LearngeneRecord]:
    """The learngenes of a space, newest first.

    Args:
        cluster: only its versions; None for all clusters.
    """
    query = select(LearngeneRow).where(LearngeneRow.space_id == space.id)
    if cluster is not None:
        query = query.where(LearngeneRow.cluster == cluster)
    if cursor is not None:
        query = query.where(LearngeneRow.id < decode_cursor(cursor))
    query = query.order_by(LearngeneRow.id.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row) for row in rows), more, lambda each: each.id)


def tensors_of(session: Reader, learngene: LearngeneRecord) -> tuple[LearngeneTensor, ...]:
    """The tensors of a learngene, in the order of their bytes; none if it was deleted."""
    stored = session.scalar(select(LearngeneRow.tensors).where(LearngeneRow.id == learngene.id))
    return tuple(LearngeneTensor(name, dtype, tuple(shape)) for name, dtype, shape in stored or ())


def first_id(session: Reader, space: SpaceRecord) -> str | None:
    """The id of the oldest learngene of a space; None if it has none."""
    query = select(LearngeneRow.id).where(LearngeneRow.space_id == space.id)
    return session.scalar(query.order_by(LearngeneRow.id).limit(1))


def shapes_of(session: Reader, learngene_id: str) -> Shapes:
    """The shapes of a learngene's tensors by name."""
    stored = session.scalar(select(LearngeneRow.tensors).where(LearngeneRow.id == learngene_id))
    return {name: tuple(shape) for name, _, shape in stored or ()}


def next_version(session: Writer, space: SpaceRecord, cluster: int) -> int:
    """The next version of a cluster's learngene, never given out before.

    The caller holds the space's lock.
    """
    row = session.get(LearngeneSeriesRow, (space.id, cluster))
    if row is None:
        row = LearngeneSeriesRow(space_id=space.id, cluster=cluster, version=0)
        session.add(row)
    row.version += 1
    session.flush()
    return row.version


def insert_learngene(
    session: Writer, learngene: LearngeneRecord, tensors: Iterable[LearngeneTensor]
) -> None:
    """Insert a version. The caller holds the space's lock."""
    columns: dict[str, Any] = {name: getattr(learngene, name) for name in _COLUMNS}
    columns["metrics"] = dict(learngene.metrics)
    if learngene.reference is not None:
        columns["reference"] = dict(learngene.reference)
    session.add(LearngeneRow(**columns, tensors=_tensor_rows(tensors)))
    session.flush()


def manifest_bytes(tensors: Iterable[LearngeneTensor]) -> int:
    """The bytes that the list of the tensors takes in the database."""
    return len(json.dumps(_tensor_rows(tensors), separators=(",", ":")))


def keep_file(session: Writer, learngene: LearngeneRecord, blob_key: str) -> None:
    """Note that the file of a version is kept from now on."""
    taken = learngene.stored_bytes + learngene.size
    _set(session, learngene, blob_key=blob_key, stored_bytes=taken)


def drop_file(session: Writer, learngene: LearngeneRecord) -> None:
    """Note that the file of a version is not kept any more; the caller releases its blob."""
    taken = learngene.stored_bytes - learngene.size
    _set(session, learngene, blob_key=None, stored_bytes=taken)


def beyond_kept(
    session: Reader, space: SpaceRecord, cluster: int, kept: int
) -> Sequence[LearngeneRecord]:
    """The versions of a cluster with a file, but for the newest ``kept``."""
    query = _of(space, cluster).where(LearngeneRow.blob_key.is_not(None))
    return [_record(row) for row in session.scalars(query.offset(kept))]


def oldest_beyond(
    session: Reader, space: SpaceRecord, cluster: int, kept: int
) -> Sequence[LearngeneRecord]:
    """The versions of a cluster, but for the newest ``kept``."""
    return [_record(row) for row in session.scalars(_of(space, cluster).offset(kept))]


def delete_learngene(session: Writer, learngene: LearngeneRecord) -> None:
    """Delete a version; its number is not used again."""
    session.execute(
        delete(LearngeneRow)
        .where(LearngeneRow.id == learngene.id)
        .execution_options(synchronize_session=False)
    )


def stored_bytes(session: Reader, tenant_id: int) -> int:
    """The bytes that the learngenes of a tenant take, with their kept files."""
    query = select(func.coalesce(func.sum(LearngeneRow.stored_bytes), 0))
    return int(session.execute(query.where(LearngeneRow.tenant_id == tenant_id)).scalar_one())


def kept_after(session: Reader, learngene_id: str, limit: int) -> Sequence[LearngeneRecord]:
    """The next learngenes of any space whose files are kept, by id."""
    query = select(LearngeneRow).where(
        LearngeneRow.blob_key.is_not(None), LearngeneRow.id > learngene_id
    )
    rows = session.scalars(query.order_by(LearngeneRow.id).limit(limit))
    return [_record(row) for row in rows]


def blob_keys(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that are kept files."""
    asked, found = list(keys), set[str]()
    for at in range(0, len(asked), _IDS_PER_STATEMENT):
        some = LearngeneRow.blob_key.in_(asked[at : at + _IDS_PER_STATEMENT])
        found.update(
            key for key in session.scalars(select(LearngeneRow.blob_key).where(some)) if key
        )
    return found


def _of(space: SpaceRecord, cluster: int) -> Select[LearngeneRow]:
    """The versions of a cluster, the newest first."""
    return (
        select(LearngeneRow)
        .where(LearngeneRow.space_id == space.id, LearngeneRow.cluster == cluster)
        .order_by(LearngeneRow.version.desc())
        .execution_options(populate_existing=True)
    )


def _set(session: Writer, learngene: LearngeneRecord, **columns: Any) -> None:
    session.execute(
        update(LearngeneRow)
        .where(LearngeneRow.id == learngene.id)
        .values(**columns)
        .execution_options(synchronize_session=False)
    )


def _tensor_rows(tensors: Iterable[LearngeneTensor]) -> list[Any]:
    return [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in tensors]


def _record(row: LearngeneRow) -> LearngeneRecord:
    return LearngeneRecord(**{name: getattr(row, name) for name in _COLUMNS})
