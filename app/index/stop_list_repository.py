"""Queries for stop-lists, and for the band values of each model under them.

A version of a stop-list never changes. Band values of versions that are not active stay in the same
table; no query reads them, and a later rollout deletes them.
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
    "begin_version",
    "changed_after",
    "activate",
    "delete_band_values",
    "get_band_values",
    "get_indices",
    "put_band_values",
    "require_latest",
    "deactivate",
    "support_ids",
    "unbanded_ids",
]


def begin_version(session: Writer, space: SpaceRecord) -> int:
    """Reserve the next stop-list version; a stop-list begun earlier can no longer be activated.

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
    """Require that no later version was begun.

    Until the transaction ends, no version can begin and no model can change.

    Raises:
        SpaceNotFound: the space was deleted.
        Conflict: another version was begun, or the stop-list was dropped.
    """
    # A shared lock: two of these do not wait for each other, but a change of a model waits.
    latest = session.scalar(
        select(SpaceRow.stop_list_seq)
        .where(SpaceRow.id == space.id)
        .with_for_update(read=True, key_share=True)
    )
    if latest is None:
        raise SpaceNotFound(f"there is no space {space.name!r}")
    if latest != version:
        raise Conflict(
            f"another stop-list of space {space.name!r} was begun, or its stop-list was dropped, "
            f"while this one was being made: the later request counts"
        )


def activate(session: Writer, space: SpaceRecord, made: StopList, indices: bytes) -> None:
    """Activate a stop-list, which invalidates all buckets of the space.

    The caller holds the space's lock, and has made sure that every model has its band values.
    """
    _delete_lists(session, space)
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


def deactivate(session: Writer, space: SpaceRecord) -> None:
    """Deactivate the space's stop-list, which invalidates all buckets of the space.

    The caller holds the space's lock.
    """
    _delete_lists(session, space)
    _set_version(session, space, 0)


def get_indices(session: Reader, space_id: int, version: int) -> bytes | None:
    """The indices of a version in the native wire format; None if the version is not active."""
    return session.scalar(
        select(StopListRow.indices).where(
            StopListRow.space_id == space_id, StopListRow.version == version
        )
    )


def put_band_values(
    session: Writer, space: SpaceRecord, version: int, values: Mapping[int, bytes | None]
) -> None:
    """Replace the band values of some models under this version.

    The caller holds the space's lock, or the shared one of :func:`require_latest`. Models that were
    removed get none.

    Args:
        values: little-endian minhashes by the ids of the models; None for an unbanded_ids one.
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
    """The band values of one model; None if it is unbanded."""
    return session.scalar(
        select(BandedSignatureRow.minhash).where(
            BandedSignatureRow.model_id == model_id, BandedSignatureRow.version == version
        )
    )


def delete_band_values(session: Writer, ids: Collection[int], *, before: int) -> None:
    """Delete the band values of some models, of all versions before one."""
    session.execute(
        delete(BandedSignatureRow).where(
            BandedSignatureRow.model_id.in_(ids), BandedSignatureRow.version < before
        )
    )


def unbanded_ids(session: Reader, space: SpaceRecord, limit: int) -> Sequence[int]:
    """The ids of models that no bucket of the space can hold, ``limit`` at most."""
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
    """The ids and versions of the next models that changed after ``version``, in that order."""
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


def _delete_lists(session: Writer, space: SpaceRecord) -> None:
    session.execute(delete(StopListRow).where(StopListRow.space_id == space.id))


def _set_version(session: Writer, space: SpaceRecord, version: int) -> None:
    session.execute(
        update(SpaceRow)
        .where(SpaceRow.id == space.id)
        .values(banding_version=version)
        .execution_options(synchronize_session=False)
    )
    renew_bucket_epoch(session, space.id)
