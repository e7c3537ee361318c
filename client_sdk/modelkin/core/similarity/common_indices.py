"""Which indices are everybody's: held by so many supports that sharing them says nothing of kin.

Counts over the index space in pieces, so that memory grows neither with M nor with the number of
supports. It never decides how many are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray, check_same_space, index_dtype
from modelkin.core.packed import PackedSupport
from modelkin.errors import InvalidParameter

__all__ = ["common_indices"]

STRETCH = 1 << 22
"""Indices that are counted at a time: 16 MB of counts, 512 kB of each bitmap."""
SPARSE = 8
"""Where a stretch of so many indices is held by less than one support, lists are merged instead."""

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint32]
Progress = Callable[[int, int], None]


def common_indices(
    supports: Sequence[PackedSupport],
    at_least: int,
    progress: Progress | None = None,
    *,
    stretch: int = STRETCH,
) -> IndexArray:
    """The indices that at least so many of the supports hold.

    Args:
        supports: n of them, of one M, at least one.
        at_least: from 1 on.
        progress: told again and again how much of the index space is done, and M.
        stretch: how many indices are counted at a time, a multiple of 64.

    Returns:
        Ascending; possibly none.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
        InvalidParameter: there is none, or ``at_least`` is below 1.
    """
    if not supports:
        raise InvalidParameter("common indices need at least one support", field="supports")
    if at_least < 1:
        raise InvalidParameter(f"at_least must be from 1 on, not {at_least}", field="at_least")
    m = supports[0].num_parameters
    for support in supports:
        check_same_space(m, support.num_parameters)
    bitmaps = [s.array.astype(np.uint64, copy=False) for s in supports if s.kind == "bitmap"]
    lists: list[IndexArray] = [support.array for support in supports if support.kind == "list"]
    sparse = not bitmaps and SPARSE * sum(indices.size for indices in lists) < m
    pieces = (
        _merged(lists, at_least, stretch)
        if sparse
        else _counted(bitmaps, lists, m, at_least, stretch)
    )
    found = [np.empty(0, index_dtype(m))]
    for done, common in pieces:
        found.append(common.astype(index_dtype(m)))
        if progress is not None:
            progress(done, m)
    indices: IndexArray = np.concatenate(found)
    return indices


def _counted(
    bitmaps: Sequence[Words], lists: Sequence[IndexArray], m: int, at_least: int, stretch: int
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """The common indices stretch by stretch, each with where it ends."""
    for begin in range(0, m, stretch):
        end = min(m, begin + stretch)
        counts = _sum([words[begin // 64 : -(-end // 64)] for words in bitmaps], end - begin)
        parts = [_split(indices, end) for indices in lists]
        for inside, _ in parts:
            # Distinct within one list, so that none is counted once where it should be twice.
            counts[(inside - inside.dtype.type(begin)).astype(np.int64)] += np.uint32(1)
        lists = [rest for _, rest in parts]
        yield end, np.flatnonzero(counts >= at_least).astype(np.uint64) + np.uint64(begin)


def _sum(bitmaps: Sequence[Words], size: int) -> Counts:
    """How many of the bitmaps have each bit set; shape ``(size,)``.

    Counts are kept as bit planes, plane p holding bit p of each, and a bitmap is added 64 counts a
    word at a time: what is carried goes on to the next plane.
    """
    planes: list[Words] = []
    for bitmap in bitmaps:
        carry = bitmap
        for plane in planes:
            carried = plane & carry
            plane ^= carry
            carry = carried
            if not carry.any():
                break
        else:
            planes.append(carry.copy())
    counts = np.zeros(size, np.uint32)
    for position, plane in enumerate(planes):
        bits = np.unpackbits(plane.view(np.uint8), bitorder="little", count=size)
        counts += bits.astype(np.uint32) << np.uint32(position)
    return counts


def _merged(
    lists: Sequence[IndexArray], at_least: int, most: int
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """The same of lists far between, by sorting some of all at a time: empty space costs nothing.

    Args:
        most: indices that are sorted at a time.
    """
    each = max(1, most // len(lists))
    while lists := [indices for indices in lists if indices.size]:
        last = min(int(indices[min(each, indices.size) - 1]) for indices in lists)
        parts = [_split(indices, last + 1) for indices in lists]
        values, counts = np.unique(np.concatenate([p for p, _ in parts]), return_counts=True)
        lists = [rest for _, rest in parts]
        yield last + 1, values[counts >= at_least].astype(np.uint64)


def _split(indices: IndexArray, end: int) -> tuple[IndexArray, IndexArray]:
    """What of an ascending list is below ``end``, and the rest."""
    inside = indices.size
    if inside and int(indices[-1]) >= end:  # so that ``end`` is an index, and fits the dtype
        inside = int(np.searchsorted(indices, indices.dtype.type(end)))
    return indices[:inside], indices[inside:]
