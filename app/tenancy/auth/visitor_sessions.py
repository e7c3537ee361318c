"""``VisitorSessions``: sessions of the explorer's visitors, each with a token and an end.

A token has 256 random bits. Only its SHA-256 is stored, as that of a key is, so a copy of the
database opens nothing. A token opens what its key opens, until its time is over, its visitor signs
out, or its key is revoked or expires. Every process asks the database for each request, so an end
holds in all of them at once.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Final

from app.infra.db.database import Database, Reader
from app.infra.db.visibility import every_tenant
from app.infra.errors import Unauthorized
from app.tenancy.auth import repository
from app.tenancy.auth.records import Identity, KeyRecord

__all__ = ["VisitorSessions"]

_MAX_OF_A_KEY: Final = 100
"""Sessions of one key; another one ends the oldest."""
_BATCH_SIZE: Final = 500


class VisitorSessions:
    """Begins, checks and ends sessions.

    Args:
        database: holds them.
        lifetime: the longest that one lasts.
        clock: the present moment.
    """

    def __init__(
        self,
        database: Database,
        lifetime: timedelta,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._lifetime = lifetime
        self._clock = clock

    def begin(self, identity: Identity) -> str:
        """Begin a session of the holder of a key; return its token."""
        assert identity.key_id is not None
        token = secrets.token_urlsafe(32)
        with every_tenant(), self._database.writing() as session:
            repository.insert_visitor_session(
                session,
                identity.tenant,
                identity.key_id,
                sha256=_sha256(token),
                expires_at=self._clock() + self._lifetime,
            )
            repository.end_oldest_sessions(session, identity.key_id, kept=_MAX_OF_A_KEY)
        return token

    def check(self, session: Reader, token: str) -> tuple[KeyRecord, int]:
        """The record of the key of a session that goes on, and the id of the session.

        Raises:
            Unauthorized: the session is unknown or over, or its key is.
        """
        found = repository.find_session(session, _sha256(token), self._clock())
        if found is None:
            raise Unauthorized("this session is over: sign in again")
        return found

    def open_ones(self, session: Reader, ids: Collection[int]) -> set[int]:
        """Return the ids of those of some sessions that go on."""
        return repository.open_sessions(session, ids, self._clock())

    def end(self, token: str) -> None:
        """End a session, in all processes; an unknown one changes nothing."""
        digest = _sha256(token)
        with every_tenant(), self._database.reading() as session:
            if repository.find_session(session, digest, self._clock()) is None:
                return  # so that no stranger makes others wait for a lock of writing
        with every_tenant(), self._database.writing() as session:
            repository.end_session(session, digest)

    def prune(self, stopping: threading.Event) -> None:
        """Delete sessions whose time is over; a step of the clean-up.

        Raises:
            Unavailable: the database cannot be used now.
        """
        pruned = _BATCH_SIZE
        while pruned == _BATCH_SIZE and not stopping.is_set():
            with self._database.writing() as session:
                pruned = repository.prune_sessions(session, self._clock(), _BATCH_SIZE)


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
