"""Queries for the packed sketches of a space: which ranges of ids are packed, and by whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow
from app.infra.db.tables.index import SketchSegmentRow

__all__ = [
    "Sketched",
    "blob_keys",
    "claim",
    "finish",
    "forget",
    "free_ranges",
    "segment_keys",
    "sketched_since",
]

_KEYS_PER_STATEMENT = 500  # below every backend's limit of bound parameters
_MAX_CLAIM = timedelta(hours=1)
"""The age of a claim without a key after which its process must have died."""


@dataclass(frozen=True, slots=True)
class Sketched:
    """A model whose support has a sketch in the store."""

    id: int
    content_id: int
    support_size: int
    blob_key: str
    digest: str | None


def sketched_since(
    session: Reader,
    space_id: int,
    version: int,
    *,
    after: int,
    before: int | None = None,
    limit: int,
) -> Sequence[Sketched]:
    """The models with supports that changed after a version, by id, between two ids."""
    query = (
        select(
            ModelRow.id,
            ModelRow.content_id,
            ModelRow.support_size,
            ModelRow.blob_key,
            ModelRow.digest,
        )
        .where(
            ModelRow.space_id == space_id,
            ModelRow.version > version,
            ModelRow.id > after,
            ModelRow.content_id != 0,
            ModelRow.blob_key.is_not(None),
        )
        .order_by(ModelRow.id)
        .limit(limit)
    )
    if before is not None:
        query = query.where(ModelRow.id < before)
    return [
        Sketched(model_id, content_id, size, blob_key, digest)
        for model_id, content_id, size, blob_key, digest in session.execute(query)
        if blob_key is not None
    ]


def free_ranges(session: Reader, space_id: int) -> list[tuple[int, int | None]]:
    """Return the ranges of ids that have no pack and no packing process: lost packs first.

    Returns:
        The ids before and after each range; nothing is after the last one.
    """
    live = SketchSegmentRow.key.is_not(None) | (
        SketchSegmentRow.claimed_at > datetime.now(UTC) - _MAX_CLAIM
    )
    query = select(SketchSegmentRow.first_id, SketchSegmentRow.last_id).where(
        SketchSegmentRow.space_id == space_id, live
    )
    found: list[tuple[int, int | None]] = []
    last = 0
    for first_id, last_id in session.execute(query.order_by(SketchSegmentRow.first_id)):
        if first_id > last + 1:
            found.append((last, first_id))
        last = max(last, last_id)
    return [*found, (last, None)]


def claim(session: Writer, space_id: int, first_id: int, last_id: int) -> bool:
    """Claim a range of ids, to pack it; False where another process was faster."""
    mine = (SketchSegmentRow.space_id == space_id) & (SketchSegmentRow.first_id == first_id)
    dead = SketchSegmentRow.claimed_at <= datetime.now(UTC) - _MAX_CLAIM
    session.execute(delete(SketchSegmentRow).where(mine, dead, SketchSegmentRow.key.is_(None)))
    row = {"space_id": space_id, "first_id": first_id, "last_id": last_id}
    try:
        with session.begin_nested():
            session.execute(insert(SketchSegmentRow), [{**row, "claimed_at": datetime.now(UTC)}])
    except IntegrityError:
        return False
    return True


def finish(session: Writer, space_id: int, first_id: int, key: str) -> bool:
    """Note where a claimed range is packed; False where its space was deleted meanwhile."""
    done = session.scalar(
        update(SketchSegmentRow)
        .where(SketchSegmentRow.space_id == space_id, SketchSegmentRow.first_id == first_id)
        .values(key=key)
        .returning(SketchSegmentRow.key)
        .execution_options(synchronize_session=False)
    )
    return done is not None


def forget(session: Writer, key: str) -> None:
    """Forget a pack that is lost, so that its range is packed again."""
    session.execute(delete(SketchSegmentRow).where(SketchSegmentRow.key == key))


def segment_keys(session: Reader, space_id: int, first_id: int, last_id: int) -> Sequence[str]:
    """The packs that may hold sketches of models with these ids, by id."""
    query = (
        select(SketchSegmentRow.key)
        .where(
            SketchSegmentRow.space_id == space_id,
            SketchSegmentRow.first_id <= last_id,
            SketchSegmentRow.last_id >= first_id,
            SketchSegmentRow.key.is_not(None),
        )
        .order_by(SketchSegmentRow.first_id)
    )
    return [key for key in session.scalars(query) if key is not None]


def blob_keys(session: Reader, keys: Iterable[str]) -> set[str]:
    """Return the ``keys`` that are packs."""
    wanted, found = list(keys), set[str]()
    for at in range(0, len(wanted), _KEYS_PER_STATEMENT):
        some = SketchSegmentRow.key.in_(wanted[at : at + _KEYS_PER_STATEMENT])
        found.update(
            key for key in session.scalars(select(SketchSegmentRow.key).where(some)) if key
        )
    return found
