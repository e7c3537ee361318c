"""Exact sums of squares of lines on their own device, in plain torch operations.

The sums are those of ``modelkin.core.kernels.reference.lines.add_squares``, bit for bit: they are
of integers, so that neither the order of the terms nor the device enters.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from modelkin.core.kernels.reference.lines import WINDOWS

__all__ = ["Squares", "totals"]

_NORMAL: Final = 1 << 23
"""The bits of the least normal float32: smaller values count as 0."""
_INFINITE: Final = 0xFF << 23
_LOW: Final = (1 << 32) - 1


class Squares:
    """The squares of a stretch of rows.

    Args:
        values: float32, shape ``(m, n)``, both sides below 2^24.

    Attributes:
        are_finite: whether all values are; where they are not, nothing is added.
    """

    def __init__(self, values: Tensor) -> None:
        bits = values.view(torch.int32) & 0x7FFFFFFF
        counted, greatest = bits >= _NORMAL, bits.amax()
        least = torch.where(counted, bits, greatest).amin()
        low, high = torch.stack([least, greatest]).tolist()
        self.are_finite = high < _INFINITE
        # Eight exponents each: so 2^24 terms, of which each is below 2^39, fit a signed word.
        self._halves = range(low >> 26, (high >> 26) + 1) if self.are_finite else range(0)
        self._half = bits >> 26
        mantissas = (bits & 0x7FFFFF).add_(0x800800).bitwise_right_shift_(12)
        self._terms = mantissas.mul_(mantissas).long().mul_(counted)
        self._terms.bitwise_left_shift_(bits.bitwise_right_shift_(23).bitwise_and_(7).mul_(2))

    def add_to(self, columns: Tensor, rows: Tensor) -> None:
        """Add them to the sums of the columns and of the rows.

        Args:
            columns: the windows that are added to, int64 of shape ``(17, n)``.
            rows: likewise, of shape ``(17, m)``.
        """
        for half in self._halves:
            terms = torch.where(self._half == half, self._terms, 0)
            _add(columns, half, terms.sum(dim=0))
            _add(rows, half, terms.sum(dim=1))


def totals(windows: Tensor) -> Tensor:
    """The sums as float64, rounded as ``modelkin.core.fingerprints`` does; shape ``(n,)``.

    Args:
        windows: int64, shape ``(17, n)``, which are changed: what is carried goes to the next one.
    """
    for window in range(WINDOWS - 1):
        windows[window + 1] += windows[window] >> 32
        windows[window] &= _LOW
    total = torch.zeros(windows.shape[1], dtype=torch.float64, device=windows.device)
    for window in range(WINDOWS - 1, -1, -1):
        total += windows[window].double() * 2.0 ** (32 * window)
    return total


def _add(windows: Tensor, half: int, terms: Tensor) -> None:
    """Add integers of ``2^(16 * half)``, below 2^63, to windows of 32 bits."""
    window = half >> 1
    if half & 1:
        parts = [(terms & 0xFFFF) << 16, (terms >> 16) & _LOW, terms >> 48]
    else:
        parts = [terms & _LOW, terms >> 32]
    for at, part in enumerate(parts, window):
        last = min(at, WINDOWS - 1)  # which has all that is beyond
        windows[last] += part << 32 * (at - last)
