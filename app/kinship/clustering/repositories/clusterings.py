"""Queries for clusterings: the models to cluster, and the stored results.

The labels of a clustering are one compressed text, because they are read as a whole or not at
all. They hold the names of models, because these may be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import zstandard
from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import undefer

from app.infra.db.database import Reader, Writer
from app.infra.db.ids import is_id
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.tables.catalog import ModelRow, SignatureRow
from app.infra.db.tables.clusterings import ClusteringRow, ClusteringSeriesRow
from app.infra.errors import ClusteringNotFound
from app.kinship.clustering.records import ClusteringContent, ClusteringRecord
from app.models.catalog.repositories.model_filters import tag_conditions
from app.models.catalog.repositories.models import missing_model
from app.models.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.types.paging import Page

__all__ = [
    "Member",
    "Series",
    "content",
    "count_members",
    "delete_clustering",
    "find_latest",
    "get_clustering",
    "insert_clustering",
    "list_clusterings",
    "members",
    "prune",
    "replace_content",
    "reserve_ids",
]

_NAMES_PER_STATEMENT = 500  # below every backend's limit of bound parameters
_ROWS_PER_FETCH = 2000
_ZSTD_LEVEL = 6
_COLUMNS = tuple(ClusteringRecord.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Member:
    """The data of a model to cluster; ``values`` are those of its signature, little-endian."""

    name: str
    blob_key: str | None
    support_size: int
    digest: str | None
    values: bytes


@dataclass(frozen=True, slots=True)
class Series:
    """The next number of a clustering of a space, and its first free cluster id."""

    number: int
    next_cluster: int


# --- the models that are clustered ----------------------------------------------------------------


def count_members(
    session: Reader, space: SpaceRecord, tags: Sequence[str], names: Sequence[str] | None
) -> int:
    """The number of models of the space that match."""
    if names is not None:
        return sum(1 for _ in _names(session, space, tags, names))
    query = select(func.count()).select_from(ModelRow).where(*_conditions(space, tags))
    return session.execute(query).scalar_one()


def members(
    session: Reader,
    space: SpaceRecord,
    tags: Sequence[str],
    names: Sequence[str] | None,
    *,
    limit: int,
) -> Iterator[Member]:
    """Return the models of the space that match, by name, ``limit`` at most.

    Args:
        tags: tags that all of them carry.
        names: the names to choose from; None for all models.

    Raises:
        ModelNotFound: one of the names has no model.
    """
    query = (
        select(
            ModelRow.name,
            ModelRow.blob_key,
            ModelRow.support_size,
            ModelRow.digest,
            SignatureRow.values,
        )
        .join(SignatureRow, SignatureRow.model_id == ModelRow.id)
        .where(*_conditions(space, tags))
        .order_by(ModelRow.name)
        .limit(limit)
        .execution_options(yield_per=_ROWS_PER_FETCH)
    )
    if names is None:
        for row in session.execute(query):
            yield Member(*row)
        return
    found = sorted(_names(session, space, tags, names))
    for at in range(0, len(found), _NAMES_PER_STATEMENT):
        some = query.where(ModelRow.name.in_(found[at : at + _NAMES_PER_STATEMENT]))
        for row in session.execute(some):
            yield Member(*row)


def _names(
    session: Reader, space: SpaceRecord, tags: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    """The names whose models carry all tags; :class:`ModelNotFound` for an unknown name."""
    for at in range(0, len(names), _NAMES_PER_STATEMENT):
        some = list(names[at : at + _NAMES_PER_STATEMENT])
        here = ModelRow.space_id == space.id, ModelRow.name.in_(some)
        known = set(session.scalars(select(ModelRow.name).where(*here)))
        missing = [name for name in some if name not in known]
        if missing:
            raise missing_model(session, space, missing)
        chosen = select(ModelRow.name).where(*_conditions(space, tags), ModelRow.name.in_(some))
        yield from session.scalars(chosen)


def _conditions(space: SpaceRecord, tags: Sequence[str]) -> list[ColumnElement[bool]]:
    return [ModelRow.space_id == space.id, *tag_conditions(tags)]


# --- clusterings ----------------------------------------------------------------------------------


def find_latest(session: Reader, space: SpaceRecord, scope: str = "") -> ClusteringRecord | None:
    """The newest clustering of a scope, or None."""
    query = (
        select(ClusteringRow)
        .where(ClusteringRow.space_id == space.id, ClusteringRow.scope == scope)
        .order_by(ClusteringRow.number.desc())
        .limit(1)
    )
    row = session.scalar(query)
    return None if row is None else _record(row)


def get_clustering(session: Reader, space: SpaceRecord, clustering_id: str) -> ClusteringRecord:
    """The space's clustering of this id, or :class:`ClusteringNotFound`."""
    query = select(ClusteringRow).where(
        ClusteringRow.space_id == space.id, ClusteringRow.id == clustering_id
    )
    row = session.scalar(query) if is_id(clustering_id) else None
    if row is None:
        raise ClusteringNotFound(f"there is no clustering {clustering_id!r} of {space.name!r}")
    return _record(row)


