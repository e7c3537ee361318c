"""Comparisons by the ranks of indices: their conditions, and the matrix of many models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.models.catalog.reader import Subject
from app.models.spaces.records import SpaceRecord
from modelkin.core.gaps import NO_GAPS, Gaps
from modelkin.core.indices import index_dtype
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.ordered import ordered_similarities, ordered_similarity_to
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter

__all__ = ["rank_comparer", "ordered_matrix", "require_ordered"]

_UNPACKED_BYTES: Final = 64 << 20
"""Bytes of unpacked supports that a matrix holds at a time."""


def require_ordered(space: SpaceRecord) -> None:
    """Require that a space has ordered supports.

    Raises:
        InvalidParameter: the space has none.
    """
    if not space.ordered:
        raise InvalidParameter(
            f"space {space.name!r} is not ordered, so its models have no ranks to compare: leave "
            f"measure out, or create a space with ordered",
            field="measure",
        )


def rank_comparer(
    space: SpaceRecord, subject: Subject, gaps: Gaps = NO_GAPS
) -> Callable[[Support], float]:
    """Return a function that compares supports with a subject by the ranks of their indices.

    Args:
        gaps: what is left out.

    Raises:
        InvalidParameter: the space is not ordered, or the query has no octaves.
    """
    require_ordered(space)
    if subject.packed is None or not subject.packed.ordered:
        raise InvalidParameter(
            "measure ordered compares the octaves of ranks, and the query has none: send a support "
            "of select_support(..., ordered=True) in the native format",
            field="measure",
        )
    return ordered_similarity_to(subject.packed.unpack(), gaps)


def ordered_matrix(
    supports: Sequence[PackedSupport], report: Callable[[int, int], None], gaps: Gaps = NO_GAPS
) -> npt.NDArray[np.float64]:
    """Compute the exact ordered similarity of all pairs; a few supports are unpacked at a time.

    Args:
        supports: n ordered supports of one M.
        report: called with the done part and the whole of the work, after each row of a tile; an
            error that it raises ends the computation.
        gaps: what is left out.

    Returns:
        Shape ``(n, n)``, symmetric, 1 on the diagonal, in the order given.
    """
    n, values = len(supports), np.eye(len(supports))
    size = _tile_size(supports)
    for begin in range(0, n, size):
        tile = [support.unpack() for support in supports[begin : begin + size]]
        for row in range(begin + len(tile)):
            inside = row - begin
            query = tile[inside] if inside >= 0 else supports[row].unpack()
            first = max(0, inside + 1)  # the others are in the matrix by now
            columns = slice(begin + first, begin + len(tile))
            found = ordered_similarities(query, tile[first:], gaps)
            values[row, columns] = values[columns, row] = found
            report(begin * begin + row * len(tile), n * n)
    return values


def _tile_size(supports: Sequence[PackedSupport]) -> int:
    most = max(support.k for support in supports)
    bytes_each = most * (index_dtype(supports[0].num_parameters).itemsize + 1)
    return max(1, _UNPACKED_BYTES // bytes_each)
