"""Which X25519 public keys a party may have: keys whose secrets others cannot know or share.

Private keys are multiples of 8, and Curve25519 has eight points of an order that divides 8 (on the
curve and its twist). Every secret with such a key of *low order* is zero, which all can know. For
the same reason two keys whose points differ by one of these give the same secrets with everybody:
the masks of a third party for the two would cancel, and show its values.

Source: RFC 7748, sections 5 and 6.1; Bernstein, "Curve25519: new Diffie-Hellman speed records",
2006.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from modelkin.errors import InvalidParameter

__all__ = ["LOW_ORDER", "check_public_key", "key_point"]

LOW_ORDER: Final = "its public key is of low order: all secrets with it are zero, and known to all"

_PRIME: Final = 2**255 - 19
_A24: Final = 121665
"""(A - 2) / 4 of the curve y^2 = x^3 + A x^2 + x, with A = 486662."""


@lru_cache(maxsize=1 << 14)  # a hub computes it for all parties at each join
def key_point(public_key: bytes) -> int:
    """Return eight times the point of a key, which decides all secrets with it.

    Args:
        public_key: 32 bytes; the highest bit means nothing, and numbers from p on wrap, as in
            every exchange.

    Returns:
        The point's u-coordinate: 0 for a key of low order alone, and the same number for two keys
        exactly if each private key has the same secret with both.
    """
    x, z = (int.from_bytes(public_key, "little") & (1 << 255) - 1) % _PRIME, 1
    for _ in range(3):  # doubles the point
        plus, minus = (x + z) ** 2 % _PRIME, (x - z) ** 2 % _PRIME
        x, z = plus * minus % _PRIME, (plus - minus) * (plus + _A24 * (plus - minus)) % _PRIME
    return x * pow(z, -1, _PRIME) % _PRIME if z else 0


def check_public_key(public_key: bytes, where: str = "") -> None:
    """Check the key of a party that joins.

    Args:
        where: what an error begins with.

    Raises:
        InvalidParameter: the key is of low order, or not encoded as keys are.
    """
    why = None
    if len(public_key) != 32:
        why = "its public key is not 32 bytes (X25519)"
    elif not key_point(public_key):
        why = LOW_ORDER
    elif int.from_bytes(public_key, "little") >= _PRIME:
        why = "its public key is not encoded as X25519 keys are: as a number below 2^255 - 19"
    if why is not None:
        raise InvalidParameter(where + why, field="public_key")
