"""Queries for the K* that clients reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import func, insert, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import SpaceRow, SupportSizeReportRow
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.spaces import exists

__all__ = ["count_reporters", "lower_median", "put_report"]


def put_report(
    session: Writer,
    space: SpaceRecord,
    *,
    reporter: str,
    k_star: int,
    require_room: Callable[[], None] = lambda: None,
) -> None:
    """Set the K* of a reporter. The caller holds the space's lock.

    Args:
        require_room: a function that raises if a new reporter is one too many.
    """
    values = {"k_star": k_star, "reported_at": datetime.now(UTC)}
    its = (SupportSizeReportRow.space_id == space.id, SupportSizeReportRow.reporter == reporter)
    known = session.scalar(select(SupportSizeReportRow.k_star).where(*its))
    if known is None:
        require_room()
        session.execute(
            insert(SupportSizeReportRow).values(space_id=space.id, reporter=reporter, **values)
        )
    else:
        session.execute(
            update(SupportSizeReportRow)
            .where(*its)
            .values(**values)
            .execution_options(synchronize_session=False)
        )


def count_reporters(session: Reader, tenant_id: int) -> int:
    """Return the number of reporters in all spaces of a tenant, without deleted ones."""
    query = (
        select(func.count())
        .select_from(SupportSizeReportRow)
        .join(SpaceRow, SpaceRow.id == SupportSizeReportRow.space_id)
    )
    return session.scalars(query.where(SpaceRow.tenant_id == tenant_id, exists)).one()


def lower_median(session: Reader, space: SpaceRecord) -> tuple[int | None, int]:
    """The lower median of all K*, None if there are none; and their number."""
    here = SupportSizeReportRow.space_id == space.id
    count = session.scalars(select(func.count()).where(here)).one()
    if count == 0:
        return None, 0
    ascending = (
        select(SupportSizeReportRow.k_star).where(here).order_by(SupportSizeReportRow.k_star)
    )
    return session.scalars(ascending.offset((count - 1) // 2).limit(1)).one(), count
