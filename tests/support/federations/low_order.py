"""Public keys that no party may have: of low order, of another party, or in another encoding."""

from __future__ import annotations

from typing import Final

__all__ = ["LOW_ORDER_KEYS", "key_of", "same_secrets"]

_PRIME: Final = 2**255 - 19
_EIGHT: Final = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
"""The points of order 8; the others follow from their orders: 0, 1 and -1."""

_POINTS: Final = (0, 1, *_EIGHT, _PRIME - 1, _PRIME, _PRIME + 1)
"""All encodings below 2^255 of the five: p and p + 1 are 0 and 1 again."""


def key_of(number: int) -> bytes:
    """The 32 bytes of a number below 2^256."""
    return number.to_bytes(32, "little")


LOW_ORDER_KEYS: Final = [key_of(number + high) for number in _POINTS for high in (0, 1 << 255)]
"""All 14 encodings of all keys of low order, with and without the bit that means nothing."""


def same_secrets(public_key: bytes) -> list[bytes]:
    """Other keys that give the same secrets as a key: itself with the highest bit, and its sum
    with the point of order 2, whose coordinate is the inverse.
    """
    number = int.from_bytes(public_key, "little")
    return [key_of(number | 1 << 255), key_of(pow(number, -1, _PRIME))]
