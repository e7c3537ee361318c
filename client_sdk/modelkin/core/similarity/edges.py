"""Pairs of similar models: the edges of a kinship graph.

A pair is two rows, the lower first. Pairs are found by distances of any kind; a caller that has the
supports can then compute their exact similarity and choose among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import NO_GAPS, Gaps, clear_words
from modelkin.core.kernels.choice import kernels
from modelkin.core.packed import PackedSupport, packed_shared_count
from modelkin.core.similarity.distances import Distances, blocks
from modelkin.core.similarity.nearest import nearest
from modelkin.core.similarity.outside import covered_share, magnification

__all__ = [
    "Pairs",
    "covered_by_pairs",
    "exact_similarity",
    "growth_of_pairs",
    "nearest_pairs",
    "pairs_from",
]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Stop = Callable[[], bool]

_MAX_STACKED_BYTES = 512 << 20
"""Bitmaps of this many bytes in all are stacked, and counted many at a time."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Distinct pairs of rows, ascending, and the similarity of each.

    Attributes:
        ends: shape ``(e, 2)``, the lower row first.
        similarity: S, shape ``(e,)``.
    """

    ends: Rows
    similarity: Floats

    def __len__(self) -> int:
        return self.similarity.size

    def of(self, kept: npt.NDArray[np.bool_] | Rows) -> Pairs:
        """The selected pairs."""
        return Pairs(self.ends[kept], self.similarity[kept])

    def among_nearest(self, k: int) -> npt.NDArray[np.bool_]:
        """Whether each pair is among the k most similar of either end, ties to the lower row."""
        ends = np.concatenate([self.ends, self.ends[:, ::-1]])
        order = np.lexsort((ends[:, 1], -np.tile(self.similarity, 2), ends[:, 0]))
        begins = np.searchsorted(ends[order, 0], ends[order, 0])
        chosen = np.zeros(2 * len(self), np.bool_)
        chosen[order[np.arange(order.size) - begins < k]] = True
        return chosen[: len(self)] | chosen[len(self) :]


def nearest_pairs(distances: Distances, k: int, stop: Stop | None = None) -> Pairs:
    """Every model with the k nearest others, each pair once.

    Args:
        distances: 1 - S of all pairs of n models.
        k: at least 1; all others where there are fewer.
        stop: asked now and then; once it is true, the pairs of the first models are returned.
    """
    n = len(distances)
    k = min(k, n - 1)
    if k < 1:
        return Pairs(np.empty((0, 2), np.int64), np.empty(0))
    near = nearest(distances, k, stop=stop)
    models = np.arange(len(near.rows))
    ends = np.sort(np.stack([np.repeat(models, k), near.rows.ravel()], axis=1), axis=1)
    _, first = np.unique(ends[:, 0] * n + ends[:, 1], return_index=True)
    return Pairs(ends[first], 1.0 - near.distances.ravel()[first])


def pairs_from(
    distances: Distances, min_similarity: float, max_pairs: int, stop: Stop | None = None
) -> Pairs | None:
    """All pairs whose similarity is at least ``min_similarity``.

    Args:
        distances: 1 - S of all pairs of n models.
        min_similarity: 0 to 1.
        max_pairs: how many pairs are allowed.
        stop: asked now and then; once it is true, the pairs of the first models are returned.

    Returns:
        None if there are more than ``max_pairs``.
    """
    n, found, similarities, total = len(distances), [], [], 0
    for some, block in blocks(distances, np.arange(n), stop):
        similarity = 1.0 - block
        near = (similarity >= min_similarity) & (np.arange(n) > some[:, None])
        total += int(np.count_nonzero(near))
        if total > max_pairs:
            return None
        at, column = np.nonzero(near)
        found.append(np.stack([some[at], column], axis=1))
        similarities.append(similarity[at, column])
    if not found:
        return Pairs(np.empty((0, 2), np.int64), np.empty(0))
    return Pairs(np.concatenate(found), np.concatenate(similarities))


def exact_similarity(
    supports: Mapping[int, PackedSupport],
    ends: Rows,
    stop: Stop | None = None,
    gaps: Gaps = NO_GAPS,
) -> Floats:
    """S of pairs of supports of one space outside the gaps, exactly.

    Args:
        supports: the supports by row, one for each row in ``ends``, all of one M.
        ends: shape ``(e, 2)``, ascending.
        stop: asked now and then; once it is true, the first pairs alone are compared.
        gaps: what is left out.

    Returns:
        Shape ``(e,)``, or of those that were compared.
    """
    rows = np.flatnonzero(np.bincount(ends.ravel()))  # `unique` would hold the interpreter's lock
    involved = [supports[row] for row in rows.tolist()]
    sizes = np.array([support.k - support.count_in(gaps) for support in involved], np.int64)
    a, b = np.searchsorted(rows, ends).T
    size = sum(support.array.nbytes for support in involved)
    if size <= _MAX_STACKED_BYTES and all(support.kind == "bitmap" for support in involved):
        shared = _count_stacked(involved, a, b, stop or _never, gaps)
    else:
        pairs = zip(a.tolist(), b.tolist(), strict=True)
        counts = (packed_shared_count(involved[i], involved[j], gaps) for i, j in pairs)
        shared = np.fromiter(_until(stop or _never, counts), np.int64)
    done = shared.size
    lost = _lost(involved, a[:done], b[:done], gaps)
    similarity: Floats = 2.0 * shared / np.maximum(1, sizes[a[:done]] + sizes[b[:done]] - lost)
    return similarity


def growth_of_pairs(
    supports: Mapping[int, PackedSupport], ends: Rows, gaps: Gaps = NO_GAPS
) -> Floats:
    """By how much S and its chance of pairs grow where each is compared over what both cover.

    Args:
        supports: the supports by row; a pair of which one has none does not grow.
        ends: shape ``(e, 2)``.
        gaps: what is left out besides.
    """
    found = np.ones(len(ends))
    for at, (a, b) in enumerate(ends.tolist()):
        one, other = supports.get(a), supports.get(b)
        if one is not None and other is not None and (one.gaps or other.gaps):
            found[at] = magnification(one, other, gaps)
    return found


def covered_by_pairs(supports: Mapping[int, PackedSupport], ends: Rows) -> Floats:
    """The share of the parameters that both of each pair cover; NaN where both cover all.

    Args:
        supports: the supports by row; the share of a pair of which one has none is NaN.
        ends: shape ``(e, 2)``.
    """
    found = np.full(len(ends), np.nan)
    if not any(support.gaps for support in supports.values()):
        return found
    for at, (a, b) in enumerate(ends.tolist()):
        one, other = supports.get(a), supports.get(b)
        if one is not None and other is not None:
            share = covered_share(one, other)
            found[at] = np.nan if share is None else share
    return found


def _lost(supports: Sequence[PackedSupport], a: Rows, b: Rows, gaps: Gaps) -> Rows:
    """How many indices of each pair lie where one of the two does not cover."""
    lost = np.zeros(a.size, np.int64)
    partial = np.array([bool(support.gaps) for support in supports], np.bool_)
    for at in np.flatnonzero(partial[a] | partial[b]).tolist():
        one, other = supports[a[at]], supports[b[at]]
        lost[at] = one.count_in(other.gaps.without(gaps)) + other.count_in(one.gaps.without(gaps))
    return lost


def _never() -> bool:
    return False


def _until(stop: Stop, items: Iterable[int]) -> Iterator[int]:
    """The items that there are before ``stop`` is true."""
    for item in items:
        yield item
        if stop():
            return


def _count_stacked(supports: list[PackedSupport], a: Rows, b: Rows, stop: Stop, gaps: Gaps) -> Rows:
    """Count the shared indices of each pair, all pairs with the same first end at a time."""
    shared = np.empty(a.size, np.int64)
    if not supports:
        return shared
    words = np.stack([support.array for support in supports])
    clear_words(words, 0, gaps)
    begins = np.flatnonzero(np.diff(a, prepend=-1))
    for begin, end in zip(begins, [*begins[1:], a.size], strict=True):
        if stop():
            return shared[:begin]
        shared[begin:end] = kernels().and_count_rows(words, words[a[begin]], b[begin:end])
    return shared
