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


def keep_largest(
    values: Floats,
    scales: Floats,
    ranks: npt.NDArray[np.uint32],
    size: int,
    bounds: Floats,
    counts: npt.NDArray[np.int64],
    magnitudes: Floats,
    kept: npt.NDArray[np.uint32],
) -> None:
    """Keep the largest magnitudes of each column, of rows that come in stretches.

    What is below a column's bound is left out. Where no room is left, the ``size`` largest stay,
    and become the bound; ties with the least of them stay as well, until there are more than twice
    as many, since such a column has no set.

    Args:
        values: rows of the matrix, finite, shape ``(m, n)``.
        scales: what the magnitudes of each row are multiplied by, shape ``(m,)``.
        ranks: the rank of each row in the walk, shape ``(m,)``.
        size: t.
        bounds: positive, one for each column, shape ``(n,)``; changed in place.
        counts: how many entries of each column are kept, shape ``(n,)``; changed in place.
        magnitudes: these entries, shape ``(n, room)`` with a room of all rows, or of
            ``2 * size + 2`` at least; changed in place.
        kept: the rank of each, shape ``(n, room)``; changed in place.
    """
    room = magnitudes.shape[1]
    step = max(1, room - 2 * size - 1)
    for begin in range(0, len(values), step):
        part = slice(begin, begin + step)
        scaled = np.abs(values[part]) * scales[part, np.newaxis]
        columns, rows = np.nonzero((scaled >= bounds).T)
        new = np.bincount(columns, minlength=counts.size)
        for column in np.flatnonzero(counts + new > room).tolist():
            entries = magnitudes[column, : counts[column]], kept[column, : counts[column]]
            counts[column], bounds[column] = _compacted(*entries, size)
        at = counts[columns] + np.arange(columns.size) - (np.cumsum(new) - new)[columns]
        magnitudes[columns, at] = scaled[rows, columns]
        kept[columns, at] = ranks[part][rows]
        counts += new


def _compacted(magnitudes: Floats, kept: npt.NDArray[np.uint32], size: int) -> tuple[int, Any]:
    """Move the entries that stay to the front, and return how many there are and their bound."""
    bound = np.partition(magnitudes, magnitudes.size - size)[magnitudes.size - size]
    above, equal = np.flatnonzero(magnitudes > bound), np.flatnonzero(magnitudes == bound)
    stay = np.concatenate([above, equal])[: 2 * size + 1]
    if stay.size > 2 * size:
        bound = np.nextafter(bound, np.float32(np.inf))
    magnitudes[: stay.size], kept[: stay.size] = magnitudes[stay], kept[stay]
    return stay.size, bound


def keys_of_largest(
    counts: npt.NDArray[np.int64],
    magnitudes: Floats,
    kept: npt.NDArray[np.uint32],
    length: int,
    size: int,
    members: int,
) -> tuple[Words, Floats]:
    """The keys of columns of which :func:`keep_largest` has kept the largest magnitudes.

    Returns:
        As :func:`line_keys`.
    """
    held = np.arange(magnitudes.shape[1]) < counts[:, np.newaxis]
    room = max(magnitudes.shape[1], size)
    known, ranks = np.zeros((len(held), room), np.float32), np.zeros((len(held), room), np.uint32)
    known[:, : held.shape[1]], ranks[:, : held.shape[1]] = np.where(held, magnitudes, 0), kept
    keys, least = _keys_of(known, ranks, length, size, members)
    return keys, least


def _keys(lines: Any, scales: Any, hashes: Any, size: int, members: int) -> Any:
    return _keys_of(np.abs(lines) * scales, hashes, lines.shape[1], size, members)


def _keys_of(magnitudes: Any, ranks: Any, length: int, size: int, members: int) -> Any:
    n = magnitudes.shape[1]
    least = np.partition(magnitudes, n - size, axis=1)[:, n - size, np.newaxis]
    held = magnitudes >= least
    has = (least[:, 0] > 0) & (np.count_nonzero(held, axis=1) <= 2 * size)
    walked = np.where(held, ranks, np.uint32(0xFFFFFFFF))
    first = np.sort(np.partition(walked, members - 1, axis=1)[:, :members], axis=1)
    keys = np.full(len(magnitudes), length, np.uint64)
    for each in first.T:
        keys = _mixed(keys * np.uint64(0x9E3779B97F4A7C15) + each.astype(np.uint64))
    return np.where(has, keys, np.uint64(0)), np.where(has, least[:, 0], np.float32(0))


def _mixed(x: Words) -> Words:
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))
