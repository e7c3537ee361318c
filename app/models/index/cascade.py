"""The search cascade: each stage keeps fewer candidates and estimates S more sharply.

1. A scan of the signature bytes proposes candidates (:func:`scan_size`).
2. Coordinate sketches rank them: S within .006 where a sample holds 5,000 members.
3. The best candidates (:func:`comparison_size`) are compared exactly, by
:mod:`app.search.comparer`.

A candidate without a sketch is ranked by its bytes, S within .04 or so. More such candidates are
compared to make up for the error. The stages work on arrays; the only files they read are sketch
files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.sketching.sketch import Sketch

__all__ = [
    "Estimates",
    "Selection",
    "Sketches",
    "comparison_size",
    "estimate",
    "is_sharper",
    "least_matches",
    "outside",
    "scan_bounds",
    "scan_size",
    "select_candidates",
    "similarity_from_jaccards",
    "similarity_from_matches",
]

Ids = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]

_MIN_SCAN_SIZE = 200
_SCAN_SIZE_PER_ROOT = 8
_MODELS_PER_CANDIDATE, _LARGE_SCAN_SIZE = 64, 1 << 14
_MIN_SKETCHED_COMPARISONS, _MIN_UNSKETCHED_COMPARISONS = 40, 100
_MIN_FULLY_SKETCHED = 200
"""Candidates that are estimated by the whole sketch, at least."""
_BOUND_STANDARD_ERRORS = 5.0
_SCAN_STANDARD_ERRORS = 3.0
"""Standard errors of bounds for models that the scan did not propose. With five, chance alone would
leave most of a large space in doubt; three agree with the recall that :func:`scan_size` states.
"""
_BYTE_COLLISION_RATE = 1 / 256
"""The probability that the lowest bytes of two different minhashes are equal."""


def scan_size(models: int, k: int) -> int:
    """Return the number of models that the bytes propose: eight times the square root.

    Among more than 262,144 models it is one in 64, up to 16,384, if that is more.

    Measured with kin at S from .3 to .9 in the densest background, at S from .1 to .2. The scan
    then holds .997, .997 and .993 of the 10 nearest among 10^4, 10^5 and 10^6 models. Of the
    nearest at S = .3 alone it holds .97, .97 and .93. Twice as many find little more.
    """
    large = min(models // _MODELS_PER_CANDIDATE, _LARGE_SCAN_SIZE)
    return max(_MIN_SCAN_SIZE, 4 * k, _SCAN_SIZE_PER_ROOT * math.isqrt(models), large)


def comparison_size(k: int, *, exactly: bool, sketched: bool) -> int:
    """Return the number of best candidates to compare: estimates may misplace some of the nearest.

    Args:
        k: the number of models in the answer.
        exactly: whether they are compared by overlap; else by full signatures, which costs next to
            nothing.
        sketched: whether the candidates were ranked by sketches, not by bytes.
    """
    if not exactly:
        return max(_MIN_SCAN_SIZE, 4 * k)
    return (
        max(_MIN_SKETCHED_COMPARISONS, 2 * k)
        if sketched
        else max(_MIN_UNSKETCHED_COMPARISONS, 4 * k)
    )


def is_sharper(sketch: Sketch, num_perm: int) -> bool:
    """Whether a sketch estimates S more sharply than a signature of ``num_perm`` values.

    Both are trials with probability J: one for each value of the signature, one for each member of
    the sketch. A sample of all M parameters gives S exactly.
    """
    return sketch.num_parameters <= sketch.size or sketch.members > num_perm


class Sketches(Protocol):
    """The sketches of a space, or the part of them that is compared."""

    def counts(self, sketch: Sketch, ids: Ids, contents: Ids, *, coarse: bool = False) -> Ids:
        """Shared and own members, as ``SketchFile.counts`` gives them."""

    def members(self, sketch: Sketch, *, coarse: bool = False) -> int:
        """The number of members of a sketch that ``counts`` compares."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates of S for candidates, before any support is read.

    Attributes:
        ids: the ids of the models, ascending, shape ``(n,)``.
        similarity: the best available estimate, shape ``(n,)``.
        upper_bound: the estimate plus five standard errors, shape ``(n,)``; S hardly exceeds it.
        unsketched: whether the model may have a sketch that this machine lacks, shape ``(n,)``.
    """

    ids: Ids
    similarity: Similarities
    upper_bound: Similarities
    unsketched: npt.NDArray[np.bool_]


def similarity_from_matches(matches: npt.NDArray[np.signedinteger], num_perm: int) -> Similarities:
    """Estimate S from the number of equal signature bytes; one byte in 256 is equal by chance."""
    chance = _BYTE_COLLISION_RATE
    return similarity_from_jaccards(np.clip((matches / num_perm - chance) / (1 - chance), 0.0, 1.0))


def least_matches(similarity: float, num_perm: int) -> int:
    """The equal bytes of a model whose values give at least this S, at least."""
    return math.floor(similarity / (2 - similarity) * num_perm)


def scan_bounds(
    matches: npt.NDArray[np.signedinteger], contents: Ids, num_perm: int, *, by_values: bool
) -> Similarities:
    """Bound the S of models outside the proposal by their equal bytes; S hardly exceeds the bound.

    Args:
        matches: the number of equal bytes, shape ``(n,)``.
        contents: the ids of their contents, as in :func:`estimate`.
        num_perm: the number of values of a signature.
        by_values: whether to bound S by the values of signatures alone.
    """
    similarity = similarity_from_matches(matches, num_perm)
    probable = _upper_bound(similarity, num_perm, _SCAN_STANDARD_ERRORS)
    return np.where((contents == 0) | by_values, _value_bound(similarity), probable)


def outside(similarity: Similarities, share: float) -> Similarities:
    """S outside constants, from S of all indices, if both supports hold them alike.

    Args:
        similarity: S, or a bound of it; any shape.
        share: the share of the subject's indices that lies in constants, below 1.
    """
    return np.maximum(0.0, (similarity - share) / (1.0 - share)) if share else similarity


def similarity_from_jaccards(jaccards: npt.NDArray[np.float64]) -> Similarities:
    """S from J."""
    similarity: Similarities = 2 * jaccards / (1 + jaccards)
    return similarity


def estimate(
    ids: Ids,
    contents: Ids,
    similarity: Similarities,
    sketch: Sketch | None,
    file: Sketches,
    *,
    num_perm: int,
    count: int = _MIN_SKETCHED_COMPARISONS,
    exactly: bool = True,
    share: float = 0.0,
) -> Estimates:
    """Run the second stage: a quarter of the sample ranks many candidates, all of it the best.

    Args:
        ids: the ids of candidates, ascending, shape ``(n,)``.
        contents: the ids of their contents, 0 for a model without a sketch.
        similarity: the estimate by their signatures; 1 if there is none yet.
        sketch: the query's sketch; None if it has none, or its signature is sharper.
        file: the sketches of the space.
        num_perm: the number of values of a signature.
        count: the number of candidates that the third stage will compare.
        exactly: whether the third stage compares supports; else sketches, or signatures without a
            sketch.
        share: the share of the query's indices in constants, which signatures cannot leave out.
    """
    by_values = (contents == 0) | (not exactly and sketch is None)
    bound = _upper_bound(similarity, num_perm)
    if by_values.any():
        bound = np.where(by_values, _value_bound(similarity), bound)
    similarity, bound = outside(similarity, share), outside(bound, share)
    most_trials = np.inf if exactly else num_perm
    buffer = _EstimateBuffer(similarity.copy(), bound, np.zeros(ids.size, np.bool_), most_trials)
    if sketch is None:
        return Estimates(ids, buffer.similarity, buffer.upper_bound, buffer.known)
    best, sharpened = np.arange(ids.size), max(_MIN_FULLY_SKETCHED, 5 * count)
    if ids.size > sharpened:
        counts = file.counts(sketch, ids, contents, coarse=True)
        buffer.update(best, counts, file, sketch, coarse=True)
        best = np.flatnonzero(buffer.known)
    if best.size > sharpened:
        best = best[np.argpartition(-buffer.similarity[best], sharpened - 1)[:sharpened]]
    buffer.update(best, file.counts(sketch, ids[best], contents[best]), file, sketch)
    unsketched = ~buffer.known & (contents != 0)
    return Estimates(ids, buffer.similarity, buffer.upper_bound, unsketched)


@dataclass(frozen=True, slots=True)
class _EstimateBuffer:
    """Estimates under construction: each stage overwrites those of the stage before.

    Attributes:
        final_trials: a whole sketch with more trials is what the third stage answers with.
    """

    similarity: Similarities
    upper_bound: Similarities
    known: npt.NDArray[np.bool_]
    final_trials: float

    def update(
        self, at: Ids, counts: Ids, file: Sketches, sketch: Sketch, *, coarse: bool = False
    ) -> None:
        """Estimate S of the candidates ``at`` from the members they share with the query."""
        seen = counts[:, 0] >= 0
        places, (shared, theirs) = at[seen], counts[seen].T
        ours = file.members(sketch, coarse=coarse)
        similarity = 2 * shared / np.maximum(1, ours + theirs)
        trials = ours + theirs - shared
        final = not coarse and (trials > self.final_trials)
        if sketch.num_parameters <= sketch.size:
            final = np.ones(trials.size, np.bool_)
        self.similarity[places] = similarity
        self.upper_bound[places] = np.where(final, similarity, _upper_bound(similarity, trials))
        self.known[at] = seen


def _value_bound(similarity: Similarities) -> Similarities:
    """The largest S that full signatures can give where their bytes gave ``similarity``.

    Values are equal at most where their lowest bytes are.
    """
    jaccard = similarity / (2 - similarity)
    return similarity_from_jaccards(jaccard + _BYTE_COLLISION_RATE * (1 - jaccard))


def _upper_bound(
    similarity: Similarities, trials: int | Ids, errors: float = _BOUND_STANDARD_ERRORS
) -> Similarities:
    """A bound that S hardly exceeds, from an estimate over ``trials`` with probability J."""
    jaccard = (similarity / (2 - similarity) * trials + 0.5) / (trials + 1)
    error = 2 / (1 + jaccard) ** 2 * np.sqrt(jaccard * (1 - jaccard) / (trials + 1))
    bound: Similarities = similarity + errors * error
    return bound


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidates to compare.

    Attributes:
        ids: the ids of the models, best estimate first, shape ``(n,)``.
        upper_bound: upper bounds of their S, shape ``(n,)``; a model with too low a bound need not
            be compared.
        tied: models whose equal estimates straddle the cut; the caller compares some of them.
        tied_places: the number of tied models to compare; a caller that knows their names chooses
            by name.
        others: the candidates that are not in ``ids``, with the tied models.
        others_bound: upper bounds of the S of ``others``.
    """

    ids: Ids
    upper_bound: Similarities
    tied: Ids
    tied_places: int
    others: Ids
    others_bound: Similarities


