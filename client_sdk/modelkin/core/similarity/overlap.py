"""The overlap of two supports: exact counts and similarities.

The similarity of two supports is ``S = 2 |I n J| / (|I| + |J|)``, Sorensen and Dice's, which for
equal sizes is the paper's ``|I n J| / K``; the Jaccard similarity is ``J = |I n J| / |I u J|``, and
``S = 2J / (1 + J)`` holds for every pair. ``modelkin.core.sketching`` has the estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelkin.core.estimators import similarity_of
from modelkin.core.gaps import Gaps
from modelkin.core.importance import check_same_origin
from modelkin.core.indices import IndexArray, check_same_space
from modelkin.core.kernels.choice import kernels
from modelkin.core.layout import Layout, TensorSpec
from modelkin.core.similarity.chance import kappa
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = [
    "TensorOverlap",
    "by_tensor",
    "check_comparable",
    "intersection",
    "jaccard",
    "shared_count",
    "similarity",
]


@dataclass(frozen=True, slots=True)
class TensorOverlap:
    """The overlap of two supports within one tensor of their layout.

    Attributes:
        name: the tensor, as the layout calls it.
        size: how many parameters it has that both supports cover.
        a: how many of them are in the first support.
        b: how many are in the second support.
        shared_indices: how many are in both.
        similarity: ``2 * shared_indices / (a + b)``; None where neither has an index in the tensor.
        expected: the mean S over supports drawn at random with as many indices in the tensor,
            ``2 a b / size / (a + b)``; None where neither has one, or from an older service.
        kappa: ``(similarity - expected) / (1 - expected)``; None likewise, and where both hold the
            whole tensor, because chance alone gives 1.
    """

    name: str
    size: int
    a: int
    b: int
    shared_indices: int
    similarity: float | None = None
    expected: float | None = None
    kappa: float | None = None


def check_comparable(a: Support, b: Support) -> None:
    """Refuse supports that no number compares: an error, not a similarity of zero.

    Raises:
        SpaceMismatch: they are of different numbers of parameters, or their origins state
            different kinds of importance or different layouts.
    """
    for given in (a, b):
        if not isinstance(given, Support):
            raise InvalidParameter(
                f"two supports are compared, not {type(given).__name__}: make one of an importance "
                f"with select_support, or of indices with Support.from_indices"
            )
    check_same_space(a.num_parameters, b.num_parameters)
    check_same_origin(a.origin, b.origin)


def shared_count(a: Support, b: Support) -> int:
    """How many indices two supports share, exactly.

    Raises:
        SpaceMismatch: they are of different numbers of parameters, or their origins state
            different kinds of importance or different layouts.
    """
    check_comparable(a, b)
    small, large = (a, b) if a.k <= b.k else (b, a)
    if (
        small.num_parameters < 128 * small.k
    ):  # a bitmap to probe is small, and much quicker than a merge
        return int(
            kernels().probe_count(kernels().bitmap(large.indices, a.num_parameters), small.indices)
        )
    return int(kernels().intersect_count(small.indices, large.indices))


def similarity(a: Support, b: Support) -> float:
    """The similarity S of two supports, 0 to 1.

    Raises:
        SpaceMismatch: they are of different numbers of parameters, or their origins state
            different kinds of importance or different layouts.
    """
    both, sizes = shared_count(a, b), _covered_sizes(a, b)
    return similarity_of(both, *sizes) if sum(sizes) else 0.0


def jaccard(a: Support, b: Support) -> float:
    """The Jaccard similarity of two supports, 0 to 1.

    Raises:
        SpaceMismatch: they are of different numbers of parameters, or their origins state
            different kinds of importance or different layouts.
    """
    both, sizes = shared_count(a, b), _covered_sizes(a, b)
    return both / max(1, sum(sizes) - both)


def _covered_sizes(a: Support, b: Support) -> tuple[int, int]:
    """How many indices each of two supports has where the other one covers."""
    return _outside(a.indices, b.gaps).size, _outside(b.indices, a.gaps).size


def intersection(a: Support, b: Support) -> IndexArray:
    """The shared indices, ascending; possibly none.

    Raises:
        SpaceMismatch: they are of different numbers of parameters, or their origins state
            different kinds of importance or different layouts.
    """
    check_comparable(a, b)
    small, large = (a.indices, b.indices) if a.k <= b.k else (b.indices, a.indices)
    found = np.minimum(np.searchsorted(large, small), large.size - 1)
    common: IndexArray = small[large[found] == small]
    return common


def by_tensor(a: Support, b: Support, layout: Layout) -> tuple[TensorOverlap, ...]:
    """The overlap of two supports in each tensor of their layout, in its order.

    Raises:
        SpaceMismatch: supports and layout are not all of the same number of parameters, or the
            supports are of different origins.
    """
    check_comparable(a, b)
    if layout.num_parameters != a.num_parameters:
        raise SpaceMismatch(
            f"the layout has {layout.num_parameters} parameters, "
            f"the supports are of {a.num_parameters}"
        )
    covered = _outside(a.indices, b.gaps), _outside(b.indices, a.gaps), intersection(a, b)
    counts = zip(*(layout.counts(indices).tolist() for indices in covered), strict=True)
    lacking = (a.gaps | b.gaps).sizes_in_tensors(layout.ends).tolist()
    return tuple(
        _tensor_overlap(tensor, tensor.size - lacks, *inside)
        for tensor, lacks, inside in zip(layout.tensors, lacking, counts, strict=True)
    )


def _outside(indices: IndexArray, gaps: Gaps) -> IndexArray:
    """The ascending indices that do not lie in gaps."""
    if not gaps:
        return indices
    edges = np.array(gaps.ranges, np.uint64).ravel()
    outside = np.searchsorted(edges, indices.astype(np.uint64), side="right") % 2 == 0
    kept: IndexArray = indices[outside]
    return kept


def _tensor_overlap(
    tensor: TensorSpec, size: int, in_a: int, in_b: int, in_both: int
) -> TensorOverlap:
    """The overlap within a tensor, of which both have ``size`` parameters."""
    if not in_a + in_b:
        return TensorOverlap(tensor.name, size, 0, 0, 0)
    measured = similarity_of(in_both, in_a, in_b)
    expected = 2.0 * in_a * in_b / size / (in_a + in_b)
    return TensorOverlap(
        name=tensor.name,
        size=size,
        a=in_a,
        b=in_b,
        shared_indices=in_both,
        similarity=measured,
        expected=expected,
        kappa=kappa(measured, expected),
    )
