"""Encryption at rest of webhook secrets and hub tokens.

Owns the keys: those of the settings or, on SQLite, a file in the data folder. A secret
is never logged, never answered, and never in the parameters of a job.
"""

from __future__ import annotations

import hmac
import os
import secrets as random
import threading
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from app.infra.errors import SecretKeyMissing, Unavailable

__all__ = ["Secrets"]

_FILE_MODE = 0o600


class Secrets:
    """Encrypts with the first key, decrypts with any.

    Args:
        keys: the keys of the settings, as ``parse_keys`` reads them; may be empty.
        file: a file with a key, created with the first secret or hash if there is neither a key nor
            the file. None if there is no folder that all processes of the service share.
    """

    def __init__(self, keys: tuple[str, ...], file: Path | None) -> None:
        self._keys = keys
        self._file = file
        self._lock = threading.Lock()
        self._valid: tuple[str, ...] | None = None

    def encrypt(self, secret: str) -> bytes:
        """Encrypt a secret, to be stored.

        Raises:
            SecretKeyMissing: there is no key, and no file for one.
            Unavailable: the key's file cannot be used.
        """
        return self._cipher().encrypt(secret.encode())

    def decrypt(self, stored: bytes) -> str:
        """The secret.

        Raises:
            Unavailable: there is no key any more, the secret was encrypted with another key,
                or it is damaged.
        """
        self.require_key()
        try:
            return self._cipher().decrypt(stored).decode()
        except InvalidToken:
            raise Unavailable(
                "a stored secret cannot be decrypted: it was stored under another key; add that "
                "one to MODELKIN_ENCRYPTION_KEYS, behind a comma, or store the secret again"
            ) from None

    def hashes(self, content: bytes) -> tuple[bytes, ...]:
        """Hash a content, 32 bytes under each key: the first to store, all to compare.

        Without the key, a reader of a hash cannot try out contents.

        Raises:
            SecretKeyMissing, Unavailable: see :meth:`encrypt`.
        """
        purposed = b"modelkin hash\n" + content
        return tuple(hmac.digest(key.encode(), purposed, "sha256") for key in self._valid_keys())

    def require_key(self) -> None:
        """Raise :class:`Unavailable` if there is no key, so that secrets cannot be read."""
        if not self._keys and self._file is None:
            raise Unavailable(
                "stored secrets cannot be decrypted: MODELKIN_ENCRYPTION_KEYS is not set here; "
                "give it the key that they were stored under"
            )

    def renew(self, stored: bytes) -> bytes:
        """Encrypt a secret again with the first key; errors are those of :meth:`decrypt`."""
        return self.encrypt(self.decrypt(stored))

    def _cipher(self) -> MultiFernet:
        return MultiFernet([Fernet(key) for key in self._valid_keys()])

    def _valid_keys(self) -> tuple[str, ...]:
        with self._lock:
            if self._valid is None:
                self._valid = tuple(self._all_keys())
            return self._valid

    def _all_keys(self) -> list[str]:
        """The keys of the settings, then the key of the file, which stays valid beside them."""
        keys = list(self._keys)
        if self._file is None:
            if not keys:
                raise SecretKeyMissing(
                    "this service keeps no secrets yet: set MODELKIN_ENCRYPTION_KEYS, the same for "
                    "all its processes, to a key from `openssl rand -hex 32`"
                )
        elif not keys or self._file.exists():
            keys.append(_key_in(self._file))
        return keys


def _key_in(file: Path) -> str:
    """The key in a file; the first process creates it for all."""
    try:
        if not file.exists():
            _make(file)
        key = file.read_text().strip()
        Fernet(key)
    except OSError as error:
        raise Unavailable("the key of secrets cannot be used", reason=str(error)) from error
    except ValueError:
        raise Unavailable(
            "the file of the key of secrets holds no key",
            reason=f"put back {file} as this service made it",
        ) from None
    return key


def _make(file: Path) -> None:
    """Create the key file: atomically, durably, and never over another one."""
    fresh = file.with_name(f".{file.name}.{random.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(Fernet.generate_key() + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
        try:
            os.link(fresh, file)
        except FileExistsError:
            return  # another process was faster: its key is the one
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        fresh.unlink()
