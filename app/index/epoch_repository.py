"""Which build of a space's LSH buckets is the right one, and what happened in a space in order.

The database alone knows: a bucket store of another epoch is lost, however whole it looks.
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
    """The space's epoch, a new one where it has none yet; the same for all who ask at once.

    Raises:
        SpaceNotFound: the space was deleted.
    """
    return _set(session, space_id, keep=True)


def renew_bucket_epoch(session: Writer, space_id: int) -> int:
    """A new epoch: whatever buckets there are of the space are lost from now on.

    Raises:
        SpaceNotFound: the space was deleted.
    """
    return _set(session, space_id, keep=False)


def history(
    session: Reader, space_id: int, since: int, banding_version: int = 0
) -> Iterator[tuple[int, int, bytes | None]]:
    """What happened after version ``since``: version, model id and band values, by version.

    Band values are a model's signature or, with a stop-list, the minhashes of what that leaves of
    its support. They are None where the model was removed or is unbanded: no bucket holds it. A
    model that changed often stands here once, as it is now.

    Args:
        banding_version: the stop-list in force, 0 without one.
    """
    banded = _by_signature() if banding_version == 0 else _by_what_is_left(banding_version)
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


def _by_what_is_left(banding_version: int) -> Select[int, int, bytes | None]:
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
