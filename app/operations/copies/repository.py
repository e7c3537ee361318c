"""Queries of a verification: everything that is stored of models, page by page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, case, func, select, union_all

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import (
    ModelRow,
    RevisionRow,
    SignatureRow,
    SketchRow,
    SpaceRow,
    TensorCountsRow,
)
from app.operations.copies.records import ModelState, StoredModel, StoredRevision

__all__ = ["SpaceCounts", "signatures_page", "model_states", "next_ids", "space_counts"]

_MODEL = (
    ModelRow.id,
    ModelRow.tenant_id,
    ModelRow.space_id,
    ModelRow.name,
    ModelRow.kind,
    ModelRow.support_size,
    ModelRow.digest,
    ModelRow.blob_key,
    ModelRow.blob_size,
    ModelRow.revision,
    ModelRow.version,
)
_REVISION = (
    RevisionRow.model_id,
    RevisionRow.revision,
    RevisionRow.support_size,
    RevisionRow.digest,
    RevisionRow.blob_key,
    RevisionRow.blob_size,
    RevisionRow.minhash,
)


@dataclass(frozen=True, slots=True)
class SpaceCounts:
    """The counts of a space: those of its row, or those of its models."""

    supports: int
    signatures: int
    support_bytes: int


def next_ids(session: Reader, after: int, limit: int) -> Sequence[int]:
    """The ids of the next models of all spaces, ascending."""
    query = select(ModelRow.id).where(ModelRow.id > after).order_by(ModelRow.id)
    return session.scalars(query.limit(limit)).all()


def model_states(session: Reader, ids: Sequence[int]) -> list[ModelState]:
    """Return the stored data of those of some hundred models that exist, by id."""
    revisions: dict[int, list[StoredRevision]] = defaultdict(list)
    of_models = select(*_REVISION).where(RevisionRow.model_id.in_(ids))
    for past in session.execute(of_models.order_by(RevisionRow.revision)):
        revisions[past.model_id].append(StoredRevision(*past[1:]))
    signatures = _by_model(session, SignatureRow.model_id, SignatureRow.values, ids)
    counts = _by_model(session, TensorCountsRow.model_id, TensorCountsRow.counts, ids)
    sketches = _by_model(session, SketchRow.model_id, SketchRow.data, ids)
    rows = session.execute(select(*_MODEL).where(ModelRow.id.in_(ids)).order_by(ModelRow.id))
    return [
        ModelState(
            StoredModel(*row),
            tuple(revisions[row.id]),
            signatures.get(row.id),
            counts.get(row.id),
            sketches.get(row.id),
        )
        for row in rows
    ]


def space_counts(session: Reader, space_id: int) -> tuple[SpaceCounts, SpaceCounts] | None:
    """The counts in a space's row, and the counts of its models; None if there is no such space."""
    row = session.execute(
        select(SpaceRow.supports, SpaceRow.signatures, SpaceRow.support_bytes).where(
            SpaceRow.id == space_id
        )
    ).first()
    if row is None:
        return None
    supports = func.coalesce(func.sum(case((ModelRow.kind == "support", 1), else_=0)), 0)
    count, total = session.execute(
        select(supports, func.count()).where(ModelRow.space_id == space_id)
    ).one()
    size = session.scalars(_bytes_of(space_id)).one()
    return SpaceCounts(*row), SpaceCounts(int(count), int(total - count), int(size or 0))


def signatures_page(
    session: Reader, space_id: int, after: int, limit: int
) -> list[tuple[int, int, bytes | None]]:
    """Id, version and signature of the next models of a space, by id."""
    query = (
        select(ModelRow.id, ModelRow.version, SignatureRow.values)
        .outerjoin(SignatureRow, SignatureRow.model_id == ModelRow.id)
        .where(ModelRow.space_id == space_id, ModelRow.id > after)
    )
    page = session.execute(query.order_by(ModelRow.id).limit(limit))
    return [(model_id, version, values) for model_id, version, values in page]


def _by_model(session: Reader, of: Any, value: Any, ids: Sequence[int]) -> dict[int, bytes]:
    return {row[0]: row[1] for row in session.execute(select(of, value).where(of.in_(ids)))}


def _bytes_of(space_id: int) -> Select[Any]:
    """The bytes of all blobs of a space, each counted once; those of unknown size are left out."""
    present = select(ModelRow.blob_key.label("key"), ModelRow.blob_size.label("size")).where(
        ModelRow.space_id == space_id, ModelRow.blob_key.is_not(None)
    )
    past = (
        select(RevisionRow.blob_key.label("key"), RevisionRow.blob_size.label("size"))
        .join(ModelRow, ModelRow.id == RevisionRow.model_id)
        .where(ModelRow.space_id == space_id, RevisionRow.blob_key.is_not(None))
    )
    blobs = union_all(present, past).subquery()
    sizes = select(func.max(blobs.c.size).label("size")).group_by(blobs.c.key).subquery()
    return select(func.coalesce(func.sum(sizes.c.size), 0))