def select_candidates(estimates: Estimates, k: int, count: int) -> Selection:
    """Choose the candidates for the third stage, the comparison.

    Args:
        k: the number of models in the answer.
        count: the number of candidates to take by their estimates, at least k.
    """
    order = _best_first(estimates.similarity, count)
    begin, end = _tied(estimates.similarity[order], k, count)
    waiting = estimates.unsketched.copy()
    waiting[order[:end]] = False
    unsketched = np.flatnonzero(waiting)
    unsketched = unsketched[np.argsort(-estimates.similarity[unsketched], kind="stable")]
    unsketched = unsketched[: max(_MIN_UNSKETCHED_COMPARISONS, 4 * k)]
    sure = np.concatenate([order[:begin], unsketched])
    tied = estimates.ids[order[begin:end]]
    left = np.ones(estimates.ids.size, np.bool_)
    left[sure] = False
    others = np.flatnonzero(left)
    return Selection(
        ids=estimates.ids[sure],
        upper_bound=estimates.upper_bound[sure],
        tied=tied,
        tied_places=count - begin if tied.size else 0,
        others=estimates.ids[others],
        others_bound=estimates.upper_bound[others],
    )


def _best_first(similarity: Similarities, count: int) -> Ids:
    """The places of the ``count`` largest and the next one, with all that equal it, in order.

    To sort all of ten thousand takes as long as to sum up their sketches.
    """
    descending = -similarity
    places = np.arange(similarity.size)
    if similarity.size > count:
        places = np.flatnonzero(descending <= np.partition(descending, count)[count])
    return places[np.argsort(descending[places], kind="stable")]


def _tied(descending: Similarities, k: int, count: int) -> tuple[int, int]:
    """The slice of equal estimates that begins within the first k and ends after ``count``."""
    if descending.size <= count or descending[k - 1] != descending[count]:
        return count, count
    last = -descending[count]
    begin, end = (int(np.searchsorted(-descending, last, side)) for side in ("left", "right"))
    return begin, end
