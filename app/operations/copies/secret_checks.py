"""Checks of stored secrets: can each be decrypted with the keys at hand?"""

from __future__ import annotations

from collections.abc import Iterator

from app.infra.db.database import Database
from app.infra.db.secret_rotation import stored_secrets
from app.infra.errors import Unavailable
from app.infra.storage.encryption import Secrets
from app.operations.copies.records import Finding

__all__ = ["SecretChecks"]


class SecretChecks:
    """Decrypts the tokens and secrets of all sources and subscriptions.

    Args:
        database: the database with the secrets.
        secrets: the keys of the settings. These checks make no key.
    """

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database = database
        self._secrets = secrets

    def findings(self) -> Iterator[Finding]:
        """Yield one finding for each secret that cannot be decrypted."""
        with self._database.reading() as session:
            stored = list(stored_secrets(session))
        for secret in stored:
            try:
                self._secrets.decrypt(secret.encrypted)
            except Unavailable as error:
                subject = f"table {secret.table}, row {secret.id!r}"
                yield Finding(subject, f"its {secret.column} cannot be read: {error}")
