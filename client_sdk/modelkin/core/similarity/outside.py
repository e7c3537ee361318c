"""The overlap of two supports outside gaps: over the parameters that are compared.

Only the gaps are read besides the two supports as a whole, so that without gaps a comparison takes
no longer. A bitmap is never unpacked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import Gaps
from modelkin.core.layout import Layout
from modelkin.core.packed import PackedSupport, packed_shared_count
from modelkin.core.similarity.chance import expected_similarities, kappa, tensor_sizes
from modelkin.core.support import Support

__all__ = [
    "OverlapOutside",
    "counts_inside",
    "counts_outside",
    "covered_share",
    "least_covered",
    "magnification",
    "overlap_outside",
]

_MAX_GAPS: Final = 32
"""Different gaps of which each pair is joined: beyond these, the share is a bound."""

AnySupport = Support | PackedSupport
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OverlapOutside:
    """The overlap of two supports outside some gaps.

    Attributes:
        shared: how many indices both have there.
        a: how many the first has there.
        b: how many the second has there.
        expected: S by chance in each tensor; None without a layout, or where neither has an index.
    """

    shared: int
    a: int
    b: int
    expected: float | None = None

    @property
    def similarity(self) -> float:
        """``2 * shared / (a + b)``; 0 where neither has an index outside the gaps."""
        return 2 * self.shared / (self.a + self.b) if self.a + self.b else 0.0

    @property
    def kappa(self) -> float | None:
        """The similarity beyond chance; None where chance is not known, or gives S = 1."""
        return None if self.expected is None else kappa(self.similarity, self.expected)


def overlap_outside(
    a: AnySupport, b: AnySupport, gaps: Gaps, layout: Layout | None = None
) -> OverlapOutside:
    """Compare two supports outside the gaps.

    Args:
        a: a support.
        b: another one.
        gaps: what is left out besides what either does not cover.
        layout: the tensors in which chance is measured.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
    """
    one, other = _packed(a), _packed(b)
    shared = packed_shared_count(one, other, gaps)  # none lies in what either does not cover
    gaps = gaps | one.gaps | other.gaps
    left = one.k - one.count_in(gaps), other.k - other.count_in(gaps)
    if layout is None or not sum(left):
        return OverlapOutside(shared, *left)
    ours, theirs = (counts_outside(each, gaps, layout) for each in (one, other))
    sizes = tensor_sizes(layout) - gaps.sizes_in_tensors(layout.ends)
    expected = expected_similarities(ours, theirs[None], sizes)
    return OverlapOutside(shared, *left, float(expected[0]))


def magnification(a: PackedSupport, b: PackedSupport, gaps: Gaps) -> float:
    """By how much S and its chance grow where a pair is compared over what both cover.

    The shared indices lie there anyway, and so do those that chance shares in each tensor, taken
    alike. So only the sizes of the two are smaller.

    Args:
        a: a support.
        b: another one.
        gaps: what is left out besides.
    """
    total = a.k + b.k - a.count_in(gaps) - b.count_in(gaps)
    lost = a.count_in(b.gaps.without(gaps)) + b.count_in(a.gaps.without(gaps))
    return total / (total - lost) if lost < total else 1.0


def covered_share(a: PackedSupport, b: PackedSupport) -> float | None:
    """The share of the parameters that both cover; None where both cover all."""
    lacking = a.gaps | b.gaps
    return 1 - lacking.size / a.num_parameters if lacking else None


def least_covered(supports: Iterable[PackedSupport | None]) -> float | None:
    """The share of the parameters that any two of some supports cover, or more.

    Args:
        supports: of one space; None for a model that has none.

    Returns:
        None where all cover all.
    """
    whole = {each.gaps: each.num_parameters for each in supports if each is not None and each.gaps}
    if not whole:
        return None
    gaps = sorted(whole, key=lambda each: -each.size)
    if len(gaps) <= _MAX_GAPS:
        lacking = max(gaps[0].size, *((a | b).size for a, b in combinations(gaps, 2)), 0)
    else:
        lacking = gaps[0].size + gaps[1].size
    return max(0.0, 1 - lacking / whole[gaps[0]])


def counts_outside(support: AnySupport, gaps: Gaps, layout: Layout) -> Integers:
    """How many indices of a support lie outside the gaps, by tensor: shape ``(tensors,)``."""
    everything = Gaps(((0, layout.num_parameters),))
    return counts_inside(support, everything, layout) - counts_inside(support, gaps, layout)


def counts_inside(support: AnySupport, gaps: Gaps, layout: Layout) -> Integers:
    """How many indices of a support lie in the gaps, by tensor: shape ``(tensors,)``."""
    packed, counts = _packed(support), np.zeros(len(layout.tensors), np.int64)
    pieces, tensors = gaps.in_tensors(layout.ends)
    np.add.at(counts, tensors, packed.counts_in(pieces))
    return counts


def _packed(support: AnySupport) -> PackedSupport:
    return PackedSupport.pack(support) if isinstance(support, Support) else support
