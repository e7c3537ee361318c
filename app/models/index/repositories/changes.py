"""Queries for the change log of a space, which the in-process indexes follow.

The table of models, read from a version on, is its own change log; removals leave tombstones beside
it. A process reads a million signatures at its start. So this module reads pages straight from the
driver: a few arrays a page instead of a Python object a row.

Old tombstones are deleted, because they would only grow; the compacted version says up to where. An
index of an earlier version cannot know which models are gone, and starts again. Tombstones and the
compacted version change together, under the space's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from sqlalchemy import delete, func, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SpaceRow, TombstoneRow

__all__ = [
    "Page",
    "changed_ids",
    "changed_since",
    "count_models",
    "prune_tombstones",
    "compacted_version",
    "last_removal",
    "present_ids",
    "removed_since",
    "spaces_to_compact",
]

_Ids = npt.NDArray[np.int64]
Page: TypeAlias = tuple[_Ids, _Ids, bytes]
"""A page of models: ids, int64, shape ``(n,)``; content ids, int64, shape ``(n,)``; and the
signatures, little-endian and concatenated.
"""

_PAGE_SIZE = 1024
"""Models a page: a mebibyte at 256 values of 4 bytes. Pages of 4 MiB take Postgres longer."""

_CHANGED_SQLITE = """
SELECT m.id, m.content_id, s."values"
FROM models m JOIN signatures s ON s.model_id = m.id
WHERE m.space_id = ? AND m.version > ?
"""

# Postgres returns one value of 1 MiB much sooner than 1,024 of 1 KiB. All four aggregates read the
# rows of a page in the same order, whichever it is. A page ends at an id and not at a version,
# because many models may share a version.
_CHANGED_POSTGRES = """
SELECT string_agg(int8send(m.id), ''), string_agg(int8send(m.content_id), ''),
       string_agg(int8send(m.version), ''), string_agg(s."values", '')
FROM (
    SELECT id, content_id, version FROM models
    WHERE space_id = %(space)s AND version >= %(version)s
      AND (version, id) > (%(version)s, %(id)s)
    ORDER BY version, id LIMIT %(limit)s
) m JOIN signatures s ON s.model_id = m.id
"""
_LAST_ID = 2**63 - 1


def changed_since(session: Reader, space_id: int, version: int) -> Iterator[Page]:
    """The models that changed after ``version``: each once, in its present state, in any order."""
    if session.get_bind().dialect.name == "sqlite":
        return _from_sqlite(session, space_id, version)
    return _from_postgres(session, space_id, version)


def changed_ids(session: Reader, space_id: int, version: int) -> list[int]:
    """The ids of the models that changed after ``version``, in any order."""
    changed = ModelRow.space_id == space_id, ModelRow.version > version
    return list(session.scalars(select(ModelRow.id).where(*changed)))


def removed_since(session: Reader, space_id: int, version: int) -> list[int]:
    """The ids of the models that were removed after ``version``."""
    removed = TombstoneRow.space_id == space_id, TombstoneRow.version > version
    return list(session.scalars(select(TombstoneRow.model_id).where(*removed)))


def last_removal(session: Reader, space_id: int) -> int:
    """The version of a space's last removal that is known; 0 if none is."""
    query = select(func.max(TombstoneRow.version)).where(TombstoneRow.space_id == space_id)
    return session.scalar(query) or 0


def present_ids(session: Reader, space_id: int) -> _Ids:
    """The ids of the models of a space, ascending."""
    query = select(ModelRow.id).where(ModelRow.space_id == space_id)
    return np.sort(_ids(session.scalars(query)))


def compacted_version(session: Reader, space_id: int) -> int:
    """The version up to which tombstones may be deleted; 0 if the space does not exist."""
    version = session.scalar(select(SpaceRow.compacted_version).where(SpaceRow.id == space_id))
    return version or 0


def count_models(session: Reader, space_id: int) -> int:
    """Return the number of models of a space; 0 if the space does not exist."""
    query = select(SpaceRow.supports + SpaceRow.signatures).where(SpaceRow.id == space_id)
    return session.scalar(query) or 0


def spaces_to_compact(session: Reader, more_than: int) -> list[tuple[int, int, int]]:
    """The spaces with more than ``more_than`` tombstones: id, how many models and tombstones."""
    models = SpaceRow.supports + SpaceRow.signatures
    tombstones = func.count()
    query = (
        select(SpaceRow.id, models, tombstones)
        .join(TombstoneRow, TombstoneRow.space_id == SpaceRow.id)
        # A version removes at most one model, so this condition saves counting in most spaces.
        .where(SpaceRow.version - SpaceRow.compacted_version > more_than)
        .group_by(SpaceRow.id, models)
        .having(tombstones > more_than)
    )
    return [(space_id, held, removed) for space_id, held, removed in session.execute(query)]


def prune_tombstones(session: Writer, space_id: int, *, keep: int, batch_size: int) -> int:
    """Delete the oldest tombstones of a space but ``keep``; return how many it deleted.

    Args:
        batch_size: the most that one call deletes.
    """
    locked = select(SpaceRow.id).where(SpaceRow.id == space_id).with_for_update()
    if session.scalar(locked) is None:
        return 0
    of_space = TombstoneRow.space_id == space_id
    total = session.scalars(select(func.count()).select_from(TombstoneRow).where(of_space)).one()
    count = min(total - keep, batch_size)
    if count <= 0:  # another process was first
        return 0
    oldest = select(TombstoneRow.version).where(of_space).order_by(TombstoneRow.version)
    until = session.scalars(oldest.limit(1).offset(count - 1)).one()
    moved = update(SpaceRow).where(SpaceRow.id == space_id).values(compacted_version=until)
    session.execute(moved.execution_options(synchronize_session=False))
    pruned = delete(TombstoneRow).where(of_space, TombstoneRow.version <= until)
    session.execute(pruned.execution_options(synchronize_session=False))
    return count


def _from_sqlite(session: Reader, space_id: int, version: int) -> Iterator[Page]:
    connection = session.connection().connection.driver_connection
    assert connection is not None
    cursor = connection.execute(_CHANGED_SQLITE, (space_id, version))
    while rows := cursor.fetchmany(_PAGE_SIZE):
        ids, contents, signatures = zip(*rows, strict=True)
        yield _ids(ids), _ids(contents), b"".join(signatures)


def _from_postgres(session: Reader, space_id: int, version: int) -> Iterator[Page]:
    import psycopg

    connection = session.connection().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    place = {"space": space_id, "version": version, "id": _LAST_ID, "limit": _PAGE_SIZE}
    with connection.cursor(binary=True) as cursor:
        while True:
            row = cursor.execute(_CHANGED_POSTGRES, place).fetchone()
            if row is None or row[0] is None:
                return
            ids, contents, versions = (
                np.frombuffer(column, ">i8").astype(np.int64) for column in row[:3]
            )
            yield ids, contents, row[3]
            if ids.size < _PAGE_SIZE:
                return
            last = int(versions.max())
            place |= {"version": last, "id": int(ids[versions == last].max())}


def _ids(values: Iterable[int]) -> _Ids:
    return np.fromiter(values, np.int64)
