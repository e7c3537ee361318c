"""Queries for lists of what anatomies found: models by name, counts of kin, groups of copies."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from sqlalchemy import func, select

from app.fingerprints.records import StatedBy
from app.infra.db.database import Reader
from app.infra.db.pagination import decode_cursor, encode_cursor
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.fingerprints import FingerprintRow
from modelkin.core.fingerprints.anatomy import AnatomyVerdict
from modelkin.core.fingerprints.sources import Verdict
from modelkin.types.paging import Page

__all__ = ["copy_groups", "count_kin", "count_made_from", "list_models"]


def list_models(
    session: Reader,
    tenant_id: int,
    *,
    limit: int,
    cursor: str | None = None,
    text: str | None = None,
    stated_by: StatedBy | None = None,
    verdict: AnatomyVerdict | None = None,
) -> Page[int]:
    """The ids of a tenant's fingerprints in the order of their names.

    Args:
        text: only names that have it anywhere; ASCII letters match in either case.
        stated_by: only those of hubs, or of clients.
        verdict: only models of whose last anatomy this is the verdict.
    """
    row = FingerprintRow
    query = select(row.id, row.name).where(row.tenant_id == tenant_id).order_by(row.name)
    if cursor is not None:
        query = query.where(row.name > decode_cursor(cursor))
    if text:
        query = query.where(row.name.icontains(text, autoescape=True))
    if stated_by is not None:
        query = query.where(row.stated_by == stated_by)
    if verdict is not None:
        query = query.join(AnatomyRow, AnatomyRow.fingerprint_id == row.id)
        query = query.where(AnatomyRow.verdict == verdict)
    found = session.execute(query.limit(limit + 1)).all()
    after = encode_cursor(found[limit - 1].name) if len(found) > limit else None
    return Page(tuple(each.id for each in found[:limit]), after)


def count_kin(session: Reader, tenant_id: int, fingerprint_id: int) -> dict[Verdict, int]:
    """How many stored models a fingerprint is what to."""
    own = KinRow.of(tenant_id), KinRow.fingerprint_id == fingerprint_id
    query = select(KinRow.verdict, func.count()).where(*own).group_by(KinRow.verdict)
    return {cast(Verdict, verdict): count for verdict, count in session.execute(query)}


def count_made_from(session: Reader, tenant_id: int, ids: Collection[int]) -> dict[int, int]:
    """How many models are made from each of these fingerprints directly; none is left out."""
    row = AnatomyRow
    query = select(row.base_id, func.count()).where(
        row.tenant_id == tenant_id, row.base_id.in_(ids), row.base_id.is_not(None)
    )
    found = dict(session.execute(query.group_by(row.base_id)).all())
    return {each: found.get(each, 0) for each in ids}


def copy_groups(
    session: Reader, tenant_id: int, *, limit: int, offset: int = 0
) -> list[tuple[int, int]]:
    """The fingerprints that others are copies of, and of how many, the most first.

    Of models that are copies of each other, it is the one that was stored first.
    """
    earlier = KinRow.other_id < KinRow.fingerprint_id
    of_copies = KinRow.tenant_id == tenant_id, KinRow.verdict == "copy", earlier
    first = (
        select(func.min(KinRow.other_id).label("first"))
        .where(*of_copies)
        .group_by(KinRow.fingerprint_id)
        .subquery()
    )
    copies = func.count()
    query = select(first.c.first, copies).group_by(first.c.first)
    ordered = query.order_by(copies.desc(), first.c.first).limit(limit).offset(offset)
    return [(first_id, count) for first_id, count in session.execute(ordered)]
