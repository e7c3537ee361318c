"""Every query about what was seen of the models of a source, on its hub.

Of two looks at a model the one that began later has seen the same, or what is newer. So looks are
numbered as they begin, and one that ends after a later one has ended changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import case, delete, select, update
from sqlalchemy.exc import IntegrityError

from app.errors import Unavailable
from app.hubs.records import SeenModel
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.hubs import SourceModelRow, SourceRow
from app.infra.db.tables.jobs import JobRow

__all__ = [
    "begin_look",
    "end_look",
    "forget",
    "hold",
    "look_again",
    "note_listed",
    "placed",
    "seen_models",
]

_AT_ONCE = 500
_AGAIN = ""
"""The revision of what is to be looked at again: no model is at it."""


def begin_look(session: Writer, source_id: str, name: str, job_id: str) -> int | None:
    """The number of a look at a model; to be drawn, and committed, before the hub is asked.

    Returns:
        None while another job looks at the model.
    """
    row = _lock(session, source_id, name)
    if row is None:
        new = SourceModelRow(
            source_id=source_id,
            name=name,
            sync_started_seq=1,
            sync_applied_seq=0,
            sync_job_id=job_id,
            listed=True,
        )
        try:
            with session.begin_nested():
                session.add(new)
        except IntegrityError:
            row = _lock(session, source_id, name)
            if row is None:
                raise Unavailable("the source has just been changed or deleted") from None
        else:
            return 1
    if row.sync_job_id != job_id and _runs(session, row.sync_job_id):
        return None
    row.sync_job_id = job_id
    row.sync_started_seq += 1
    session.flush()
    return row.sync_started_seq


def end_look(
    session: Writer,
    source_id: str,
    name: str,
    look: int,
    *,
    opened: datetime,
    revision: str | None,
    space: str | None = None,
    model: str | None = None,
    error: Mapping[str, Any] | None = None,
) -> bool:
    """Note what a look has found, in the change that stores it; the model is locked until then.

    Args:
        opened: when the source was last changed, as far as the look knows. Where that was later,
            the next poll has the model looked at once more.
        revision: that was looked at; None where the model is gone.
        space: where it is stored now, as ``model``; None where it is not.
        error: ``{"code", "detail"}`` of why it is not; it is not tried again at this revision.

    Returns:
        False, and nothing is noted, if a later look has ended before, or the source is gone: then
        nothing may be stored.
    """
    row = _lock(session, source_id, name)
    if row is None or row.sync_applied_seq > look:
        return False
    # Read with the row locked: who changes the source afterwards marks the row after this.
    if revision is not None and _updated_at(session, source_id) != opened:
        revision = _AGAIN
    row.sync_applied_seq = look
    row.revision, row.space, row.model = revision, space, model
    row.error = None if error is None else dict(error)
    row.synced_at = datetime.now(UTC)
    session.flush()
    return True


def placed(session: Reader, source_id: str, name: str) -> tuple[str, str] | None:
    """The space, and the name in it, under which a hub's model was stored last; or None."""
    row = session.get(SourceModelRow, (source_id, name), populate_existing=True)
    if row is None or row.space is None or row.model is None:
        return None
    return row.space, row.model


def hold(session: Writer, source_id: str, name: str) -> tuple[str, str] | None:
    """The same, with no other look at the model coming to its end before this change does."""
    _lock(session, source_id, name)
    return placed(session, source_id, name)


def forget(session: Writer, source_id: str, name: str) -> None:
    """Know a model no more, for one: because it has another name now."""
    session.execute(
        delete(SourceModelRow).where(
            SourceModelRow.source_id == source_id, SourceModelRow.name == name
        )
    )


def look_again(session: Writer, source_id: str) -> None:
    """Have the next poll find every model that is not gone at another revision than it was.

    All rows are written, so that this waits for looks that are just ending, whatever they write.
    """
    session.execute(
        update(SourceModelRow)
        .where(SourceModelRow.source_id == source_id)
        .values(revision=case((SourceModelRow.revision.is_not(None), _AGAIN)))
    )


def seen_models(session: Reader, source_id: str) -> Iterator[SeenModel]:
    """What was seen of every model of a source."""
    row = SourceModelRow
    columns = (row.name, row.revision, row.listed, row.space.is_not(None))
    query = select(*columns).where(row.source_id == source_id)
    for found in session.execute(query.order_by(row.name)):
        yield SeenModel(*found)


def note_listed(session: Writer, source_id: str, names: Collection[str], *, listed: bool) -> None:
    """Some models are in the newest listing, or are not."""
    wanted = sorted(names)
    for begin in range(0, len(wanted), _AT_ONCE):
        session.execute(
            update(SourceModelRow)
            .where(
                SourceModelRow.source_id == source_id,
                SourceModelRow.name.in_(wanted[begin : begin + _AT_ONCE]),
            )
            .values(listed=listed)
        )


def _runs(session: Reader, job_id: str | None) -> bool:
    state = select(JobRow.state).where(JobRow.id == job_id)
    return job_id is not None and session.scalar(state) == "running"


def _updated_at(session: Reader, source_id: str) -> datetime | None:
    return session.scalar(select(SourceRow.updated_at).where(SourceRow.id == source_id))


def _lock(session: Writer, source_id: str, name: str) -> SourceModelRow | None:
    query = select(SourceModelRow).where(
        SourceModelRow.source_id == source_id, SourceModelRow.name == name
    )
    return session.scalar(query.with_for_update().execution_options(populate_existing=True))
