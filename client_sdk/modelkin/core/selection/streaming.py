"""Selection from an importance that comes in chunks and is never in memory as a whole.

``radix`` needs histograms alone, so an importance is read two or three times instead of being kept:
once for the histogram, once for the bin in which the selection ends (unless every float of it has
the same bits), and once for the indices. The result equals ``select_support``'s, bit for bit.

The caller provides the chunks; this module keeps none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.selection import radix
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.selection.warnings import warn_if_few, warn_if_sparse
from modelkin.core.support import Support
from modelkin.errors import InvalidImportance

__all__ = [
    "Chunks",
    "Floats",
    "LocatedSelection",
    "locate",
    "select_from_chunks",
    "selected_indices",
]

Floats = npt.NDArray[np.float32]

Chunks = Callable[[], Iterable[Floats]]
"""Starts a new pass: the same float32 chunks each time, in order, M entries together. A chunk is
read before the next one is requested, so all may share one buffer."""

_SIGN = 0x8000
"""The upper half of -0.0 and of the least negative floats."""


@dataclass(frozen=True, slots=True)
class LocatedSelection:
    """A selection as a threshold, before its indices are known.

    Attributes:
        num_parameters: M.
        threshold: above which entries are selected.
        coverage: their share of the mass, 0 to 1.
    """

    num_parameters: int
    threshold: radix.Threshold
    coverage: float

    @property
    def k(self) -> int:
        """K, how many entries are selected."""
        return self.threshold.k


def select_from_chunks(
    make_chunks: Chunks, num_parameters: int, rule: SelectionRule | None = None
) -> Support:
    """``select_support`` of the concatenated chunks, in memory for K indices and one chunk.

    Args:
        make_chunks: starts a pass, see :data:`Chunks`; called two or three times.
        num_parameters: M, the entries of all chunks together.
        rule: how K is chosen, as ``SelectionRule.of`` makes it; by default ``SelectionRule.of(M)``.

    Raises:
        InvalidImportance: an entry is NaN, infinite or negative, none is positive, or the chunks
            are not float32, not M entries, or differ from pass to pass.
    """
    selection = locate(make_chunks, num_parameters, rule)
    indices: IndexArray = np.empty(selection.k, index_dtype(num_parameters))
    at = 0
    for part in selected_indices(make_chunks, selection):
        indices[at : at + part.size] = part
        at += part.size
    return Support.trusted(indices, num_parameters)


def locate(
    make_chunks: Chunks, num_parameters: int, rule: SelectionRule | None = None
) -> LocatedSelection:
    """Locate the threshold of a selection: one pass over the chunks, or two.

    Warns with :class:`SmallSupportWarning` if fewer entries are positive than requested.
    Args and errors are those of :func:`select_from_chunks`.
    """
    rule = SelectionRule.of(num_parameters) if rule is None else rule
    counts, low = _histogram(make_chunks, num_parameters)

    @cache
    def within(upper: int) -> radix.Counts:
        return _within(make_chunks, upper, counts, low)

    if rule.coverage is None:
        threshold = radix.locate_count(counts, rule.k, within)
    else:
        threshold = radix.locate_coverage(counts, low, rule.coverage, rule.k, within)
    if threshold is None:
        raise InvalidImportance(
            f"all {num_parameters} entries of the importance are zero, and a support takes only "
            f"positive ones",
            field="importance",
        )
    if rule.coverage is None:
        warn_if_few(threshold.k, rule.k, num_parameters)
    else:
        warn_if_sparse(threshold.k, num_parameters)
    return LocatedSelection(num_parameters, threshold, _coverage(threshold, counts, low, within))


def selected_indices(make_chunks: Chunks, selection: LocatedSelection) -> Iterator[IndexArray]:
    """The K indices in ascending order: one pass over the chunks, one array a chunk that has any.

    Raises:
        InvalidImportance: the chunks differ from those in which the selection was located.
    """
    threshold, dtype = selection.threshold, index_dtype(selection.num_parameters)
    ties = threshold.ties if threshold.partial else selection.num_parameters
    begin = taken = 0
    for chunk in make_chunks():
        signed = _check(chunk).view(np.int32)
        equal = int(np.count_nonzero(signed == threshold.bits))
        k = int(np.count_nonzero(signed > threshold.bits)) + min(equal, ties)
        if k and taken + k <= selection.k:
            # If all ties are selected, the kernel need not search for the last one.
            limit = chunk.size if equal <= ties else ties
            found = kernels().emit(chunk.view(np.uint32), threshold.bits, limit, k)
            yield found.astype(dtype, copy=False) + dtype.type(begin)
        ties -= min(equal, ties)
        begin, taken = begin + chunk.size, taken + k
    if (begin, taken) != (selection.num_parameters, selection.k):
        raise _change_error()


def _histogram(make_chunks: Chunks, num_parameters: int) -> tuple[radix.Counts, radix.Counts]:
    """Counts and masses by upper half; refuses an importance that they show to be invalid."""
    counts, low = np.zeros(radix.BINS, np.int64), np.zeros(radix.BINS, np.int64)
    entries = 0
    for chunk in make_chunks():
        part = kernels().histogram_mass(_check(chunk).view(np.uint32))
        counts += part[0]
        low += part[1]
        entries += chunk.size
    if entries != num_parameters:
        raise InvalidImportance(
            f"the chunks hold {entries} entries together, not {num_parameters}", field="importance"
        )
    suspect = counts[radix.INVALID :].copy()
    if low[_SIGN] == 0:  # every entry of that bin is -0.0, which is zero
        suspect[_SIGN - radix.INVALID] = 0
    if suspect.any():
        raise _refusal(make_chunks)
    return counts, low


def _within(
    make_chunks: Chunks, upper: int, counts: radix.Counts, low: radix.Counts
) -> radix.Counts:
    """How many entries of one upper half have each lower half.

    If the lower halves sum to zero, all of them are zero: bfloat16 and 8-bit floats need no pass.
    """
    within = np.zeros(radix.BINS, np.int64)
    if low[upper] == 0:
        within[0] = counts[upper]
        return within
    for chunk in make_chunks():
        within += kernels().histogram_within(_check(chunk).view(np.uint32), upper)
    if within.sum() != counts[upper]:
        raise _change_error()
    return within


def _coverage(
    threshold: radix.Threshold,
    counts: radix.Counts,
    low: radix.Counts,
    within: Callable[[int], radix.Counts],
) -> float:
    """The share of the mass that is selected, from exact integers."""
    upper, lower = divmod(threshold.bits, radix.BINS)
    inside = within(upper).copy()
    inside[:lower] = 0
    above = int(counts[upper + 1 : radix.INVALID].sum())
    inside[lower] = threshold.k - above - int(inside[lower + 1 :].sum())
    taken, taken_low = counts.copy(), low.copy()
    taken[:upper] = taken_low[:upper] = 0
    taken[upper] = inside.sum()
    taken_low[upper] = inside @ np.arange(radix.BINS)
    return radix.total_mass(taken, taken_low) / radix.total_mass(counts, low)


def _check(chunk: Floats) -> Floats:
    if chunk.dtype != np.float32 or chunk.ndim != 1 or not chunk.flags.c_contiguous:
        raise InvalidImportance(
            f"chunks are contiguous vectors of float32, this is {chunk.dtype} of shape "
            f"{chunk.shape}",
            field="importance",
        )
    return chunk


def _refusal(make_chunks: Chunks) -> InvalidImportance:
    """The error that names the first invalid entry, found in one more pass."""
    begin = 0
    for chunk in make_chunks():
        bad = np.flatnonzero(~((chunk >= 0) & (chunk < np.inf)))
        if bad.size:
            return InvalidImportance(
                f"importance[{begin + int(bad[0])}] = {chunk[bad[0]]}: entries must be finite and "
                f"not negative",
                field="importance",
            )
        begin += chunk.size
    return _change_error()


def _change_error() -> InvalidImportance:
    return InvalidImportance(
        "the importance changed while it was being read: every pass must give the same chunks",
        field="importance",
    )
