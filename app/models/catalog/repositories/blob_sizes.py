"""Queries for blobs themselves: the newest blobs, and missing sizes of old blobs."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, RevisionRow

__all__ = ["newest_blobs", "set_sizes", "unmeasured_blobs"]


def newest_blobs(session: Reader, *, limit: int) -> list[str]:
    """The keys of the supports of the models that were made last."""
    query = select(ModelRow.blob_key).where(ModelRow.blob_key.is_not(None))
    found = session.scalars(query.order_by(ModelRow.id.desc()).limit(limit))
    return [key for key in found if key is not None]


def unmeasured_blobs(session: Reader, *, limit: int) -> dict[str, int]:
    """The space of each of some blobs that have no size yet, by key."""
    of_models = select(ModelRow.blob_key, ModelRow.space_id).where(
        ModelRow.blob_key.is_not(None), ModelRow.blob_size.is_(None)
    )
    of_revisions = (
        select(RevisionRow.blob_key, ModelRow.space_id)
        .join(ModelRow, ModelRow.id == RevisionRow.model_id)
        .where(RevisionRow.blob_key.is_not(None), RevisionRow.blob_size.is_(None))
    )
    found: dict[str, int] = {}
    for query in (of_models, of_revisions):
        rows = session.execute(query.limit(limit))
        found.update({key: space for key, space in rows if key is not None})
    return found


def set_sizes(session: Writer, sizes: Mapping[str, int]) -> int:
    """Set the sizes of blobs without one; return the bytes of the blobs that got one.

    The caller holds the lock of their space.
    """
    total = 0
    for key, size in sizes.items():
        changed = 0
        for row in (ModelRow, RevisionRow):
            done = session.execute(
                update(row)
                .where(row.blob_key == key, row.blob_size.is_(None))
                .values(blob_size=size)
                .returning(row.blob_key)
                .execution_options(synchronize_session=False)
            )
            changed += len(done.all())
        total += size if changed else 0
    return total
