"""Queries for what is new, what is a copy or a merge, and what has failed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Select, except_, exists, func, literal, null, select, text, union

from app.infra.db.database import Reader
from app.infra.db.tables.anatomies import AnatomyRow, KinRow
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.fingerprints import FingerprintRow
from app.infra.db.tables.jobs import JobRow
from app.infra.db.tables.webhooks import SubscriptionRow, WebhookDeliveryRow
from app.infra.db.tables.weights import ModelWeightsRow
from app.kinship.inbox.records import FailedDelivery, FailedJob, Newest
from modelkin.core.fingerprints.anatomy import AnatomyVerdict

__all__ = [
    "copies_by_weights",
    "count_failed_deliveries",
    "count_failed_jobs",
    "count_found",
    "count_new",
    "failed_deliveries",
    "failed_jobs",
    "found_as",
    "newest_fingerprints",
    "newest_models",
]

_FAILED = text("state = 'failed'")
"""As the partial indices have it, which SQLite finds by their very words."""


def newest_models(session: Reader, tenant_id: int, since: datetime, *, limit: int) -> list[Newest]:
    """The models of spaces that were first stored since then, the newest first."""
    query = (
        select(ModelRow.name, SpaceRow.name, ModelRow.created_at)
        .join(SpaceRow, SpaceRow.id == ModelRow.space_id)
        .where(ModelRow.tenant_id == tenant_id, ModelRow.created_at >= since)
        .order_by(ModelRow.created_at.desc())
        .limit(limit)
    )
    return [Newest(*row) for row in session.execute(query)]


def newest_fingerprints(
    session: Reader, tenant_id: int, since: datetime, *, limit: int
) -> list[Newest]:
    """The fingerprints that were first stored since then, the newest first."""
    row = FingerprintRow
    query = (
        select(row.name, null(), row.created_at)
        .where(row.tenant_id == tenant_id, row.created_at >= since)
        .order_by(row.created_at.desc())
        .limit(limit)
    )
    return [Newest(*each) for each in session.execute(query)]


def count_new(session: Reader, tenant_id: int, since: datetime, *, most: int) -> tuple[int, int]:
    """The number of names that these have, each once, at most about twice ``most``; and of these
    the number that no model of a space has.
    """
    models, fingerprints = (
        select(each.name)
        .where(each.tenant_id == tenant_id, each.created_at >= since)
        .order_by(each.created_at.desc())
        .limit(most)
        .subquery()
        for each in (ModelRow, FingerprintRow)
    )
    here, alone = select(models.c.name), select(fingerprints.c.name)
    counts = (
        select(func.count()).select_from(each.subquery()).scalar_subquery()
        for each in (union(here, alone), except_(alone, here))
    )
    row = session.execute(select(*counts)).one()
    return row[0], row[1]


def found_as(
    session: Reader, tenant_id: int, verdicts: Sequence[AnatomyVerdict], *, limit: int
) -> list[tuple[int, str]]:
    """The ids and names of fingerprints with these verdicts, those stored last first.

    Of copies of each other, the one that was stored first is left out.
    """
    found = list[tuple[int, str]]()
    for verdict in verdicts:
        own = [AnatomyRow.tenant_id == tenant_id, AnatomyRow.verdict == verdict]
        if verdict == "copy":
            of_it = KinRow.fingerprint_id == AnatomyRow.fingerprint_id, KinRow.verdict == "copy"
            later, earlier = (
                exists(select(literal(1)).where(*of_it, each))
                for each in (
                    KinRow.other_id > KinRow.fingerprint_id,
                    KinRow.other_id < KinRow.fingerprint_id,
                )
            )
            own.append(earlier | ~later)
        query = (
            select(FingerprintRow.id, FingerprintRow.name)
            .join(AnatomyRow, AnatomyRow.fingerprint_id == FingerprintRow.id)
            .where(*own)
            .order_by(AnatomyRow.fingerprint_id.desc())
            .limit(limit)
        )
        found += [(each.id, each.name) for each in session.execute(query)]
    return sorted(found, reverse=True)[:limit]


def count_found(
    session: Reader, tenant_id: int, verdicts: Sequence[AnatomyVerdict], *, most: int
) -> int:
    """The number of fingerprints with these verdicts, at most ``most``."""
    row = AnatomyRow
    return _count(
        session,
        select(literal(1)).where(row.tenant_id == tenant_id, row.verdict.in_(verdicts)),
        most,
    )


def copies_by_weights(
    session: Reader, tenant_id: int, *, limit: int
) -> list[tuple[bytes, int, str, str]]:
    """Digest, id, name and space of the models whose weights now are those of several rows.

    Args:
        limit: the digests that are followed; an index holds them in order.
    """
    row = ModelWeightsRow
    repeated = (
        select(row.digest)
        .where(row.tenant_id == tenant_id)
        .group_by(row.digest)
        .having(func.count() > 1)
        .limit(limit)
    )
    query = (
        select(row.digest, ModelRow.id, ModelRow.name, SpaceRow.name)
        .join(ModelRow, ModelRow.id == row.model_id)
        .join(SpaceRow, SpaceRow.id == ModelRow.space_id)
        .where(
            row.tenant_id == tenant_id,
            row.digest.in_(repeated),
            row.revision == ModelRow.revision,
        )
    )
    return [cast(tuple[bytes, int, str, str], tuple(each)) for each in session.execute(query)]


def failed_jobs(session: Reader, tenant_id: int, *, limit: int) -> list[FailedJob]:
    """The jobs that have failed, the newest first."""
    row = JobRow
    query = (
        select(row.id, row.kind, row.space, row.error, row.finished_at)
        .where(row.tenant_id == tenant_id, _FAILED)
        .order_by(row.id.desc())
        .limit(limit)
    )
    return [
        FailedJob(id_, kind, space, str((error or {}).get("detail", "")), at)
        for id_, kind, space, error, at in session.execute(query)
    ]


def count_failed_jobs(session: Reader, tenant_id: int, *, most: int) -> int:
    """The number of these jobs, at most ``most``."""
    query = select(literal(1)).select_from(JobRow).where(JobRow.tenant_id == tenant_id, _FAILED)
    return _count(session, query, most)


def failed_deliveries(session: Reader, tenant_id: int, *, limit: int) -> list[FailedDelivery]:
    """The deliveries that were given up, those of the newest events first."""
    row = WebhookDeliveryRow
    last = (
        select(row.id)
        .where(row.tenant_id == tenant_id, _FAILED)
        .order_by(row.id.desc())
        .limit(limit)
    )
    query = (
        select(row.id, row.type, row.subscription_id, SubscriptionRow.url, row.finished_at)
        .join(SubscriptionRow, SubscriptionRow.id == row.subscription_id)
        .where(row.id.in_(last.scalar_subquery()))
        .order_by(row.id.desc())
    )
    return [FailedDelivery(*each) for each in session.execute(query)]


def count_failed_deliveries(session: Reader, tenant_id: int, *, most: int) -> int:
    """The number of these deliveries, at most ``most``."""
    row = WebhookDeliveryRow
    query = select(literal(1)).select_from(row).where(row.tenant_id == tenant_id, _FAILED)
    return _count(session, query, most)


def _count(session: Reader, query: Select[Any], most: int) -> int:
    """The number of rows, which are looked at no further than needed."""
    return session.scalars(select(func.count()).select_from(query.limit(most).subquery())).one()
