"""Encryption keys, as the setting that holds them is read."""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["keys_of"]


_SHORTEST = 32
"""Characters of a key: what people think up is shorter, and is guessed."""


def keys_of(text: str) -> tuple[str, ...]:
    """The keys in a setting, with commas between them, as Fernet takes them.

    One is 32 bytes in URL-safe base64, or any other text that is long enough to be random: a key is
    then derived of it.

    Raises:
        ValueError: one of them is too short.
    """
    keys = [key.strip() for key in text.split(",")]
    for number, key in enumerate(keys, 1):
        if len(key) < _SHORTEST:
            raise ValueError(
                f"key {number} of {len(keys)} is too short: use {_SHORTEST} random characters or "
                f"more, as from `openssl rand -hex 32`"
            )
    return tuple(map(_fernet_key, keys))


def _fernet_key(text: str) -> str:
    try:
        Fernet(text)
    except ValueError:
        derived = HKDF(SHA256(), length=32, salt=None, info=b"modelkin secrets")
        return base64.urlsafe_b64encode(derived.derive(text.encode())).decode()
    return text
