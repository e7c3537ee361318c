"""The similarity of all pairs of packed supports, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import NO_GAPS, Gaps, clear_words
from modelkin.core.indices import check_same_space
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport, packed_shared_count
from modelkin.errors import InvalidParameter

__all__ = ["growth", "lost_counts", "matrix"]

TILE_SIZE = 64
"""How many supports a side a tile of a matrix has: their bitmaps stay in cache."""

MATRIX_BITMAP_BYTES = 1 << 26
"""How many bytes of bitmaps a matrix reads at a time."""

_INDICES_A_STEP = 1 << 26
"""How many indices of lists a matrix compares, at most, before it reports: 0.1 s."""


def matrix(
    supports: Sequence[PackedSupport],
    report: Callable[[int, int], None] | None = None,
    gaps: Gaps = NO_GAPS,
) -> npt.NDArray[np.float64]:
    """The similarity of all pairs outside the gaps and their own gaps, exact.

    Args:
        supports: n of them, of one M, at least one.
        report: called with the done part and the whole of the work, several times a second; what
            it raises ends the computation.
        gaps: what is left out; a support that has nothing else shares nothing with others.

    Returns:
        Shape ``(n, n)``, symmetric, 1 on the diagonal, in the order given.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
        InvalidParameter: no support is given.
    """
    if not supports:
        raise InvalidParameter("a matrix needs at least one support", field="supports")
    for support in supports:
        check_same_space(supports[0].num_parameters, support.num_parameters)
    ks = np.array([support.k for support in supports], np.int64)
    sizes = ks - np.array([support.count_in(gaps) for support in supports], np.int64)
    # Lists that are long for their space are counted faster as bitmaps, 64 indices at a time.
    dense = supports[0].num_parameters <= 2048 * int(ks.min())
    count = _count_tiles if dense else _count_pairs
    shared = count(supports, report or _no_report, gaps)
    lost = lost_counts(supports, gaps, report)
    totals = sizes[:, None] + sizes - lost - lost.T
    found: npt.NDArray[np.float64] = 2.0 * shared / np.maximum(1, totals)
    np.fill_diagonal(found, 1.0)
    return found


def _no_report(_done: int, _total: int) -> None:
    """Report to no one: no callback was given."""


def _count_pairs(
    supports: Sequence[PackedSupport], report: Callable[[int, int], None], gaps: Gaps
) -> npt.NDArray[np.int64]:
    n = len(supports)
    shared = np.zeros((n, n), np.int64)
    step = max(1, _INDICES_A_STEP // max(support.k for support in supports))
    for i, a in enumerate(supports):
        for j in range(i):
            if j and j % step == 0:
                report(i * (i - 1) // 2 + j, n * (n - 1) // 2)
            shared[i, j] = shared[j, i] = packed_shared_count(a, supports[j], gaps)
        report((i + 1) * i // 2, n * (n - 1) // 2)
    return shared


def _count_tiles(
    supports: Sequence[PackedSupport], report: Callable[[int, int], None], gaps: Gaps
) -> npt.NDArray[np.int64]:
    """Read every bitmap once, a slice of all of them at a time, and count it tile by tile."""
    n, size = len(supports), -(-supports[0].num_parameters // 64)
    step = max(1, MATRIX_BITMAP_BYTES // (8 * n))
    shared = np.zeros((n, n), np.int64)
    for begin in range(0, size, step):
        rows = np.stack([support.words(begin, min(size, begin + step)) for support in supports])
        clear_words(rows, begin, gaps)
        for i in range(0, n, TILE_SIZE):
            for j in range(0, i + 1, TILE_SIZE):
                shared[i : i + TILE_SIZE, j : j + TILE_SIZE] += kernels().and_count_table(
                    rows[i : i + TILE_SIZE], rows[j : j + TILE_SIZE]
                )
            report(begin // step * n + min(n, i + TILE_SIZE), -(-size // step) * n)
    lower = np.tril(shared)
    return lower + np.tril(lower, -1).T


def growth(
    supports: Sequence[PackedSupport],
    gaps: Gaps = NO_GAPS,
    report: Callable[[int, int], None] | None = None,
) -> npt.NDArray[np.float64]:
    """By how much S and its chance grow where each pair is compared over what both cover.

    ``outside.magnification`` says why. Arguments are those of :func:`lost_counts`.

    Returns:
        Shape ``(n, n)``.
    """
    lost = lost_counts(supports, gaps, report)
    if not lost.any():
        return np.ones(lost.shape)
    sizes = np.array([support.k - support.count_in(gaps) for support in supports], np.int64)
    totals = sizes[:, None] + sizes
    found: npt.NDArray[np.float64] = totals / np.maximum(1, totals - lost - lost.T)
    return found


def lost_counts(
    supports: Sequence[PackedSupport],
    gaps: Gaps = NO_GAPS,
    report: Callable[[int, int], None] | None = None,
) -> npt.NDArray[np.int64]:
    """How many indices of each support lie in what another one does not cover, outside ``gaps``.

    Args:
        supports: n of them, of one M.
        gaps: what is left out besides.
        report: see :func:`matrix`.

    Returns:
        Shape ``(n, n)``: of the row's support, in the gaps of the column's.
    """
    lost = np.zeros((len(supports), len(supports)), np.int64)
    columns: dict[Gaps, list[int]] = {}
    for at, support in enumerate(supports):
        if support.gaps:
            columns.setdefault(support.gaps, []).append(at)
    for own, places in columns.items():
        (report or _no_report)(1, 1)  # all pairs are counted; it may end the computation
        inside = own.without(gaps)
        counts = np.array([support.count_in(inside) for support in supports], np.int64)
        lost[:, places] = counts[:, None]
    return lost
