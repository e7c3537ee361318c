"""The ordered similarity: the cosine of two supports whose indices weigh by the octaves of ranks.

An index of octave l weighs ``2^(-l/2)``, so that all full octaves have equal shares of the squared
length of a support. Kernels count the shared indices by the sum of their two octaves, in integers;
so all of them, and both orders of a pair, give one and the same similarity. What it adds to the
plain one, and where not, is measured in docs/evidence/supports.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import NO_GAPS, Gaps, indices_between
from modelkin.core.kernels.choice import kernels
from modelkin.core.kernels.reference.octaves import ABSENT, SUMS
from modelkin.core.octaves import Octaves, last_octave
from modelkin.core.similarity.overlap import check_comparable
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = ["ordered_similarities", "ordered_similarity", "ordered_similarity_to"]

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_WEIGHTS: Final = 2.0 ** (-np.arange(SUMS) / 2)
"""The weight of a shared index, by the sum of its two octaves."""
_TABLE_FACTOR: Final = 64
"""Supports denser than one in so many parameters are looked up in a byte table, five times as fast
as a merge."""


def ordered_similarity(a: Support, b: Support) -> float:
    """The ordered similarity of two supports, 0 (no shared index) to 1 (the same octaves too).

    Args:
        a: an ordered support, such as ``select_support(..., ordered=True)`` gives.
        b: another one.

    Raises:
        InvalidParameter: one of them is not ordered.
        SpaceMismatch: they are of different numbers of parameters, or their origins state
            different kinds of importance or different layouts.
    """
    return ordered_similarity_to(a)(b)


def ordered_similarities(query: Support, others: Iterable[Support], gaps: Gaps = NO_GAPS) -> Floats:
    """The ordered similarity of one support and each of several others, in their order.

    Args:
        query: an ordered support.
        others: n more. Each is compared before the next one is requested.
        gaps: what is left out.

    Returns:
        Shape ``(n,)``.

    Raises:
        InvalidParameter: one of them is not ordered.
        SpaceMismatch: one is of another number of parameters than the query, or of another origin.
    """
    return np.array([*map(ordered_similarity_to(query, gaps), others)], np.float64)


def ordered_similarity_to(query: Support, gaps: Gaps = NO_GAPS) -> Callable[[Support], float]:
    """Return a function that compares supports with the query, which is prepared once.

    It raises for the query, and its result for a support, as :func:`ordered_similarities` does.
    """
    if gaps:
        return _outside(query, gaps)
    shared, length = _counting(query), _squared_length(query.k)

    def compare(other: Support) -> float:
        check_comparable(query, other)
        weight = float((shared(other) * _WEIGHTS).sum())
        return min(1.0, weight / math.sqrt(length * _squared_length(other.k)))

    return compare


def _outside(query: Support, gaps: Gaps) -> Callable[[Support], float]:
    """Compare what lies outside the gaps, where the indices keep the octaves of their ranks."""
    ours = _cut(query, gaps)
    shared = _counting(ours) if ours.k else None

    def compare(other: Support) -> float:
        check_comparable(query, other)
        theirs = _cut(other, gaps)
        if shared is None or not theirs.k:
            return 0.0
        lengths = (
            float(_WEIGHTS[2 * _octaves(each).astype(np.int64)].sum()) for each in (ours, theirs)
        )
        return min(1.0, float((shared(theirs) * _WEIGHTS).sum()) / math.sqrt(math.prod(lengths)))

    return compare


def _cut(support: Support, gaps: Gaps) -> Support:
    """The part of an ordered support outside the gaps; it may be empty."""
    indices, octaves = support.indices, _octaves(support)
    kept = np.ones(indices.size, np.bool_)
    for begin, end in gaps.ranges:
        inside = indices_between(indices, begin, end).size
        first = int(np.searchsorted(indices, indices.dtype.type(begin)))
        kept[first : first + inside] = False
    return Support.trusted(indices[kept], support.num_parameters, octaves=octaves[kept])


def _counting(query: Support) -> Callable[[Support], Counts]:
    """Return a function that counts the indices shared with the query, by the sum of octaves."""
    octaves, m = _octaves(query), query.num_parameters
    if m > _TABLE_FACTOR * query.k:
        return lambda other: kernels().shared_octaves(
            query.indices, octaves, other.indices, _octaves(other)
        )
    table = np.full(m, ABSENT, np.uint8)
    table[query.indices] = octaves
    return lambda other: kernels().probe_octaves(table, other.indices, _octaves(other))


def _octaves(support: Support) -> Octaves:
    if support.octaves is None:
        raise InvalidParameter(
            "an ordered similarity compares ordered supports, and this one has no octaves: make it "
            "with select_support(..., ordered=True)",
            field="support",
        )
    return support.octaves


def _squared_length(k: int) -> float:
    """Sum the squared weights: 1 for each full octave, and for the last one its full part."""
    last = last_octave(k)
    full = 1 << last
    return last + (k + 1 - full) / full
