"""``KeyUses``: the hour in which each key was last used.

A request only adds its key to a set in memory. The clean-up writes the set down, and the end of
the process too, so that no request waits for the database. A process that is killed forgets the
uses of the last interval.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from app.infra.db.database import Database
from app.tenancy.auth import repository
from app.tenancy.auth.records import KeyRecord

__all__ = ["KeyUses"]

_BATCH_SIZE = 500


class KeyUses:
    """The uses of keys in this process that are not written down yet.

    Args:
        database: holds the keys.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._used: dict[datetime, set[int]] = {}

    def note(self, key: KeyRecord) -> None:
        """Remember that a key was used just now, unless its hour is written down."""
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        if key.last_used_at is not None and key.last_used_at >= hour:
            return
        with self._lock:
            self._used.setdefault(hour, set()).add(key.id)

    def write(self) -> None:
        """Write down the remembered uses; uses that could not be written stay remembered."""
        with self._lock:
            used, self._used = self._used, {}
        while used:
            hour, ids = used.popitem()
            try:
                self._write(hour, sorted(ids))
            except BaseException:
                self._remember({hour: ids, **used})
                raise

    def _write(self, hour: datetime, ids: list[int]) -> None:
        for start in range(0, len(ids), _BATCH_SIZE):
            with self._database.writing() as session:
                repository.note_uses(session, ids[start : start + _BATCH_SIZE], hour)

    def _remember(self, used: dict[datetime, set[int]]) -> None:
        with self._lock:
            for hour, ids in used.items():
                self._used.setdefault(hour, set()).update(ids)
