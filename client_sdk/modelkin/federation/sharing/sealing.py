"""Sealed cells and wrapped keys: a carrier of values cannot read them.

HPKE (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM, all of the ``cryptography`` package. It is
imported at the call: its suites and enums cannot be pickled, and Ray pickles what refers to them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidCell, InvalidParameter, MissingExtra
from modelkin.wire.cell import TAG_BYTES, WRAP_BYTES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import Suite

__all__ = [
    "binding",
    "check_group_secret",
    "new_key",
    "public_key",
    "seal",
    "unseal",
    "unwrap",
    "wrap",
]

KEY_BYTES: Final = 32
_CONTENT_KEY_BYTES: Final = 16
_NONCE: Final = bytes(12)
"""A wrapped key encrypts once."""

MIN_GROUP_SECRET: Final = 16

Words = npt.NDArray[np.uint32]


def primitives() -> Any:
    """The module of primitives.

    Raises:
        MissingExtra: ``cryptography`` is not installed, or too old for HPKE.
    """
    try:
        import cryptography.hazmat.primitives.hpke  # noqa: F401
        from cryptography.hazmat import primitives
    except ModuleNotFoundError as error:
        raise MissingExtra("cryptography 50", "sharing") from error
    return primitives


def _suite() -> Suite:
    hpke = primitives().hpke
    suite: Suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    return suite


def new_key() -> bytes:
    """A fresh private key, 32 bytes, for :func:`public_key`."""
    return os.urandom(KEY_BYTES)


def public_key(private_key: bytes) -> bytes:
    """The public key of a private one, 32 bytes (X25519)."""
    encoded: bytes = load_private_key(private_key).public_key().public_bytes_raw()
    return encoded


def load_private_key(key: bytes) -> Any:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise InvalidParameter("a private key has 32 bytes (X25519)", field="private_key")
    primitives()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(key)


def load_public_key(key: bytes) -> Any:
    primitives()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(key)


def check_group_secret(secret: bytes | None) -> bytes | None:
    """Check a secret that members alone know.

    Raises:
        InvalidParameter: not bytes, or fewer than 16.
    """
    if secret is not None and (not isinstance(secret, bytes) or len(secret) < MIN_GROUP_SECRET):
        message = f"a group secret has {MIN_GROUP_SECRET} bytes or more"
        raise InvalidParameter(message, field="group_secret")
    return secret


def binding(header: bytes, group_secret: bytes | None) -> bytes:
    """The text that a sealed cell is bound to: its header, and the group's secret if it has one."""
    return b"modelkin cell 1" + header + hashlib.sha256(group_secret or b"").digest()


def seal(data: bytes | memoryview, public_key: bytes, info: bytes) -> bytes:
    """Seal data to one party; 48 bytes longer.

    Raises:
        InvalidParameter: the public key is of no private key.
    """
    try:
        sealed: bytes = _suite().encrypt(data, load_public_key(public_key), info=info)
    except ValueError as error:
        message = "a cell cannot be sealed to this public key"
        raise InvalidParameter(message, field="public_key") from error
    return sealed


def unseal(data: bytes | memoryview, private_key: bytes, info: bytes) -> bytes:
    """Open what :func:`seal` sealed to this party under the same ``info``.

    Raises:
        InvalidCell: sealed to another party, for another purpose, or changed on the way.
    """
    from cryptography.exceptions import InvalidTag

    try:
        opened: bytes = _suite().decrypt(data, load_private_key(private_key), info=info)
    except (InvalidTag, ValueError) as error:
        raise InvalidCell(
            "the cell does not open: it is sealed to another party, roster, round or group secret, "
            "or was changed on the way"
        ) from error
    return opened


def wrap(data: bytes, public_keys: Sequence[bytes | None], info: bytes) -> bytes:
    """Encrypt data once, and its key for each of some parties; None for a party that gets none.

    Returns:
        64 bytes a party, in their order, and the data, 16 bytes longer.
    """
    primitives()
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = os.urandom(_CONTENT_KEY_BYTES)
    wraps = b"".join(
        bytes(WRAP_BYTES) if public is None else seal(key, public, info) for public in public_keys
    )
    return wraps + AESGCM(key).encrypt(_NONCE, data, info)


def unwrap(data: bytes | memoryview, wraps: int, at: int, private_key: bytes, info: bytes) -> bytes:
    """Open what :func:`wrap` encrypted.

    Args:
        data: the result of ``wrap``.
        wraps: for how many parties.
        at: this party's place among them.
        private_key: 32 bytes (X25519), for one of the public keys that were wrapped for.
        info: as given to ``wrap``.

    Raises:
        InvalidCell: not wrapped for this party, or changed on the way.
    """
    primitives()
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    view = memoryview(data)
    if not 0 <= at < wraps or len(view) < wraps * WRAP_BYTES + TAG_BYTES:
        raise InvalidCell("the result is not wrapped for this party")
    key = unseal(view[at * WRAP_BYTES : (at + 1) * WRAP_BYTES], private_key, info)
    try:
        return AESGCM(key).decrypt(_NONCE, bytes(view[wraps * WRAP_BYTES :]), info)
    except (InvalidTag, ValueError) as error:
        raise InvalidCell("the result was changed on the way") from error
