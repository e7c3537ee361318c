"""Queries for the epoch of a space's LSH buckets, and for the history that the buckets follow.

Only the database decides the epoch. Buckets of another epoch are lost, however complete they look.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from sqlalchemy import (
    CompoundSelect,
    LargeBinary,
    literal,
    null,
    select,
    type_coerce,
    union_all,
    update,
)

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SignatureRow, SpaceRow, TombstoneRow
from app.infra.errors import SpaceNotFound

__all__ = ["ensure_bucket_epoch", "history", "renew_bucket_epoch"]


def ensure_bucket_epoch(session: Writer, space_id: int) -> int:
    """The space's epoch, created if it has none; concurrent callers get the same one.

    Raises:
        SpaceNotFound: the space was deleted.
    """
    return _set(session, space_id, keep=True)


def renew_bucket_epoch(session: Writer, space_id: int) -> int:
    """Set a new epoch, which invalidates all existing buckets of the space.

    Raises:
        SpaceNotFound: the space was deleted.
    """
    return _set(session, space_id, keep=False)


def history(session: Reader, space_id: int, since: int) -> Iterator[tuple[int, int, bytes | None]]:
    """The changes after version ``since``, by version: version, model id and signature.

    The signature is ``None`` for a model that was removed: no bucket holds it. A model that changed
    often appears once, in its present state.
    """
    changed = (
        select(
            ModelRow.version,
            ModelRow.id.label("model_id"),
            type_coerce(SignatureRow.values, LargeBinary).label("values"),
        )
        .join(SignatureRow, SignatureRow.model_id == ModelRow.id)
        .where(ModelRow.space_id == space_id, ModelRow.version > since)
    )
    removed = select(
        TombstoneRow.version, TombstoneRow.model_id, literal(None, LargeBinary()).label("values")
    ).where(TombstoneRow.space_id == space_id, TombstoneRow.version > since)
    query: CompoundSelect[int, int, bytes | None] = union_all(changed, removed)
    query = query.order_by("version")
    for row in session.execute(query.execution_options(yield_per=1024)):
        yield row.version, row.model_id, row.values


def _set(session: Writer, space_id: int, *, keep: bool) -> int:
    space = SpaceRow.id == space_id
    free = [SpaceRow.bucket_epoch.is_(null())] if keep else []
    session.execute(
        update(SpaceRow)
        .where(space, *free)
        .values(bucket_epoch=secrets.randbits(63))
        .execution_options(synchronize_session=False)
    )
    epoch = session.scalar(select(SpaceRow.bucket_epoch).where(space))
    if epoch is None:
        raise SpaceNotFound(f"space {space_id} was deleted")
    return epoch
