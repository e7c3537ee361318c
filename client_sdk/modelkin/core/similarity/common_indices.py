"""Common indices: those in so many supports that sharing them does not indicate kinship.

The index space is counted in pieces, so that memory grows neither with M nor with the number of
supports. The caller decides how many supports are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray, check_same_space, index_dtype
from modelkin.core.packed import PackedSupport
from modelkin.errors import InvalidParameter

__all__ = ["common_indices"]

STRETCH_SIZE = 1 << 22
"""How many indices are counted at a time: 16 MB of counts, 512 kB of each bitmap."""
SPARSE_FACTOR = 8
"""Lists are merged instead of counted if fewer than one of so many positions holds an index."""

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint32]
Progress = Callable[[int, int], None]


def common_indices(
    supports: Sequence[PackedSupport],
    at_least: int,
    progress: Progress | None = None,
    *,
    stretch: int = STRETCH_SIZE,
) -> IndexArray:
    """The indices that are in at least so many of the supports.

    Args:
        supports: n supports of one M, at least one.
        at_least: in how many supports an index has to be, from 1 on.
        progress: called repeatedly with the part of the index space that is done, and with M.
        stretch: how many indices are counted at a time, a multiple of 64.

    Returns:
        Ascending; possibly none.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
        InvalidParameter: no support is given, or ``at_least`` is below 1.
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
    sparse = not bitmaps and SPARSE_FACTOR * sum(indices.size for indices in lists) < m
    pieces = (
        _merge(lists, at_least, stretch) if sparse else _count(bitmaps, lists, m, at_least, stretch)
    )
    found = [np.empty(0, index_dtype(m))]
    for done, common in pieces:
        found.append(common.astype(index_dtype(m)))
        if progress is not None:
            progress(done, m)
    indices: IndexArray = np.concatenate(found)
    return indices


def _count(
    bitmaps: Sequence[Words], lists: Sequence[IndexArray], m: int, at_least: int, stretch: int
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Yield the common indices stretch by stretch, each with the end of its stretch."""
    for begin in range(0, m, stretch):
        end = min(m, begin + stretch)
        counts = _sum([words[begin // 64 : -(-end // 64)] for words in bitmaps], end - begin)
        parts = [_split(indices, end) for indices in lists]
        for inside, _ in parts:
            # Indices within one list are distinct, so this fancy increment counts each of them.
            counts[(inside - inside.dtype.type(begin)).astype(np.int64)] += np.uint32(1)
        lists = [rest for _, rest in parts]
        yield end, np.flatnonzero(counts >= at_least).astype(np.uint64) + np.uint64(begin)


def _sum(bitmaps: Sequence[Words], size: int) -> Counts:
    """How many of the bitmaps have each bit set; shape ``(size,)``.

    Counts are kept as bit planes, plane p with bit p of each count. A bitmap is added to 64 counts
    at a time, and the carry is added to the next plane.
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


def _merge(
    lists: Sequence[IndexArray], at_least: int, max_sorted: int
) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
    """Yield the common indices of sparse lists, by sorting a part of each at a time.

    Args:
        max_sorted: how many indices are sorted at a time.
    """
    each = max(1, max_sorted // len(lists))
    while lists := [indices for indices in lists if indices.size]:
        last = min(int(indices[min(each, indices.size) - 1]) for indices in lists)
        parts = [_split(indices, last + 1) for indices in lists]
        values, counts = np.unique(np.concatenate([p for p, _ in parts]), return_counts=True)
        lists = [rest for _, rest in parts]
        yield last + 1, values[counts >= at_least].astype(np.uint64)


def _split(indices: IndexArray, end: int) -> tuple[IndexArray, IndexArray]:
    """Split an ascending list into the indices below ``end`` and the rest."""
    inside = indices.size
    if inside and int(indices[-1]) >= end:  # so that ``end`` is an index, and fits the dtype
        inside = int(np.searchsorted(indices, indices.dtype.type(end)))
    return indices[:inside], indices[inside:]
