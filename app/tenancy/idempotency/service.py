"""``IdempotencyService``: one effect and one answer for a request, however often it is sent.

The key is claimed and the answer kept in the transaction of the request itself. So no effect is
without its answer, and a refused request may be sent again. Of two equal requests at once, the
second waits for the first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from app.infra.db.database import Database, Writer
from app.infra.errors import SecretKeyMissing
from app.infra.storage.encryption import Secrets
from app.tenancy.auth.records import Tenant
from app.tenancy.idempotency import repository
from app.tenancy.idempotency.records import Answer
from modelkin.errors import InvalidParameter

__all__ = ["IdempotencyService"]

_MAX_ANSWER_BYTES: Final = 64 << 10
"""A longer answer is not kept. Only jobs of thousands of named models have one, and those are found
again by their parameters.
"""
_MAX_KEPT: Final = 10_000
"""Answers that are kept for one tenant: a bound for a tenant that never sends a key twice."""
_BATCH_SIZE: Final = 500


class IdempotencyService:
    """Keeps the answers of requests that have an idempotency key.

    Args:
        database: pruned.
        secrets: encrypts answers that have a secret, and hashes requests.
        max_kept: answers of a tenant that the clean-up leaves.
        clock: the present moment.
    """

    def __init__(
        self,
        database: Database,
        secrets: Secrets,
        *,
        max_kept: int = _MAX_KEPT,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._secrets = secrets
        self._max_kept = max_kept
        self._clock = clock

    def begin(self, session: Writer, tenant: Tenant, key: str, digest: bytes) -> Answer | None:
        """Return the answer to this key; None for a new key, whose request is to be carried out.

        Raises:
            InvalidParameter: the key was used for another request.
            Unavailable: the answer cannot be decrypted, or the key's file not be used.
        """
        fingerprints = self._fingerprints(digest)
        if repository.claim(session, tenant, key, fingerprints[0], self._clock()):
            return None
        kept = repository.get(session, tenant, key)
        if kept.fingerprint not in fingerprints:
            raise InvalidParameter(
                f"the Idempotency-Key {key!r} was used for another request: send a new key with "
                f"each new request, and the same one only with the same request",
                field="Idempotency-Key",
            )
        if not kept.encrypted:
            return kept.answer
        return replace(kept.answer, content=self._secrets.decrypt(kept.answer.content).encode())

    def _fingerprints(self, digest: bytes) -> tuple[bytes, ...]:
        """Return the fingerprints that a request has, and may have been stored with.

        A digest alone would let readers of the database try out short secrets of a body. Without an
        encryption key no secret is stored: a request that contains one is refused.
        """
        try:
            return (*self._secrets.hashes(digest), digest)
        except SecretKeyMissing:
            return (digest,)

    def keep(
        self, session: Writer, tenant: Tenant, key: str, answer: Answer, *, is_secret: bool
    ) -> None:
        """Keep the answer of a request that was carried out.

        Args:
            is_secret: whether the answer has a secret; then its content is encrypted.

        Raises:
            SecretKeyMissing: there is no key to encrypt it with.
        """
        if len(answer.content) > _MAX_ANSWER_BYTES:
            repository.forget(session, tenant, key)
            return
        if is_secret:
            answer = replace(answer, content=self._secrets.encrypt(answer.content.decode()))
        repository.keep(session, tenant, key, answer, encrypted=is_secret)

    def prune(self, stopping: threading.Event) -> None:
        """Delete answers whose time is over, and of each tenant those beyond the bound.

        Raises:
            Unavailable: the database cannot be used now.
        """
        self._in_batches(
            lambda session: repository.prune_expired(session, self._clock(), _BATCH_SIZE), stopping
        )
        with self._database.reading() as session:
            crowded = repository.tenants_beyond(session, self._max_kept)
        for tenant_id in crowded:
            prune = partial(
                repository.prune_excess, tenant_id=tenant_id, kept=self._max_kept, limit=_BATCH_SIZE
            )
            self._in_batches(prune, stopping)

    def _in_batches(self, prune: Callable[[Writer], int], stopping: threading.Event) -> None:
        pruned = _BATCH_SIZE
        while pruned == _BATCH_SIZE and not stopping.is_set():
            with self._database.writing() as session:
                pruned = prune(session)
