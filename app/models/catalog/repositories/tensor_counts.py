"""Queries for index counts by tensor: the number of a support's indices in each tensor.

They are stored with each support of a space that has a layout, because the overlap by chance
follows from them. Supports that an older version has stored have none until a job makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from sqlalchemy import Select, bindparam, delete, insert, select

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SpaceRow, TensorCountsRow
from app.models.catalog.repositories.candidates import Candidate
from app.models.spaces.records import SpaceRecord
from modelkin.core.indices import IndexArray
from modelkin.core.layout import counts_in_tensors

__all__ = [
    "Counts",
    "any_missing",
    "counts_by_id",
    "counts_by_name",
    "decode",
    "dtype_of",
    "encode",
    "insert_counts",
    "missing_in_pages",
    "replace_counts",
]

Counts = npt.NDArray[np.unsignedinteger]

_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters

# Built once, because compiling costs more than executing.
_BY_NAME = (
    select(ModelRow.name, TensorCountsRow.counts)
    .join(TensorCountsRow, TensorCountsRow.model_id == ModelRow.id)
    .where(
        ModelRow.space_id == bindparam("space"),
        ModelRow.name.in_(bindparam("names", expanding=True)),
    )
)
_BY_ID = select(TensorCountsRow.model_id, TensorCountsRow.counts).where(
    TensorCountsRow.model_id.in_(bindparam("ids", expanding=True))
)


def encode(
    space: SpaceRecord, sizes: npt.NDArray[np.uint64] | None, indices: IndexArray
) -> bytes | None:
    """The stored form of the counts of ascending indices; None in a space without a layout.

    Args:
        sizes: the sizes of the space's tensors, shape ``(tensors,)``; None without a layout.
    """
    if sizes is None:
        return None
    return counts_in_tensors(indices, sizes).astype(dtype_of(space)).tobytes()


def decode(space: SpaceRecord, stored: bytes) -> Counts:
    """Return the counts of one support, shape ``(tensors,)``."""
    return np.frombuffer(stored, dtype_of(space))


def counts_by_name(session: Reader, space: SpaceRecord, names: Sequence[str]) -> dict[str, Counts]:
    """Return the counts of the supports among the models of these names, by name."""
    found: dict[str, Counts] = {}
    connection = session.connection()
    for at in range(0, len(names), _IDS_PER_STATEMENT):
        asked = {"space": space.id, "names": names[at : at + _IDS_PER_STATEMENT]}
        rows = connection.execute(_BY_NAME, asked)
        found.update((name, decode(space, stored)) for name, stored in rows)
    return found


def counts_by_id(session: Reader, space: SpaceRecord, ids: Sequence[int]) -> dict[int, Counts]:
    """Return the counts of the supports among the models of these ids, by id."""
    found: dict[int, Counts] = {}
    connection = session.connection()
    for at in range(0, len(ids), _IDS_PER_STATEMENT):
        rows = connection.execute(_BY_ID, {"ids": ids[at : at + _IDS_PER_STATEMENT]})
        found.update((model_id, decode(space, stored)) for model_id, stored in rows)
    return found


def any_missing(session: Reader) -> bool:
    """Whether a support in a space with a layout has no counts."""
    return session.execute(_missing().limit(1)).first() is not None


def missing_in_pages(session: Reader, after: int, limit: int) -> list[tuple[int, Candidate]]:
    """Yield the supports without counts, by id, each after the id of its space.

    Args:
        after: the last id of the previous page; 0 for the first page.
        limit: the most supports of a page.
    """
    query = _missing().where(ModelRow.id > after).order_by(ModelRow.id).limit(limit)
    return [(row[0], Candidate(*row[1:])) for row in session.execute(query)]


def insert_counts(session: Writer, counts: Mapping[int, bytes | None]) -> None:
    """Insert the counts that are given, by model id, for models without any."""
    rows = [{"model_id": i, "counts": stored} for i, stored in counts.items() if stored is not None]
    if rows:
        session.execute(insert(TensorCountsRow), rows)


def replace_counts(session: Writer, counts: Mapping[int, bytes | None]) -> None:
    """Replace the counts of the models, or delete them."""
    wanted = list(counts)
    for at in range(0, len(wanted), _IDS_PER_STATEMENT):
        some = TensorCountsRow.model_id.in_(wanted[at : at + _IDS_PER_STATEMENT])
        session.execute(
            delete(TensorCountsRow).where(some).execution_options(synchronize_session=False)
        )
    insert_counts(session, counts)


def _missing() -> Select[int, int, str, int, str | None, int, str | None]:
    has_layout = select(SpaceRow.id).where(SpaceRow.layout_digest.is_not(None))
    counted = select(TensorCountsRow.model_id).where(TensorCountsRow.model_id == ModelRow.id)
    return select(
        ModelRow.space_id,
        ModelRow.id,
        ModelRow.name,
        ModelRow.support_size,
        ModelRow.blob_key,
        ModelRow.content_id,
        ModelRow.digest,
    ).where(ModelRow.kind == "support", ModelRow.space_id.in_(has_layout), ~counted.exists())


def dtype_of(space: SpaceRecord) -> np.dtype[np.unsignedinteger]:
    """The stored dtype of counts: the least of 4 or 8 bytes that holds M."""
    return np.dtype("<u4" if space.num_parameters <= 2**32 else "<u8")
