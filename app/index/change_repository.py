"""What changed in a space since a version: the log that the in-process indexes follow.

The table of models, read from a version on, is its own change log; removals leave tombstones
beside it. A million signatures are read at a start, so this takes them in pages, straight from the
driver: what would be a Python object a row is a few arrays a page.

Old tombstones are deleted, and the compacted version says up to where. An index that has followed
the space to an earlier version cannot know what is gone, and starts anew. Both change together,
under the space's lock, which every write of a tombstone holds as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import psycopg
from sqlalchemy import delete, func, select, update

from app.infra.db.database import Reader, Writer
from app.infra.db.tables.catalog import ModelRow, SpaceRow, TombstoneRow

__all__ = [
    "Page",
    "changed_ids",
    "changed_since",
    "prune_tombstones",
    "compacted_version",
    "removed_since",
    "spaces_to_compact",
]

_Ids = npt.NDArray[np.int64]
Page: TypeAlias = tuple[_Ids, _Ids, bytes]
"""Ids of models, int64, shape ``(n,)``; the ids of their contents, likewise; and their signatures,
little-endian, one after another.
"""

_AT_ONCE = 1024
"""Models on a page: at 256 values of four bytes a mebibyte; pages of four take Postgres longer."""

_CHANGED = """
SELECT m.id, m.content_id, s."values"
FROM models m JOIN signatures s ON s.model_id = m.id
WHERE m.space_id = ? AND m.version > ?
"""

# Postgres hands over a value of 1 MiB much sooner than 1,024 of 1 KiB. All four aggregates see the
# rows of a page in one order, whichever it is. A page ends at an id, not at a version: nothing
# forbids that many models share one.
_CHANGED_IN_PAGES = """
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
    """The models that changed after ``version``, each once, as it is now, in no order."""
    if session.get_bind().dialect.name == "sqlite":
        return _from_sqlite(session, space_id, version)
    return _from_postgres(session, space_id, version)


def changed_ids(session: Reader, space_id: int, version: int) -> list[int]:
    """The ids of the models that changed after ``version``, in no order."""
    changed = ModelRow.space_id == space_id, ModelRow.version > version
    return list(session.scalars(select(ModelRow.id).where(*changed)))


def removed_since(session: Reader, space_id: int, version: int) -> list[int]:
    """The ids of the models that were removed after ``version``."""
    removed = TombstoneRow.space_id == space_id, TombstoneRow.version > version
    return list(session.scalars(select(TombstoneRow.model_id).where(*removed)))


def compacted_version(session: Reader, space_id: int) -> int:
    """The version up to which tombstones may be deleted; 0 where there is no such space."""
    horizon = session.scalar(select(SpaceRow.compacted_version).where(SpaceRow.id == space_id))
    return horizon or 0


def spaces_to_compact(session: Reader, more_than: int) -> list[tuple[int, int, int]]:
    """The spaces with more than so many tombstones: id, number of models, number of tombstones."""
    models = SpaceRow.supports + SpaceRow.signatures
    tombstones = func.count()
    query = (
        select(SpaceRow.id, models, tombstones)
        .join(TombstoneRow, TombstoneRow.space_id == SpaceRow.id)
        # A version removes one model at most, so most spaces need not be counted.
        .where(SpaceRow.version - SpaceRow.compacted_version > more_than)
        .group_by(SpaceRow.id, models)
        .having(tombstones > more_than)
    )
    return [(space_id, held, removed) for space_id, held, removed in session.execute(query)]


def prune_tombstones(session: Writer, space_id: int, *, keep: int, at_once: int) -> int:
    """Delete the oldest tombstones of a space but ``keep``; returns how many it deleted.

    Args:
        at_once: deletes no more than this.
    """
    locked = select(SpaceRow.id).where(SpaceRow.id == space_id).with_for_update()
    if session.scalar(locked) is None:
        return 0
    of_space = TombstoneRow.space_id == space_id
    there = session.scalars(select(func.count()).select_from(TombstoneRow).where(of_space)).one()
    most = min(there - keep, at_once)
    if most <= 0:  # another process was first
        return 0
    oldest = select(TombstoneRow.version).where(of_space).order_by(TombstoneRow.version)
    horizon = session.scalars(oldest.limit(1).offset(most - 1)).one()
    moved = update(SpaceRow).where(SpaceRow.id == space_id).values(compacted_version=horizon)
    session.execute(moved.execution_options(synchronize_session=False))
    pruned = delete(TombstoneRow).where(of_space, TombstoneRow.version <= horizon)
    session.execute(pruned.execution_options(synchronize_session=False))
    return most


def _from_sqlite(session: Reader, space_id: int, version: int) -> Iterator[Page]:
    connection = session.connection().connection.driver_connection
    assert connection is not None
    with closing(connection.execute(_CHANGED, (space_id, version))) as cursor:
        while rows := cursor.fetchmany(_AT_ONCE):
            ids, contents, signatures = zip(*rows, strict=True)
            yield _ids(ids), _ids(contents), b"".join(signatures)


def _from_postgres(session: Reader, space_id: int, version: int) -> Iterator[Page]:
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)
    place = {"space": space_id, "version": version, "id": _LAST_ID, "limit": _AT_ONCE}
    with connection.cursor(binary=True) as cursor:
        while True:
            row = cursor.execute(_CHANGED_IN_PAGES, place).fetchone()
            if row is None or row[0] is None:
                return
            ids, contents, versions = (
                np.frombuffer(column, ">i8").astype(np.int64) for column in row[:3]
            )
            yield ids, contents, row[3]
            if ids.size < _AT_ONCE:
                return
            last = int(versions.max())
            place |= {"version": last, "id": int(ids[versions == last].max())}


def _ids(values: Iterable[int]) -> _Ids:
    return np.fromiter(values, np.int64)
