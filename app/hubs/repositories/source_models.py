"""Queries about the models of a source, as their last syncs found them on its hub.

The later of two syncs of a model saw the same or a newer state. So syncs are numbered as they
start, and a sync that ends after a later one changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, case, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from app.hubs.records import Place, SeenModel
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow
from app.infra.db.tables.hubs import SourceModelRow, SourceRow
from app.infra.db.tables.jobs import JobRow
from app.infra.errors import Unavailable
from app.models.spaces.records import SpaceRecord

__all__ = [
    "start_sync",
    "finish_sync",
    "forget",
    "hold",
    "request_resync",
    "request_resync_of_derivatives",
    "note_listed",
    "note_tags",
    "find_places",
    "seen_models",
]

Places: TypeAlias = Mapping[str | None, Place]
"""The places of a model by component; None is the model itself."""
_BATCH_SIZE = 500
_UNKNOWN = ""
"""The revision of a model that is due for a sync: no hub has it."""


def start_sync(session: Writer, source_id: str, name: str, job_id: str) -> int | None:
    """Start a sync of a model; return its number, to be committed before the hub is asked.

    Returns:
        None while another job syncs the model.
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


def finish_sync(
    session: Writer,
    source_id: str,
    name: str,
    sequence: int,
    *,
    opened: datetime,
    revision: str | None,
    places: Places | None = None,
    error: Mapping[str, Any] | None = None,
    tags: str | None = None,
    changed_at: datetime | None = None,
) -> bool:
    """Record the result of a sync in the transaction that stores the model, which locks it.

    Args:
        sequence: the number of this sync.
        opened: the time of the source's last change that the sync knows. If the source was changed
            later, the next poll syncs the model once more.
        revision: the revision that was synced; None if the model is gone.
        places: the places where it is stored now; None if they have not changed.
        error: the reason why it is not, as ``{"code", "detail"}``; this revision is not tried
            again.
        tags: the digest of its tags on the hub; None if the sync does not know them.
        changed_at: when it was changed last on the hub, likewise.

    Returns:
        False, with nothing recorded, if a later sync has ended before, or the source is gone. Then
        nothing may be stored.
    """
    row = _lock(session, source_id, name)
    if row is None or row.sync_applied_seq > sequence:
        return False
    # Read with the row locked: a later change of the source marks the row after this.
    if revision is not None and _source_updated_at(session, source_id) != opened:
        revision = _UNKNOWN
    row.sync_applied_seq = sequence
    row.revision = revision
    if places is not None:
        _set_places(row, places)
    row.error = None if error is None else dict(error)
    row.tags_digest = row.tags_digest if tags is None else tags
    row.hub_changed_at = row.hub_changed_at if changed_at is None else changed_at
    row.synced_at = datetime.now(UTC)
    session.flush()
    return True


def find_places(session: Reader, source_id: str, name: str) -> dict[str | None, Place]:
    """The places where a hub's model was stored last, by component; None is the model itself."""
    row = session.get(SourceModelRow, (source_id, name), populate_existing=True)
    if row is None:
        return {}
    places: dict[str | None, Place] = {}
    if row.model is not None and (row.space is not None or row.delta_space is not None):
        places[None] = Place(row.model, row.space, row.delta_space)
    return places | {part: Place(**place) for part, place in (row.components or {}).items()}


def hold(session: Writer, source_id: str, name: str) -> dict[str | None, Place]:
    """Lock a model and return its places: no other sync of it ends before this transaction."""
    _lock(session, source_id, name)
    return find_places(session, source_id, name)


def forget(session: Writer, source_id: str, name: str) -> None:
    """Forget a model, for example a renamed one."""
    session.execute(
        delete(SourceModelRow).where(
            SourceModelRow.source_id == source_id, SourceModelRow.name == name
        )
    )


def request_resync(session: Writer, source_id: str) -> None:
    """Let the next poll sync every model that is not gone.

    All rows are written, so that this waits for all syncs that are about to end.
    """
    session.execute(
        update(SourceModelRow)
        .where(SourceModelRow.source_id == source_id)
        .values(revision=case((SourceModelRow.revision.is_not(None), _UNKNOWN)))
    )


def request_resync_of_derivatives(
    session: Writer, source_id: str, space: SpaceRecord, base: str, component: str | None = None
) -> None:
    """Let the next poll sync the models that declare a base and have no delta.

    A pipeline whose component declares that of the base is synced whole. A model that is being
    synced at this moment is left out: nothing waits for its row.
    """
    declaring = select(ModelRow.name).where(
        ModelRow.space_id == space.id, ModelRow.base_model == base
    )
    table = SourceModelRow
    wanted: tuple[ColumnElement[bool], ...] = (
        table.space == space.name,
        table.model.in_(declaring),
        table.delta_space.is_(None),
    )
    if component is not None:
        names = [name.removesuffix(f"/{component}") for name in session.scalars(declaring)]
        wanted = (table.name.in_(names), table.components.is_not(None))
    rows = session.scalars(
        select(table)
        .where(table.source_id == source_id, table.revision.is_not(None), *wanted)
        .with_for_update(skip_locked=True)
    )
    for row in rows:
        row.revision = _UNKNOWN
    session.flush()


def seen_models(session: Reader, source_id: str) -> Iterator[SeenModel]:
    """The last known state of every model of a source."""
    row = SourceModelRow
    is_placed = (
        row.space.is_not(None)
        | row.delta_space.is_not(None)
        | row.components.is_not(None)
        | (func.coalesce(row.fingerprint_state, "") == "read")
    )
    columns = (row.name, row.revision, row.listed, is_placed, row.tags_digest, row.hub_changed_at)
    query = select(*columns).where(row.source_id == source_id)
    for found in session.execute(query.order_by(row.name)):
        yield SeenModel(*found)


def note_tags(session: Writer, source_id: str, digests: Mapping[str, str]) -> None:
    """Record the digests of the tags that models have in the newest listing, by name."""
    for name in sorted(digests):
        session.execute(
            update(SourceModelRow)
            .where(SourceModelRow.source_id == source_id, SourceModelRow.name == name)
            .values(tags_digest=digests[name])
        )


def note_listed(session: Writer, source_id: str, names: Collection[str], *, listed: bool) -> None:
    """Record whether some models are in the newest listing."""
    wanted = sorted(names)
    for begin in range(0, len(wanted), _BATCH_SIZE):
        session.execute(
            update(SourceModelRow)
            .where(
                SourceModelRow.source_id == source_id,
                SourceModelRow.name.in_(wanted[begin : begin + _BATCH_SIZE]),
            )
            .values(listed=listed)
        )


def _runs(session: Reader, job_id: str | None) -> bool:
    state = select(JobRow.state).where(JobRow.id == job_id)
    return job_id is not None and session.scalar(state) == "running"


def _source_updated_at(session: Reader, source_id: str) -> datetime | None:
    return session.scalar(select(SourceRow.updated_at).where(SourceRow.id == source_id))


def _set_places(row: SourceModelRow, places: Places) -> None:
    whole = places.get(None)
    row.space = None if whole is None else whole.space
    row.delta_space = None if whole is None else whole.delta_space
    row.model = None if whole is None else whole.model
    parts = {part: asdict(place) for part, place in places.items() if part is not None}
    row.components = parts or None


def _lock(session: Writer, source_id: str, name: str) -> SourceModelRow | None:
    query = select(SourceModelRow).where(
        SourceModelRow.source_id == source_id, SourceModelRow.name == name
    )
    return session.scalar(query.with_for_update().execution_options(populate_existing=True))
