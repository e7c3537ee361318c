"""Shared commits: single puts that come at once share one transaction for each space.

A put alone waits for the lock of its space, for the disk and, on SQLite, for the writers of other
processes, who poll. Puts that come meanwhile wait for all that together, as a batch does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from app.infra.db.database import Database, Writer
from app.infra.db.group_commit import GroupCommit
from app.models.catalog.puts import Put, Stored, distinct_runs
from app.models.catalog.writer import ModelWriter
from app.models.spaces.records import SpaceRecord
from modelkin.errors import ModelkinError

__all__ = ["SharedCommits"]

_Puts = GroupCommit[Put, Stored | ModelkinError]


class SharedCommits:
    """The use case that stores one model among others; :class:`ModelWriter` has the rules."""

    def __init__(self, database: Database, writer: ModelWriter) -> None:
        self._database = database
        self._writer = writer
        self._by_space: WeakValueDictionary[int, _Puts] = WeakValueDictionary()
        self._lock = threading.Lock()

    def put(self, space: SpaceRecord, put: Put) -> Stored:
        """Store one model, durably; a refused or failed put leaves nothing behind.

        Other puts in the same space may share its transaction: a refusal concerns one put alone,
        and a transaction never holds the locks of two spaces.

        Raises:
            SpaceNotFound: the space was deleted meanwhile.
            ModelkinError: :meth:`ModelWriter.put` refuses the put.
            StorageFull, Unavailable: the database failed.
        """
        result = self.queue(space).do(put)
        if isinstance(result, ModelkinError):
            raise result
        return result

    def queue(self, space: SpaceRecord) -> _Puts:
        """The puts of a space, which last while one waits."""
        with self._lock:
            found = self._by_space.get(space.id)
            if found is None:
                found = _Puts(
                    self._database, partial(self._store, space), abandon=self._writer.discard
                )
                self._by_space[space.id] = found
            return found

    def _store(
        self, space: SpaceRecord, session: Writer, puts: Sequence[Put]
    ) -> list[Stored | ModelkinError]:
        return [
            result
            for run in distinct_runs(puts)
            for result in self._writer.put_each(session, space, run)
        ]
