"""Queries for the epoch of a space's LSH buckets, and for the history that the buckets follow.

Only the database decides the epoch. Buckets of another epoch are lost, however complete they look.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from sqlalchemy import (
    CompoundSelect,
    LargeBinary,
    Select,
    literal,
    null,
    select,
    type_coerce,
    union_all,
    update,
)

from app.errors import SpaceNotFound
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SignatureRow, SpaceRow, TombstoneRow
from app.infra.db.tables.index import BandedSignatureRow

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


def history(
    session: Reader, space_id: int, since: int, banding_version: int = 0
) -> Iterator[tuple[int, int, bytes | None]]:
    """The changes after version ``since``, by version: version, model id and band values.

    Band values are a model's signature or, with a stop-list, the minhashes of its filtered support.
    They are ``None`` for a model that was removed or is unbanded: no bucket holds it. A model that
    changed often appears once, in its present state.

    Args:
        banding_version: of the active stop-list, 0 without one.
    """
    banded = _by_signature() if banding_version == 0 else _by_filtered_support(banding_version)
    changed = banded.where(ModelRow.space_id == space_id, ModelRow.version > since)
    removed = select(
        TombstoneRow.version, TombstoneRow.model_id, literal(None, LargeBinary()).label("values")
    ).where(TombstoneRow.space_id == space_id, TombstoneRow.version > since)
    query: CompoundSelect[int, int, bytes | None] = union_all(changed, removed)
    query = query.order_by("version")
    for row in session.execute(query.execution_options(yield_per=1024)):
        yield row.version, row.model_id, row.values


def _by_signature() -> Select[int, int, bytes | None]:
    return select(
        ModelRow.version,
        ModelRow.id.label("model_id"),
        type_coerce(SignatureRow.values, LargeBinary).label("values"),
    ).join(SignatureRow, SignatureRow.model_id == ModelRow.id)


def _by_filtered_support(banding_version: int) -> Select[int, int, bytes | None]:
    of_model = (BandedSignatureRow.model_id == ModelRow.id) & (
        BandedSignatureRow.version == banding_version
    )
    return select(
        ModelRow.version, ModelRow.id.label("model_id"), BandedSignatureRow.minhash.label("values")
    ).outerjoin(BandedSignatureRow, of_model)


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
