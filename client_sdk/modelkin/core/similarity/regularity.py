"""Regularity: whether indices are laid out in a tensor as no training does it.

Masks repeat from row to row, sinusoids and bases from period to period, and one-hot tables have one
index in each row. What was trained looks like noise: the top entries of a matrix lie anywhere, or
in some of its columns.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["is_regular"]

Bits = npt.NDArray[np.bool_]

MIN_ENTRIES: Final = 64
"""The fewest entries in which order can be seen."""
MIN_CORRELATION: Final = 0.5
"""The correlation of indices with themselves, moved along the tensor. A mask has .98, sinusoids .83
and more; columns whose scales differ by a factor of e have .37.
"""
MAX_FLATNESS: Final = 0.4
"""The geometric mean of a spectrum, as a share of its mean. Noise has .56 and more, Fourier and
cosine bases .34 at most.
"""
MIN_ROWS: Final = 16
MAX_SPREAD: Final = 0.1
"""The variance of the indices in so many rows, as a share of that by chance: 0 in a one-hot table.
"""
_MAX_ENTRIES, _MIN_WIDTH, _MIN_LINES_SIZE = 1 << 16, 16, 256


def is_regular(bits: Bits, shape: tuple[int, ...]) -> bool:
    """Whether indices are laid out regularly; False where too few entries are given to tell.

    Args:
        bits: whether each entry is in a support, of the tensor or of some of its rows; ``(n,)``.
        shape: that of the tensor.
    """
    bits = bits[:_MAX_ENTRIES]
    if bits.size < MIN_ENTRIES or not 0 < np.count_nonzero(bits) < bits.size:
        return False
    strides = {math.prod(shape[at:]) for at in range(1, len(shape) + 1)}
    lags = {lag for stride in strides for lag in (stride - 1, stride, stride + 1, 2 * stride)}
    if any(_correlation(bits, lag) >= MIN_CORRELATION for lag in sorted(lags) if lag > 0):
        return True
    width = next((size for size in reversed(shape) if size > 1), 1)
    width = min(width, bits.size)
    rows = bits[: bits.size // width * width].reshape(-1, width)
    return any(_is_periodic(lines) or _is_even(lines) for lines in (rows, rows.T))


def _correlation(bits: Bits, lag: int) -> float:
    """The correlation of the bits with themselves, moved by a lag; 0 where too few are left."""
    count = bits.size - lag
    if count < MIN_ENTRIES:
        return 0.0
    before, after = bits[:-lag], bits[lag:]
    p, q = float(before.mean()), float(after.mean())
    spread = math.sqrt(p * (1 - p) * q * (1 - q))
    both = np.count_nonzero(before & after) / count
    return (both - p * q) / spread if spread > 0 else 0.0


def _is_periodic(lines: Bits) -> bool:
    """Whether the spectra of lines are far from flat."""
    held = lines.sum(axis=1)
    varied = lines[(held > 0) & (held < lines.shape[1])].astype(np.float64)
    if lines.shape[1] < _MIN_WIDTH or varied.size < _MIN_LINES_SIZE:
        return False
    spectra = np.abs(np.fft.rfft(varied, axis=1)[:, 1:]) ** 2
    means = spectra.mean(axis=1)
    logs = np.log(spectra + 1e-3 * means[:, None]).mean(axis=1)
    return float((np.exp(logs) / means).mean()) < MAX_FLATNESS


def _is_even(rows: Bits) -> bool:
    """Whether rows hold about as many indices each, such as one."""
    count, width = rows.shape
    if width < 2 or count < MIN_ROWS:
        return False
    held = rows.sum(axis=1)
    share = float(held.mean()) / width
    return float(held.var()) < float(MAX_SPREAD * width * share * (1 - share))