def list_clusterings(
    session: Reader, space: SpaceRecord, *, limit: int, cursor: str | None
) -> Page[ClusteringRecord]:
    """The space's clusterings, newest first."""
    query = select(ClusteringRow).where(ClusteringRow.space_id == space.id)
    if cursor is not None:
        query = query.where(ClusteringRow.number < _number(cursor))
    query = query.order_by(ClusteringRow.number.desc())
    count, more = page_length(session, query, limit)
    rows = session.scalars(query.limit(count)).all()
    return page_of((_record(row) for row in rows), more, lambda clustering: clustering.number)


def content(session: Reader, clustering: ClusteringRecord) -> ClusteringContent:
    """The labels of a clustering; :class:`ClusteringNotFound` if it was deleted."""
    query = select(ClusteringRow).where(ClusteringRow.id == clustering.id)
    row = session.scalar(query.options(undefer(ClusteringRow.content)))
    if row is None:
        raise ClusteringNotFound(f"there is no clustering {clustering.id!r} any more")
    fields = json.loads(zstandard.ZstdDecompressor().decompress(row.content))
    held: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return ClusteringContent(**held)


def reserve_ids(session: Writer, space: SpaceRecord, clusters: int) -> Series:
    """Reserve the next number, and ids for ``clusters`` clusters, which are never used again.

    The caller holds the space's lock.
    """
    row = session.get(ClusteringSeriesRow, space.id)
    if row is None:
        row = ClusteringSeriesRow(space_id=space.id, number=0, next_cluster=0)
        session.add(row)
    taken = Series(row.number + 1, row.next_cluster)
    row.number, row.next_cluster = taken.number, taken.next_cluster + clusters
    session.flush()
    return taken


def insert_clustering(
    session: Writer, clustering: ClusteringRecord, content: ClusteringContent
) -> None:
    """Insert a clustering. The caller holds the space's lock."""
    columns: dict[str, Any] = {name: getattr(clustering, name) for name in _COLUMNS}
    session.add(ClusteringRow(**columns, content=_packed(content)))
    session.flush()


def replace_content(
    session: Writer, clustering: ClusteringRecord, content: ClusteringContent
) -> None:
    """Store a clustering with the models that have joined. The caller holds the space's lock."""
    session.execute(
        update(ClusteringRow)
        .where(ClusteringRow.id == clustering.id)
        .values(models=len(content.models), content=_packed(content))
        .execution_options(synchronize_session=False)
    )


def prune(session: Writer, space: SpaceRecord, kept: int) -> None:
    """Delete all clusterings but the newest ``kept``, and the newest one of all models."""
    here = ClusteringRow.space_id == space.id
    numbers = select(ClusteringRow.number).where(here).order_by(ClusteringRow.number.desc())
    last = session.scalar(numbers.offset(kept).limit(1))
    if last is not None:
        whole = session.scalar(numbers.where(ClusteringRow.scope == "").limit(1))
        session.execute(
            delete(ClusteringRow)
            .where(here, ClusteringRow.number <= last, ClusteringRow.number != (whole or 0))
            .execution_options(synchronize_session=False)
        )


def delete_clustering(session: Writer, clustering: ClusteringRecord) -> None:
    """Delete one clustering; its cluster ids are not used again."""
    session.execute(delete(ClusteringRow).where(ClusteringRow.id == clustering.id))


def _packed(content: ClusteringContent) -> bytes:
    text = json.dumps(asdict(content), ensure_ascii=False, separators=(",", ":"))
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(text.encode())


def _number(cursor: str) -> int:
    text = decode_cursor(cursor)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidParameter(
            "this cursor was not given out by this listing: start again without one", field="cursor"
        )
    return int(text)


def _record(row: ClusteringRow) -> ClusteringRecord:
    return ClusteringRecord(**{name: getattr(row, name) for name in _COLUMNS})
