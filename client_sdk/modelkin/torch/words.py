"""Unsigned words in torch's signed integers of the same bits.

torch has no unsigned arithmetic. Signed addition and multiplication wrap to the same bits; a shift
to the right has to be masked.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["shift_right", "to_signed_int"]


def shift_right(x: Tensor, places: int, width: int = 64) -> Tensor:
    """Shift to the right, with zeros from the left.

    Args:
        x: signed integers of ``width`` bits.
        places: 1 to ``width - 1``.
        width: 32 or 64.
    """
    return (x >> places) & ((1 << (width - places)) - 1)


def to_signed_int(number: int, width: int = 64) -> int:
    """The signed integer of ``width`` bits with the same low bits."""
    sign = 1 << (width - 1)
    return (number & ((1 << width) - 1) ^ sign) - sign
