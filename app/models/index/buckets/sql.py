"""LSH buckets in the service's database, SQLite or Postgres: lost only together with it.

A bucket entry is one row per model and bucket, read by its primary key alone. Never call this
inside a write transaction of the same database: SQLite has one writer and would wait for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from app.infra.db.database import Database, Reader, Writer
from app.infra.db.tables.index import BucketBuildRow, BucketEntryRow, BucketModelRow
from app.infra.errors import BackendUnavailable, Unavailable
from app.models.index.buckets.batching import (
    MAX_BUCKET_SIZE,
    MAX_STEP_SIZE,
    NormalizedStep,
    choose_buckets,
    normalize_step,
)
from app.models.index.buckets.protocol import (
    BANDING_VERSION,
    BucketCandidates,
    BucketSizes,
    BucketState,
)

__all__ = ["SqlBuckets"]

_MAX_UNCOUNTED_ENTRIES = 2_000
"""Entries that are read without first counting those of each bucket."""


@dataclass(frozen=True, slots=True)
class _Statements:
    """The statements that take a list of keys, in the dialect of one database.

    Attributes:
        sizes: keys and the number of entries of each, counted up to ``:row_limit``.
        entries: keys and models of some buckets, ``:row_limit`` in all.
        entered: the keys, among some, whose buckets hold a model.
        enter, leave: put a model into its buckets, or take it out.
    """

    sizes: Any
    entered: Any
    entries: Any
    enter: Any
    leave: Any

    @classmethod
    def of(cls, rows: str, among: str) -> _Statements:
        """Args: the keys as a table ``k`` with the column ``value``, and as a condition."""
        return cls(
            sizes=text(
                f"SELECT k.value, (SELECT count(*) FROM (SELECT 1 FROM bucket_entries e WHERE "  # noqa: S608 - constants
                f"e.build_id = :build AND e.key = k.value LIMIT :row_limit) AS counted) FROM {rows}"
            ),
            entries=text(
                f"SELECT key, model_id FROM bucket_entries "  # noqa: S608
                f"WHERE build_id = :build AND key {among} LIMIT :row_limit"
            ),
            entered=text(
                f"SELECT key FROM bucket_entries WHERE build_id = :build AND key {among} "  # noqa: S608
                f"AND model_id = :model"
            ),
            enter=text(
                f"INSERT INTO bucket_entries (build_id, key, model_id) "  # noqa: S608
                f"SELECT :build, k.value, :model FROM {rows}"
            ),
            leave=text(
                f"DELETE FROM bucket_entries WHERE build_id = :build AND key {among} "  # noqa: S608
                f"AND model_id = :model"
            ),
        )


_SQLITE = _Statements.of("json_each(:keys) AS k", "IN (SELECT value FROM json_each(:keys))")
_POSTGRES = _Statements.of(
    "unnest(CAST(:keys AS bigint[])) AS k(value)", "= ANY(CAST(:keys AS bigint[]))"
)


class SqlBuckets:
    """The :class:`app.models.index.buckets.protocol.Buckets` in a migrated database.

    Args:
        cap: entries beyond which a bucket is never read.
    """

    max_step_size = MAX_STEP_SIZE

    def __init__(self, database: Database, *, cap: int = MAX_BUCKET_SIZE) -> None:
        self._database = database
        self._cap = cap
        self._is_sqlite = database.url.get_backend_name() == "sqlite"
        self._statements = _SQLITE if self._is_sqlite else _POSTGRES

    def state(self, space_id: int) -> BucketState | None:
        with _translate_errors(), self._database.reading() as session:
            build = _find_build(session, space_id)
            return None if build is None else _state(build)

    def apply(
        self,
        space_id: int,
        epoch: int,
        since: int,
        until: int,
        upserts: Iterable[tuple[int, npt.NDArray[np.uint64]]],
        removals: Iterable[int],
    ) -> bool:
        changes = normalize_step(upserts, removals)
        before = BucketState(epoch, since, BANDING_VERSION)
        with _translate_errors(), self._database.writing() as session:
            build = _find_build(session, space_id, lock=True)
            if build is None and since == 0:
                build = _create_build(session, space_id, before)
            if build is None or _state(build) != before:
                return False
            self._change(session, build.id, changes)
            build.version = until
        return True

    def candidates(
        self, space_id: int, keys: npt.NDArray[np.uint64], limit: int
    ) -> BucketCandidates:
        with _translate_errors(), self._database.reading() as session:
            build = _find_build(session, space_id)
            if build is None:
                return BucketCandidates(np.empty(0, np.int64), False, None)
            ids, truncated = self._read(session, build.id, np.unique(keys), limit)
            return BucketCandidates(np.unique(ids), truncated, _state(build))

    def members(self, space_id: int, ids: Sequence[int]) -> dict[int, bytes]:
        with _translate_errors(), self._database.reading() as session:
            build = _find_build(session, space_id)
            if build is None:
                return {}
            return {
                model_id: self._entered_keys(session, build.id, model_id, keys)
                for model_id, keys in _keys_of(session, build.id, ids).items()
            }

    def sizes(self, space_id: int) -> BucketSizes | None:
        with _translate_errors(), self._database.reading() as session:
            build = _find_build(session, space_id)
            if build is None:
                return None
            models, entries = (
                session.scalars(
                    select(func.count()).select_from(table).where(table.build_id == build.id)
                ).one()
                for table in (BucketModelRow, BucketEntryRow)
            )
            return BucketSizes(models, entries, _state(build))

    def drop(self, space_id: int) -> None:
        with _translate_errors(), self._database.writing() as session:
            session.execute(
                update(BucketBuildRow)
                .where(BucketBuildRow.space_id == space_id)
                .values(space_id=None)
            )

    def sweep(self, models: int = 200) -> int:
        with _translate_errors(), self._database.writing() as session:
            dropped = select(func.min(BucketBuildRow.id)).where(BucketBuildRow.space_id.is_(None))
            build_id = session.scalar(dropped)
            if build_id is None:
                return 0
            some = select(BucketModelRow.model_id).where(BucketModelRow.build_id == build_id)
            ids = session.scalars(some.limit(models)).all()
            self._leave(session, build_id, ids)
            if len(ids) < models:
                session.execute(delete(BucketBuildRow).where(BucketBuildRow.id == build_id))
            return max(1, len(ids))

    def ping(self) -> None:
        with _translate_errors():
            self._database.check()

    def close(self) -> None:
        """Do nothing: the caller owns the database."""

    def _entered_keys(self, session: Reader, build_id: int, model_id: int, keys: bytes) -> bytes:
        """Return the keys of a model whose buckets hold it."""
        parameters = {"build": build_id, "model": model_id}
        listed = self._list(np.frombuffer(keys, ">u8"))
        rows = session.execute(self._statements.entered, {**parameters, "keys": listed})
        found = np.array([row[0] for row in rows], np.int64).view(np.uint64)
        return np.sort(found).astype(">u8").tobytes()

    def _read(
        self, session: Reader, build_id: int, keys: npt.NDArray[np.uint64], limit: int
    ) -> tuple[npt.NDArray[np.int64], bool]:
        """The entries of the chosen buckets, and whether a bucket was left out.

        Few entries are read at once, and their buckets are counted here. If there are more, the
        database counts the buckets first. The result is the same.
        """
        uncounted = min(limit, _MAX_UNCOUNTED_ENTRIES)
        entries = self._pairs(session, self._statements.entries, build_id, keys, uncounted + 1)
        if len(entries) > uncounted:
            max_count = min(self._cap, limit) + 1
            counted = self._pairs(session, self._statements.sizes, build_id, keys, max_count)
            chosen, truncated = choose_buckets(counted[:, 1], cap=self._cap, limit=limit)
            if not chosen.size:
                return np.empty(0, np.int64), truncated
            read = counted[chosen, 0].view(np.uint64)
            entries = self._pairs(session, self._statements.entries, build_id, read, limit)
            return entries[:, 1], truncated
        _, bucket, sizes = np.unique(entries[:, 0], return_inverse=True, return_counts=True)
        kept = sizes[bucket] <= self._cap
        return entries[kept, 1], not kept.all()

    def _pairs(
        self,
        session: Reader,
        statement: Any,
        build_id: int,
        keys: npt.NDArray[np.uint64],
        row_limit: int,
    ) -> npt.NDArray[np.int64]:
        """The rows that a statement returns, shape ``(n, 2)``."""
        parameters = {"build": build_id, "keys": self._list(keys), "row_limit": row_limit}
        # Plain tuples: numpy converts rows of SQLAlchemy 20 times slower.
        rows = [tuple(row) for row in session.execute(statement, parameters)]
        return np.array(rows, np.int64).reshape(-1, 2)

    def _change(self, session: Writer, build_id: int, changes: NormalizedStep) -> None:
        old_keys = _keys_of(session, build_id, changes.upserts)
        moved = {m: keys for m, keys in changes.upserts.items() if old_keys.get(m) != keys}
        self._leave(session, build_id, [*changes.removals, *moved])
        if moved:
            session.execute(
                insert(BucketModelRow),
                [{"build_id": build_id, "model_id": m, "keys": k} for m, k in moved.items()],
            )
            session.execute(self._statements.enter, self._arguments(build_id, moved))

    def _leave(self, session: Writer, build_id: int, ids: Iterable[int]) -> None:
        """Take models out of their buckets; those in none are ignored."""
        old_keys = _keys_of(session, build_id, ids)
        if old_keys:
            session.execute(self._statements.leave, self._arguments(build_id, old_keys))
            session.execute(delete(BucketModelRow).where(_among(build_id, old_keys)))

    def _arguments(self, build_id: int, keys_of: dict[int, bytes]) -> list[dict[str, Any]]:
        return [
            {"build": build_id, "model": m, "keys": self._list(np.frombuffer(keys, ">u8"))}
            for m, keys in keys_of.items()
        ]

    def _list(self, keys: npt.NDArray[Any]) -> Any:
        """Keys in the form of the statements: signed integers of the same 64 bits."""
        signed = keys.astype(np.uint64).view(np.int64).tolist()
        return str(signed) if self._is_sqlite else signed


def _find_build(session: Reader, space_id: int, *, lock: bool = False) -> BucketBuildRow | None:
    query = select(BucketBuildRow).where(BucketBuildRow.space_id == space_id)
    return session.scalar(query.with_for_update() if lock else query)


def _create_build(session: Writer, space_id: int, state: BucketState) -> BucketBuildRow | None:
    """A new, empty build; None if another process began one at the same time."""
    build = BucketBuildRow(
        space_id=space_id,
        epoch=state.epoch,
        version=state.version,
        banding_version=state.banding_version,
    )
    try:
        with session.begin_nested():
            session.add(build)
    except IntegrityError:
        return None
    return build


def _state(build: BucketBuildRow) -> BucketState:
    return BucketState(build.epoch, build.version, build.banding_version)


def _keys_of(session: Reader, build_id: int, ids: Iterable[int]) -> dict[int, bytes]:
    query = select(BucketModelRow.model_id, BucketModelRow.keys).where(_among(build_id, ids))
    return {row.model_id: row.keys for row in session.execute(query)}


def _among(build_id: int, ids: Iterable[int]) -> Any:
    return (BucketModelRow.build_id == build_id) & BucketModelRow.model_id.in_(list(ids))


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate database errors into ``BackendUnavailable``, after which a scan can answer."""
    try:
        yield
    except Unavailable as error:
        message = f"the LSH buckets cannot be used now: {error}"
        raise BackendUnavailable(message, reason=error.reason) from error
