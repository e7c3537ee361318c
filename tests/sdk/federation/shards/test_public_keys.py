"""Keys of low order, and keys with the same secrets: found as the exchange itself finds them."""

from __future__ import annotations

import os

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from modelkin.errors import InvalidParameter
from modelkin.federation.shards.public_keys import check_public_key, key_point
from modelkin.federation.sharing import new_key, public_key
from tests.support.federations.low_order import LOW_ORDER_KEYS, key_of, same_secrets

PRIME = 2**255 - 19


def secret(private: bytes, public: bytes) -> bytes | None:
    """The secret of an exchange; None where ``cryptography`` refuses the key."""
    try:
        own = X25519PrivateKey.from_private_bytes(private)
        return own.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return None


@pytest.mark.parametrize("key", LOW_ORDER_KEYS, ids=bytes.hex)
def test_keys_of_low_order_are_refused(key: bytes) -> None:
    """Each of the 14 encodings, which ``cryptography`` exchanges nothing with."""
    assert secret(new_key(), key) is None
    assert 0 == key_point(key)
    with pytest.raises(InvalidParameter, match="of low order") as raised:
        check_public_key(key)
    assert "public_key" == raised.value.field


def test_other_keys_are_none_of_low_order() -> None:
    """The numbers beside those of low order, and drawn ones, are exchanged with; what X25519 makes
    is taken.
    """
    near = [int.from_bytes(key, "little") + step for key in LOW_ORDER_KEYS for step in (-2, 2, 19)]
    drawn = [os.urandom(32) for _ in range(200)]
    for key in [key_of(number) for number in near if 0 <= number < 1 << 256] + drawn:
        assert (secret(new_key(), key) is None) == (key_point(key) == 0)
    for _ in range(200):
        check_public_key(public_key(new_key()))


def test_points_are_equal_where_secrets_are() -> None:
    """A key with the highest bit, or with the point of order 2 added, has the same secrets with
    everybody and the same point; no two other keys do.
    """
    points = set()
    for _ in range(50):
        key, other = public_key(new_key()), new_key()
        for twin in same_secrets(key):
            assert twin != key
            assert secret(other, key) == secret(other, twin)
            assert key_point(key) == key_point(twin)
        points.add(key_point(key))
    assert 50 == len(points)


@pytest.mark.parametrize("number", [PRIME + 2, PRIME + 18, 9 + 2**255, 2**256 - 1])
def test_other_encodings_are_refused(number: int) -> None:
    """Cells sealed to them would not open: a key is a number below p without the highest bit."""
    with pytest.raises(InvalidParameter, match="not encoded as X25519 keys are"):
        check_public_key(key_of(number))


def test_other_lengths_are_refused() -> None:
    """A key has 32 bytes."""
    with pytest.raises(InvalidParameter, match="not 32 bytes"):
        check_public_key(bytes(31))
