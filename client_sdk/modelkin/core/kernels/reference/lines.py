"""Lines of matrices in numpy: exact sums of squares, and the keys of lines."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]

WINDOWS: Final = 17
"""The numbers of a sum of squares: 16 for exponents, and one for what is carried."""
_TERMS: Final = 256
"""Squares that fit a window before it is carried: each is below 2^55."""
_BLOCK: Final = 1 << 20
"""Values whose lines are looked at together."""


def add_squares(values: Floats, columns: Words, rows: Words) -> None:
    """Add the squares of a matrix's values to the sums of its columns and of its rows, exactly.

    Squares are those of mantissas of 12 bits. Each belongs to the window of its exponent e,
    ``e >> 4``, as an integer of ``2^(32 * window - 276)``. So a sum is one number whatever the
    order of its terms, and however they are divided between calls.

    Args:
        values: finite, shape ``(m, n)``; values below the least normal one count as 0.
        columns: the sums that are added to, shape ``(17, n)``.
        rows: shape ``(17, m)``.
    """
    bits = np.abs(values).view(np.uint32)
    for at in range(0, bits.shape[0], _TERMS):
        for window, terms in _terms(bits[at : at + _TERMS]):
            columns[window] += terms.sum(axis=0)
        _carry(columns)
    for at in range(0, bits.shape[1], _TERMS):
        for window, terms in _terms(bits[:, at : at + _TERMS]):
            rows[window] += terms.sum(axis=1)
        _carry(rows)


def _terms(bits: npt.NDArray[np.uint32]) -> Any:
    exponents = bits >> np.uint32(23)
    mantissas = (bits & np.uint32(0x7FFFFF) | np.uint32(0x800000)) + np.uint32(0x800)
    squares = (mantissas >> np.uint32(12)).astype(np.uint64) ** np.uint64(2)
    terms = squares << (2 * (exponents & np.uint32(15))).astype(np.uint64)
    terms[exponents == 0] = 0
    for window in range(WINDOWS - 1):
        inside = exponents >> np.uint32(4) == window
        if inside.any():
            yield window, np.where(inside, terms, np.uint64(0))


def _carry(sums: Words) -> None:
    for window in range(WINDOWS - 1):
        sums[window + 1] += sums[window] >> np.uint64(32)
        sums[window] &= np.uint64(0xFFFFFFFF)


def transposed(values: Floats, begin: int, end: int) -> Floats:
    """Some columns of a matrix, each a contiguous line; shape ``(end - begin, m)``."""
    return np.ascontiguousarray(values[:, begin:end].T)


def line_keys(
    lines: Floats, scales: Floats, hashes: npt.NDArray[np.uint32], size: int, members: int
) -> tuple[Words, Floats]:
    """The key of each line, see ``modelkin.core.fingerprints.lines``.

    Args:
        lines: finite, shape ``(m, n)``.
        scales: what the magnitudes at each place are multiplied by, shape ``(n,)``.
        hashes: the rank of each place in the walk, distinct, shape ``(n,)``.
        size: t, the entries of a set, at most n.
        members: r, those that make a key, below t.

    Returns:
        The keys, and the least magnitude of each set, which is 0 where a line has neither; shape
        ``(m,)`` each.
    """
    keys, least = np.zeros(len(lines), np.uint64), np.zeros(len(lines), np.float32)
    step = max(1, _BLOCK // lines.shape[1])
    for at in range(0, len(lines), step):
        part = slice(at, at + step)
        keys[part], least[part] = _keys(lines[part], scales, hashes, size, members)
    return keys, least


def members_of_sets(lines: Floats, scales: Floats, least: Floats, first: int) -> Words:
    """The members of the sets of lines, as indices of the values from one on, ascending.

    Args:
        lines: finite, shape ``(m, n)``.
        scales: as of :func:`line_keys`.
        least: what it returns, shape ``(m,)``.
        first: the index of the first value of the first line.
    """
    magnitudes = np.abs(lines) * scales
    held = (magnitudes >= least[:, np.newaxis]) & (least[:, np.newaxis] > 0)
    return (np.flatnonzero(held) + first).astype(np.uint64)


def _keys(lines: Any, scales: Any, hashes: Any, size: int, members: int) -> Any:
    magnitudes = np.abs(lines) * scales
    n = magnitudes.shape[1]
    least = np.partition(magnitudes, n - size, axis=1)[:, n - size, np.newaxis]
    held = magnitudes >= least
    has = (least[:, 0] > 0) & (np.count_nonzero(held, axis=1) <= 2 * size)
    walked = np.where(held, hashes, np.uint32(0xFFFFFFFF))
    first = np.sort(np.partition(walked, members - 1, axis=1)[:, :members], axis=1)
    keys = np.full(len(lines), n, np.uint64)
    for each in first.T:
        keys = _mixed(keys * np.uint64(0x9E3779B97F4A7C15) + each.astype(np.uint64))
    return np.where(has, keys, np.uint64(0)), np.where(has, least[:, 0], np.float32(0))


def _mixed(x: Words) -> Words:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))
