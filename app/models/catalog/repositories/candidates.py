"""Queries for the candidates of a search: few columns of few rows, and no ORM objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, select

from app.infra.db.database import Reader
from app.infra.db.tables.catalog import ModelRow
from app.models.spaces.records import SpaceRecord

__all__ = ["Candidate", "candidates_by_id", "candidates_by_name", "candidates_in_pages"]

Ids = npt.NDArray[np.int64]

_IDS_PER_STATEMENT = 500  # below every backend's limit of bound parameters

_COLUMNS = (
    ModelRow.id,
    ModelRow.name,
    ModelRow.support_size,
    ModelRow.blob_key,
    ModelRow.content_id,
    ModelRow.digest,
)


# Filter by id only: with a space filter SQLite scans the whole space. Built once, because compiling
# costs more than executing.
_BY_ID = select(ModelRow.space_id, *_COLUMNS).where(
    ModelRow.id.in_(bindparam("ids", expanding=True))
)
_BY_NAME = select(*_COLUMNS).where(
    ModelRow.space_id == bindparam("space"), ModelRow.name.in_(bindparam("names", expanding=True))
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The data to compare a model; a model without a support has no ``blob_key``."""

    id: int
    name: str
    support_size: int
    blob_key: str | None
    content_id: int
    digest: str | None


def candidates_by_id(session: Reader, space: SpaceRecord, ids: Sequence[int]) -> list[Candidate]:
    """The models of the space among ``ids``, in any order."""
    found: list[Candidate] = []
    connection = session.connection()
    for at in range(0, len(ids), _IDS_PER_STATEMENT):
        rows = connection.execute(_BY_ID, {"ids": ids[at : at + _IDS_PER_STATEMENT]})
        found.extend(Candidate(*row[1:]) for row in rows if row[0] == space.id)
    return found


def candidates_by_name(
    session: Reader, space: SpaceRecord, names: Sequence[str]
) -> list[Candidate]:
    """The existing models among ``names``, in any order."""
    found: list[Candidate] = []
    connection = session.connection()
    for at in range(0, len(names), _IDS_PER_STATEMENT):
        given = {"space": space.id, "names": names[at : at + _IDS_PER_STATEMENT]}
        found.extend(Candidate(*row) for row in connection.execute(_BY_NAME, given))
    return found


def candidates_in_pages(
    session: Reader, space: SpaceRecord, among: Ids | None = None
) -> Iterator[list[Candidate]]:
    """All models of the space, or those of some ids, some hundred at a time."""
    if among is None:
        yield from _all_in_pages(session, space)
        return
    for at in range(0, among.size, _IDS_PER_STATEMENT):
        yield candidates_by_id(session, space, among[at : at + _IDS_PER_STATEMENT].tolist())


def _all_in_pages(session: Reader, space: SpaceRecord) -> Iterator[list[Candidate]]:
    last = -1
    query = select(*_COLUMNS).where(ModelRow.space_id == space.id).order_by(ModelRow.id)
    while True:
        rows = session.execute(query.where(ModelRow.id > last).limit(_IDS_PER_STATEMENT)).all()
        if not rows:
            return
        page = [Candidate(*row) for row in rows]
        last = page[-1].id
        yield page
