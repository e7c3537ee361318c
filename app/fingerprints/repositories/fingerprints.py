"""Queries for fingerprints: their rows and payloads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Select, Text, Update, bindparam, delete, insert, select, update
from sqlalchemy import cast as cast_
from sqlalchemy.sql.dml import ReturningInsert

from app.fingerprints.records import (
    SCHEME,
    Facts,
    FingerprintPut,
    FingerprintRecord,
    PreparedFingerprint,
    StatedBy,
)
from app.infra.db.database import Reader, Writer
from app.infra.db.pagination import decode_cursor, page_length, page_of
from app.infra.db.suggestions import near_name
from app.infra.db.tables.base import table_of
from app.infra.db.tables.fingerprints import (
    FingerprintPayloadRow,
    FingerprintRow,
    FingerprintTombstoneRow,
)
from app.infra.errors import FingerprintNotFound
from modelkin.types.paging import Page

__all__ = [
    "by_ids",
    "delete_fingerprint",
    "find_many",
    "insert_fingerprints",
    "list_fingerprints",
    "names_declaring",
    "missing_fingerprint",
    "payloads",
    "update_fingerprints",
]

T = TypeVar("T")
_REMEDY: Final = "; push its checkpoint, or store one made of it (fingerprints.put)"
"""A model may have a support alone."""
_PER_STATEMENT: Final = 500  # below every backend's limit of bound parameters
_LAST: Final = "\U0010ffff"
"""A character that sorts behind all of a name."""


def find_many(
    session: Reader, tenant_id: int, names: Iterable[str]
) -> dict[str, FingerprintRecord]:
    """The fingerprints of the names that have one, by name."""
    found: dict[str, FingerprintRecord] = {}
    for some in _batches(dict.fromkeys(names)):
        rows = map(_record, session.rows(_named(), tenant=tenant_id, names=some))
        found.update((record.name, record) for record in rows)
    return found


def by_ids(session: Reader, tenant_id: int, ids: Iterable[int]) -> dict[int, FingerprintRecord]:
    """The tenant's existing fingerprints among ``ids``, by id."""
    found: dict[int, FingerprintRecord] = {}
    for some in _batches(dict.fromkeys(ids)):
        rows = map(_record, session.rows(_numbered(), tenant=tenant_id, ids=some))
        found.update((record.id, record) for record in rows)
    return found


def names_declaring(session: Reader, tenant_id: int, base: str, *, limit: int) -> list[str]:
    """The names of the fingerprints that declare a base, maybe beside others; the oldest first.

    The list is searched as text, as every database can: see ``catalog.repositories.bases``.
    """
    listed = cast_(FingerprintRow.base_models, Text)
    query = select(FingerprintRow.name).where(
        FingerprintRow.tenant_id == tenant_id,
        FingerprintRow.base_models.is_not(None),
        listed.contains(json.dumps(base), autoescape=True),
    )
    return list(session.scalars(query.order_by(FingerprintRow.id).limit(limit)))


def missing_fingerprint(session: Reader, tenant_id: int, name: str) -> FingerprintNotFound:
    """The error for a name without a fingerprint; it says a near name that has one."""
    near = near_name(session, FingerprintRow.name, FingerprintRow.tenant_id == tenant_id, name)
    return FingerprintNotFound(f"there is no fingerprint of model {name!r}{near or _REMEDY}")


def list_fingerprints(
    session: Reader,
    tenant_id: int,
    *,
    limit: int,
    cursor: str | None,
    prefix: str | None = None,
    stated_by: StatedBy | None = None,
) -> Page[FingerprintRecord]:
    """The fingerprints of a tenant in the order of their names.

    Args:
        prefix: only names that begin so.
        stated_by: only those of hubs, or of clients.
    """
    name = FingerprintRow.name
    query = select(FingerprintRow).where(FingerprintRow.tenant_id == tenant_id).order_by(name)
    if cursor is not None:
        query = query.where(name > decode_cursor(cursor))
    if prefix:
        query = query.where(name >= prefix, name < prefix + _LAST)
    if stated_by is not None:
        query = query.where(FingerprintRow.stated_by == stated_by)
    count, more = page_length(session, query, limit)
    page = session.execute(query.with_only_columns(*_columns()).limit(count))
    return page_of(map(_record, page), more, lambda each: each.name)


def payloads(session: Reader, ids: Iterable[int]) -> dict[int, bytes]:
    """The payloads of existing fingerprints, by id."""
    found: dict[int, bytes] = {}
    for some in _batches(dict.fromkeys(ids)):
        rows = session.rows(_payloads(), ids=some)
        found.update((fingerprint_id, data) for fingerprint_id, data in rows)
    return found


def insert_fingerprints(
    session: Writer, tenant_id: int, puts: Sequence[FingerprintPut], *, version: int
) -> list[FingerprintRecord]:
    """Insert fingerprints, in order, in as few statements as possible.

    The caller holds the lock of the feed, and has made sure that their names are free and distinct.
    ``version`` is the first one's version, and each following one has the next.
    """
    now = datetime.now(UTC)
    fixed = {"tenant_id": tenant_id, "revision": 1, "created_at": now}
    columns = [
        {**fixed, **_columns_of(put, now), "name": put.name, "version": version + position}
        for position, put in enumerate(puts)
    ]
    # Rows come back in any order, and are found by their versions.
    ids = {row.version: row.id for row in session.execute(_insert(), columns)}
    session.execute(
        insert(table_of(FingerprintPayloadRow)),
        [
            {"fingerprint_id": ids[version + position], "tenant_id": tenant_id}
            | _payload_of(put.content)
            for position, put in enumerate(puts)
        ],
    )
    return [_made({**row, "id": ids[row["version"]]}) for row in columns]


