"""Queries of the finding index: fingerprints that changed, and what tells their kin."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from functools import cache
from typing import Any, Final

import numpy as np
from sqlalchemy import Select, bindparam, select

from app.fingerprints.finding.records import AFTER_HUBS, Changed, Described, Examined, Keys
from app.infra.db.database import Reader
from app.infra.db.tables.base import table_of
from app.infra.db.tables.fingerprints import (
    FingerprintFeedRow,
    FingerprintPayloadRow,
    FingerprintRow,
)

__all__ = ["changed_since", "described", "examine", "large_tenants", "named"]

_PER_PAGE: Final = 1024
"""Fingerprints a page: 6 MiB of keys."""
_PER_STATEMENT: Final = 500  # below every backend's limit of bound parameters


def changed_since(session: Reader, tenant_id: int, since: int) -> Iterator[list[Changed]]:
    """The fingerprints that changed after a version, in pages, each once, by version."""
    while True:
        rows = session.rows(_changed(), tenant=tenant_id, since=since, most=_PER_PAGE).all()
        if rows:
            yield [
                Changed(
                    row.id,
                    row.version,
                    _rank(row.stated_by, row.published_at, row.created_at),
                    row.finding_scale,
                    _lines(row.lines),
                    _keys(row.finding_keys),
                )
                for row in rows
            ]
        if len(rows) < _PER_PAGE:
            return
        since = rows[-1].version


def examine(session: Reader, tenant_id: int, ids: Collection[int]) -> dict[int, Examined]:
    """What tells the kin of existing fingerprints, by id."""
    found = dict[int, Examined]()
    asked = list(ids)
    for at in range(0, len(asked), _PER_STATEMENT):
        some = asked[at : at + _PER_STATEMENT]
        for row in session.rows(_examined(), tenant=tenant_id, ids=some):
            found[row.id] = Examined(
                row.id,
                row.version,
                row.finding_scale,
                _lines(row.lines),
                _keys(row.finding_keys),
                tuple(row.base_models or ()),
            )
    return found


def described(session: Reader, tenant_id: int, ids: Collection[int]) -> dict[int, Described]:
    """What tells chance of existing fingerprints, by id."""
    found = dict[int, Described]()
    asked = list(ids)
    for at in range(0, len(asked), _PER_STATEMENT):
        some = asked[at : at + _PER_STATEMENT]
        for row in session.rows(_described(), tenant=tenant_id, ids=some):
            found[row.id] = Described(row.version, row.finding_scale, _lines(row.lines))
    return found


def named(session: Reader, tenant_id: int, names: Collection[str]) -> list[int]:
    """The ids of the fingerprints of some model names, at most 500."""
    return [row.id for row in session.rows(_named(), tenant=tenant_id, names=list(names))]


def large_tenants(session: Reader, least: int, most: int) -> list[int]:
    """The tenants with the most fingerprints.

    Args:
        least: fingerprints that each of them has.
        most: how many tenants.
    """
    feed = FingerprintFeedRow
    query = select(feed.tenant_id).where(feed.fingerprints >= least)
    return list(session.scalars(query.order_by(feed.fingerprints.desc()).limit(most)))


def _rank(stated_by: str, published: datetime | None, created: datetime) -> int:
    """The place among the holders of a key. A client could state any date."""
    if stated_by == "hub":
        return _microseconds(published or created)
    return AFTER_HUBS + _microseconds(created)


def _microseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1e6)


def _lines(stored: dict[str, int]) -> dict[int, int]:
    return {int(length): count for length, count in stored.items()}


def _keys(stored: bytes) -> Keys:
    return np.frombuffer(stored, "<u8").astype(np.uint64)


@cache
def _changed() -> Select[Any]:
    row, payload = table_of(FingerprintRow), table_of(FingerprintPayloadRow)
    changed = (
        select(
            *(row.c.id, row.c.version, row.c.stated_by, row.c.published_at),
            *(row.c.created_at, row.c.lines),
        )
        .where(row.c.tenant_id == bindparam("tenant"), row.c.version > bindparam("since"))
        .order_by(row.c.version)
        .limit(bindparam("most"))
        .subquery()
    )
    return (
        select(changed, payload.c.finding_scale, payload.c.finding_keys)
        .join(payload, payload.c.fingerprint_id == changed.c.id)
        .order_by(changed.c.version)
    )


@cache
def _examined() -> Select[Any]:
    row, payload = table_of(FingerprintRow), table_of(FingerprintPayloadRow)
    return (
        select(
            *(row.c.id, row.c.version, row.c.lines, row.c.base_models),
            *(payload.c.finding_scale, payload.c.finding_keys),
        )
        .join(payload, payload.c.fingerprint_id == row.c.id)
        .where(
            row.c.tenant_id == bindparam("tenant"),
            row.c.id.in_(bindparam("ids", expanding=True)),
        )
    )


@cache
def _described() -> Select[Any]:
    row, payload = table_of(FingerprintRow), table_of(FingerprintPayloadRow)
    return (
        select(row.c.id, row.c.version, row.c.lines, payload.c.finding_scale)
        .join(payload, payload.c.fingerprint_id == row.c.id)
        .where(
            row.c.tenant_id == bindparam("tenant"),
            row.c.id.in_(bindparam("ids", expanding=True)),
        )
    )


@cache
def _named() -> Select[Any]:
    row = table_of(FingerprintRow)
    return select(row.c.id).where(
        row.c.tenant_id == bindparam("tenant"),
        row.c.name.in_(bindparam("names", expanding=True)),
    )
