"""What a search reads of the models that it compares: a few columns of few rows, and no objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, select

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import ModelRow
from app.spaces.records import SpaceRecord

__all__ = ["Candidate", "candidates_by_id", "candidates_by_name", "candidates_in_pages"]

Ids = npt.NDArray[np.int64]

_AT_ONCE = 500  # below every backend's limit of bound parameters

_COLUMNS = (
    ModelRow.id,
    ModelRow.name,
    ModelRow.support_size,
    ModelRow.blob_key,
    ModelRow.content_id,
)


# Looked for by id alone: SQLite, told the space, would read all of it. Made once: to make it takes
# longer than to ask it.
_BY_ID = select(ModelRow.space_id, *_COLUMNS).where(
    ModelRow.id.in_(bindparam("ids", expanding=True))
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model as far as it takes to compare it; ``blob_key`` is None without a support."""

    id: int
    name: str
    support_size: int
    blob_key: str | None
    content_id: int


def candidates_by_id(session: Reader, space: SpaceRecord, ids: Sequence[int]) -> list[Candidate]:
    """Those of the models that this view of the space has, in no order."""
    found: list[Candidate] = []
    connection = session.connection()
    for at in range(0, len(ids), _AT_ONCE):
        rows = connection.execute(_BY_ID, {"ids": ids[at : at + _AT_ONCE]})
        found.extend(Candidate(*row[1:]) for row in rows if row[0] == space.id)
    return found


def candidates_by_name(
    session: Reader, space: SpaceRecord, names: Sequence[str]
) -> list[Candidate]:
    """Those of the models that there are, in no order."""
    found: list[Candidate] = []
    for at in range(0, len(names), _AT_ONCE):
        some = ModelRow.name.in_(names[at : at + _AT_ONCE])
        rows = session.execute(select(*_COLUMNS).where(ModelRow.space_id == space.id, some))
        found.extend(Candidate(*row) for row in rows)
    return found


def candidates_in_pages(
    session: Reader, space: SpaceRecord, among: Ids | None = None
) -> Iterator[list[Candidate]]:
    """All models of the space, or those of some ids, some hundred at a time."""
    if among is None:
        yield from _all_in_pages(session, space)
        return
    for at in range(0, among.size, _AT_ONCE):
        yield candidates_by_id(session, space, among[at : at + _AT_ONCE].tolist())


def _all_in_pages(session: Reader, space: SpaceRecord) -> Iterator[list[Candidate]]:
    last = -1
    query = select(*_COLUMNS).where(ModelRow.space_id == space.id).order_by(ModelRow.id)
    while True:
        rows = session.execute(query.where(ModelRow.id > last).limit(_AT_ONCE)).all()
        if not rows:
            return
        page = [Candidate(*row) for row in rows]
        last = page[-1].id
        yield page