def update_fingerprints(
    session: Writer, changes: Sequence[tuple[FingerprintRecord, FingerprintPut, int]]
) -> list[FingerprintRecord]:
    """Replace fingerprints, each at a version: the next revisions of those with other contents.

    The caller holds the lock of the feed, so the records are up to date.
    """
    now = datetime.now(UTC)
    rows: list[dict[str, Any]] = []
    contents: list[dict[str, Any]] = []
    for record, put, version in changes:
        row = {**_columns_of(put, now), "version": version, "revision": record.revision}
        if record.digest != put.content.digest:
            row["revision"] += 1
            contents.append({"changed_id": record.id, **_payload_of(put.content)})
        else:  # the payload that is stored stays, also where the new one is packed otherwise
            row["size"] = record.size
        rows.append({"changed_id": record.id, **row})
    session.execute(_update(FingerprintRow, "id"), rows)
    if contents:
        session.execute(_update(FingerprintPayloadRow, "fingerprint_id"), contents)
    return [
        _made(
            row
            | {"id": record.id, "tenant_id": record.tenant_id}
            | {"name": record.name, "created_at": record.created_at}
        )
        for row, (record, _, _) in zip(rows, changes, strict=True)
    ]


def delete_fingerprint(session: Writer, record: FingerprintRecord, *, version: int) -> None:
    """Delete a fingerprint, and leave a tombstone for the indices that hold it."""
    table = table_of(FingerprintRow)
    session.execute(delete(table).where(table.c.id == record.id))
    session.execute(
        insert(table_of(FingerprintTombstoneRow)).values(
            tenant_id=record.tenant_id, version=version, fingerprint_id=record.id
        )
    )


def _columns_of(put: FingerprintPut, now: datetime) -> dict[str, Any]:
    """The columns that a put decides, but for the name."""
    content, facts = put.content, put.facts
    return {
        "scheme": SCHEME,
        "scale": content.scale.bit_length() - 1,
        "digest": content.digest,
        "stated_by": put.stated_by,
        "tensors": content.tensors,
        "keys": content.keys,
        "lines": {str(length): count for length, count in content.lines.items()},
        "parameters": content.parameters,
        "size": len(content.data),
        "base_models": list(facts.base_models) or None,
        "base_relation": facts.base_relation,
        "license": facts.license,
        "published_at": facts.published_at,
        "file_bytes": facts.file_bytes,
        "source_id": put.source_id,
        "hub_revision": put.hub_revision,
        "changed_at": now,
    }


def _payload_of(content: PreparedFingerprint) -> dict[str, Any]:
    return {
        "data": content.data,
        "finding_scale": content.finding_scale.bit_length() - 1,
        "finding_keys": content.finding_keys.astype("<u8").tobytes(),
    }


def _record(row: Any) -> FingerprintRecord:
    return _made(row._mapping)


def _made(found: Mapping[str, Any]) -> FingerprintRecord:
    """The record of a row's columns, as they were read or written."""
    return FingerprintRecord(
        id=found["id"],
        tenant_id=found["tenant_id"],
        name=found["name"],
        revision=found["revision"],
        scheme=found["scheme"],
        scale=1 << found["scale"],
        digest=found["digest"],
        stated_by=cast(StatedBy, found["stated_by"]),
        tensors=found["tensors"],
        keys=found["keys"],
        lines={int(length): count for length, count in found["lines"].items()},
        parameters=found["parameters"],
        size=found["size"],
        facts=Facts(
            base_models=tuple(found["base_models"] or ()),
            base_relation=found["base_relation"],
            license=found["license"],
            published_at=found["published_at"],
            file_bytes=found["file_bytes"],
        ),
        source_id=found["source_id"],
        hub_revision=found["hub_revision"],
        version=found["version"],
        created_at=found["created_at"],
        changed_at=found["changed_at"],
    )


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    asked = list(items)
    for at in range(0, len(asked), _PER_STATEMENT):
        yield asked[at : at + _PER_STATEMENT]


# Each query is built once: to build it takes as long as to ask it.


@cache
def _columns() -> tuple[Any, ...]:
    return tuple(table_of(FingerprintRow).columns)


@cache
def _named() -> Select[Any]:
    table = table_of(FingerprintRow)
    names = table.c.name.in_(bindparam("names", expanding=True))
    return select(*_columns()).where(table.c.tenant_id == bindparam("tenant"), names)


@cache
def _numbered() -> Select[Any]:
    table = table_of(FingerprintRow)
    numbered = table.c.id.in_(bindparam("ids", expanding=True))
    return select(*_columns()).where(table.c.tenant_id == bindparam("tenant"), numbered)


@cache
def _payloads() -> Select[Any]:
    table = table_of(FingerprintPayloadRow)
    numbered = table.c.fingerprint_id.in_(bindparam("ids", expanding=True))
    return select(table.c.fingerprint_id, table.c.data).where(numbered)


@cache
def _insert() -> ReturningInsert[int, int]:
    return insert(table_of(FingerprintRow)).returning(FingerprintRow.version, FingerprintRow.id)


@cache
def _update(rows: type[FingerprintRow | FingerprintPayloadRow], key: str) -> Update:
    table = table_of(rows)
    return update(table).where(table.c[key] == bindparam("changed_id"))
