"""Parsing of the setting that holds the encryption keys."""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["parse_keys"]


_MIN_KEY_LENGTH = 32
"""Characters of a key: shorter texts can be guessed."""


def parse_keys(text: str) -> tuple[str, ...]:
    """Parse the keys in a setting, separated by commas, into the form that Fernet takes.

    A key is 32 bytes in URL-safe base64. A key is derived from any other text that is long enough.

    Raises:
        ValueError: a key is too short.
    """
    keys = [key.strip() for key in text.split(",")]
    for number, key in enumerate(keys, 1):
        if len(key) < _MIN_KEY_LENGTH:
            raise ValueError(
                f"key {number} of {len(keys)} is too short: use {_MIN_KEY_LENGTH} random "
                f"characters or more, as from `openssl rand -hex 32`"
            )
    return tuple(map(_fernet_key, keys))


def _fernet_key(text: str) -> str:
    try:
        Fernet(text)
    except ValueError:
        derived = HKDF(SHA256(), length=32, salt=None, info=b"modelkin secrets")
        return base64.urlsafe_b64encode(derived.derive(text.encode())).decode()
    return text
