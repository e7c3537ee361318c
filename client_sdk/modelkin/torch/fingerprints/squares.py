"""Exact sums of squares of lines on their own device, in plain torch operations.

The sums are those of ``modelkin.core.kernels.reference.lines.add_squares``, bit for bit: they are
of integers, so that neither the order of the terms nor the device enters. A device takes as long to
begin an operation as to add thousands of numbers, so few operations see all digits of a sum.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from modelkin.core.kernels.reference.lines import WINDOWS

__all__ = ["Squares", "Sums"]

_NORMAL: Final = 1 << 23
"""The bits of the least normal float32: smaller values count as 0."""
_INFINITE: Final = 0xFF << 23
_DIGITS: Final = 36
"""The digits of a sum: 32 for exponents, and what is carried of 2^31 terms."""


class Sums:
    """Sums of squares, each as digits of 16 bits that are not carried until they are read.

    Args:
        count: how many sums.
        device: where they are.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._digits = torch.zeros(_DIGITS, count, dtype=torch.int64, device=device)
        self._first, self._end = _DIGITS, 0

    def add(self, begin: int, first: int, terms: Tensor) -> None:
        """Add integers to some of the sums.

        Args:
            begin: the first of the sums.
            first: the digit that the first integers begin at; the next ones begin at the next.
            terms: non-negative, int64 of shape ``(h, n)``.
        """
        height, count = terms.shape
        for digit in range(4):
            at = first + digit
            into = self._digits[at : at + height, begin : begin + count]
            into += (terms >> 16 * digit) & 0xFFFF
        self._first, self._end = min(self._first, first), max(self._end, first + height + 4)

    def totals(self) -> Tensor:
        """The sums as float64, shape ``(count,)``; nothing is added after.

        They are rounded as the core does, which adds windows of 32 bits from the greatest on. Its
        last window has all that is beyond.
        """
        digits, end = self._digits, min(self._end + 2, _DIGITS)
        for at in range(self._first, end - 1):
            digits[at + 1] += digits[at] >> 16
            digits[at] &= 0xFFFF
        windows = digits[::2] + (digits[1::2] << 16)
        windows[WINDOWS - 1] += windows[WINDOWS] << 32
        total = torch.zeros(digits.shape[1], dtype=torch.float64, device=digits.device)
        for window in range(min((end - 1) // 2, WINDOWS - 1), self._first // 2 - 1, -1):
            total += windows[window].double() * 2.0 ** (32 * window)
        return total


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

    def add_to(self, columns: Sums, rows: Sums, begin: int) -> None:
        """Add them to the sums of the columns, and to those of the rows from one on."""
        of_columns, of_rows = list[Tensor](), list[Tensor]()
        for half in self._halves:
            terms = torch.where(self._half == half, self._terms, 0)
            of_columns.append(terms.sum(dim=0))
            of_rows.append(terms.sum(dim=1))
        if self._halves:
            columns.add(0, self._halves[0], torch.stack(of_columns))
            rows.add(begin, self._halves[0], torch.stack(of_rows))
