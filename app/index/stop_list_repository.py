"""Every query about stop-lists, and about the band values that they leave of each model.

A version of a stop-list never changes. Band values of versions that are not in force lie beside the
others, are believed by nobody, and are forgotten by and by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import delete, insert, select, update

from app.errors import Conflict, SpaceNotFound
from app.index.epoch_repository import renew_bucket_epoch
from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SpaceRow
from app.infra.db.tables.index import BandedSignatureRow, StopListRow
from app.spaces.records import SpaceRecord, StopList

__all__ = [
    "begin",
    "changed_after",
    "enforce",
    "forget_band_values",
    "get_band_values",
    "get_indices",
    "put_band_values",
    "require_latest",
    "retire",
    "support_ids",
    "unbanded",
]


def begin(session: Writer, space: SpaceRecord) -> int:
    """The version of a stop-list that is to be made; none that was begun before comes to be.

    Raises:
        SpaceNotFound: the space was deleted.
    """
    version = session.scalar(
        update(SpaceRow)
        .where(SpaceRow.id == space.id)
        .values(stop_list_seq=SpaceRow.stop_list_seq + 1)
        .returning(SpaceRow.stop_list_seq)
        .execution_options(synchronize_session=False)
    )
    if version is None:
        raise SpaceNotFound(f"there is no space {space.name!r}")
    return version


def require_latest(session: Writer, space: SpaceRecord, version: int) -> None:
    """Nothing, where no other version was begun after this one; nor does any, and no model comes or
    goes, until the transaction ends.

    Raises:
        SpaceNotFound: the space was deleted.
        Conflict: another version was begun, or the stop-list was dropped.
    """
    # Of two such shares none waits for the other, while whoever changes a model takes it all.
    latest = session.scalar(
        select(SpaceRow.stop_list_seq)
        .where(SpaceRow.id == space.id)
        .with_for_update(read=True, key_share=True)
    )
    if latest is None:
        raise SpaceNotFound(f"there is no space {space.name!r}")
    if latest != version:
        raise Conflict(
            f"another stop-list of space {space.name!r} was begun, or its stop-list dropped, while "
            f"this one was made: that one counts"
        )


def enforce(session: Writer, space: SpaceRecord, made: StopList, indices: bytes) -> None:
    """Put a stop-list in force: all buckets of the space are lost from now on.

    The caller holds the space's lock, and has seen that every model has its band values.
    """
    _forget_lists(session, space)
    session.execute(
        insert(StopListRow).values(
            space_id=space.id,
            version=made.version,
            indices=indices,
            size=made.size,
            share=made.share,
            models=made.models,
            recall=list(made.recall),
            computed_at=made.computed_at,
        )
    )
    _set_version(session, space, made.version)


def retire(session: Writer, space: SpaceRecord) -> None:
    """Go without a stop-list: all buckets of the space are lost from now on.

    The caller holds the space's lock.
    """
    _forget_lists(session, space)
    _set_version(session, space, 0)


def get_indices(session: Reader, space_id: int, version: int) -> bytes | None:
    """The indices of a version in the native wire format; None where it is not in force."""
    return session.scalar(
        select(StopListRow.indices).where(
            StopListRow.space_id == space_id, StopListRow.version == version
        )
    )


def put_band_values(
    session: Writer, space: SpaceRecord, version: int, values: Mapping[int, bytes | None]
) -> None:
    """The band values of some models, in place of those they had in this version.

    The caller holds the space's lock, or :func:`require_latest`'s share of it. Models that were
    removed before get none.

    Args:
        values: little-endian minhashes by the ids of the models; None for an unbanded one.
    """
    alive = session.scalars(select(ModelRow.id).where(ModelRow.id.in_(values))).all()
    if not alive:
        return
    session.execute(
        delete(BandedSignatureRow).where(
            BandedSignatureRow.model_id.in_(alive), BandedSignatureRow.version == version
        )
    )
    session.execute(
        insert(BandedSignatureRow),
        [
            {
                "model_id": model_id,
                "version": version,
                "space_id": space.id,
                "minhash": values[model_id],
            }
            for model_id in alive
        ],
    )


def get_band_values(session: Reader, model_id: int, version: int) -> bytes | None:
    """The band values of one model; None where it is unbanded."""
    return session.scalar(
        select(BandedSignatureRow.minhash).where(
            BandedSignatureRow.model_id == model_id, BandedSignatureRow.version == version
        )
    )


def forget_band_values(session: Writer, ids: Collection[int], *, before: int) -> None:
    """Forget the band values of some models, of all versions before one."""
    session.execute(
        delete(BandedSignatureRow).where(
            BandedSignatureRow.model_id.in_(ids), BandedSignatureRow.version < before
        )
    )


def unbanded(session: Reader, space: SpaceRecord, limit: int) -> Sequence[int]:
    """The ids of models that no bucket of the space can hold, at most so many."""
    return session.scalars(
        select(BandedSignatureRow.model_id)
        .where(
            BandedSignatureRow.space_id == space.id,
            BandedSignatureRow.version == space.banding_version,
            BandedSignatureRow.minhash.is_(None),
        )
        .limit(limit)
    ).all()


def changed_after(
    session: Reader, space: SpaceRecord, version: int, limit: int
) -> Sequence[tuple[int, int]]:
    """The ids and versions of the models that changed first after ``version``, in that order."""
    query = (
        select(ModelRow.id, ModelRow.version)
        .where(ModelRow.space_id == space.id, ModelRow.version > version)
        .order_by(ModelRow.version)
        .limit(limit)
    )
    return [(row.id, row.version) for row in session.execute(query)]


def support_ids(session: Reader, space: SpaceRecord) -> Sequence[int]:
    """The ids of the models with a support, ascending."""
    query = select(ModelRow.id).where(ModelRow.space_id == space.id, ModelRow.kind == "support")
    return session.scalars(query.order_by(ModelRow.id)).all()


def _forget_lists(session: Writer, space: SpaceRecord) -> None:
    session.execute(delete(StopListRow).where(StopListRow.space_id == space.id))


def _set_version(session: Writer, space: SpaceRecord, version: int) -> None:
    session.execute(
        update(SpaceRow)
        .where(SpaceRow.id == space.id)
        .values(banding_version=version)
        .execution_options(synchronize_session=False)
    )
    renew_bucket_epoch(session, space.id)
