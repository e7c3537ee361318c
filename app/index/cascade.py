"""What a query goes on with: stage by stage fewer candidates, each stage with a sharper estimate.

1. The bytes of all signatures propose some (:func:`scanned`).
2. Their coordinate sketches rank those, S within .006 where a sample holds 5,000 members.
3. The foremost (:func:`compared`) are compared exactly, and that is not done here.

What has no sketch is ranked by its bytes, S within .04 or so, and therefore compared further down.
Arrays in, places and estimates out: no database, no files but the sketches' own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.index.sketch_files import SketchFile
from modelkin.core.sketching.sketch import Sketch

__all__ = [
    "Chosen",
    "Estimates",
    "compared",
    "estimated",
    "foremost",
    "from_bytes",
    "from_jaccards",
    "scanned",
    "tells",
]

Ids = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]

_SCANNED = 200
_SCANNED_PER_ROOT = 8
_SHARP, _BLUNT = 40, 100
_SHARPENED = 200
_ERRORS = 5.0


def scanned(models: int, k: int) -> int:
    """How many of so many models the bytes propose.

    Eight times the root: of the 10 nearest, at S from .3 to .9 of backgrounds whose S is .1 to .2,
    so many of 10^4, 10^5 and 10^6 models hold .997, .997 and .992, measured in the densest; of
    those at S = .3 alone .97, .97 and .92. Twice as many find little more.
    """
    return max(_SCANNED, 4 * k, _SCANNED_PER_ROOT * math.isqrt(models))


def compared(k: int, *, exactly: bool, sketched: bool) -> int:
    """How many of the foremost go on to be compared: beyond the k best others may belong there.

    Args:
        k: how many are to be answered.
        exactly: by overlap; else by all values of their signatures, which costs next to nothing.
        sketched: what is foremost was told by sketches, and not by bytes.
    """
    if not exactly:
        return max(_SCANNED, 4 * k)
    return max(_SHARP, 2 * k) if sketched else max(_BLUNT, 4 * k)


def tells(sketch: Sketch, num_perm: int) -> bool:
    """Whether a sketch tells more than a signature of so many values.

    Both are so many trials of a chance of J: the values of the one, the members of the other. Where
    the sample is all of M it tells all there is.
    """
    return sketch.num_parameters <= sketch.size or sketch.members > num_perm


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is known of candidates before any support is read.

    Attributes:
        ids: of the models, ascending, shape ``(n,)``.
        similarity: the best estimate there is, likewise.
        most: what S hardly exceeds: five standard errors more, likewise.
        blunt: whether there may be a sketch that is not known here, likewise.
    """

    ids: Ids
    similarity: Similarities
    most: Similarities
    blunt: npt.NDArray[np.bool_]


def from_bytes(matches: npt.NDArray[np.int32], num_perm: int) -> Similarities:
    """S from how many bytes of signatures are equal, of which one in 256 is so by chance."""
    chance = 1 / 256
    return from_jaccards(np.clip((matches / num_perm - chance) / (1 - chance), 0.0, 1.0))


def from_jaccards(jaccards: npt.NDArray[np.float64]) -> Similarities:
    """S from J."""
    similarity: Similarities = 2 * jaccards / (1 + jaccards)
    return similarity


def estimated(
    ids: Ids,
    contents: Ids,
    similarity: Similarities,
    sketch: Sketch | None,
    file: SketchFile,
    *,
    num_perm: int,
    count: int = _SHARP,
) -> Estimates:
    """The second stage: by a quarter of the sample where there are many, the best by all of it.

    Args:
        ids: of candidates, ascending, shape ``(n,)``.
        contents: the ids of their contents, 0 where there is no sketch.
        similarity: as their signatures estimate it; 1 where nothing is known of it yet.
        sketch: the query's; None where it has none, or one that tells less than its signature.
        file: the sketches of the space.
        num_perm: values of a signature.
        count: how many will be compared further.
    """
    told = _Told(similarity.copy(), _most(similarity, num_perm), np.zeros(ids.size, np.bool_))
    if sketch is None:
        return Estimates(ids, told.similarity, told.most, told.known)
    best, sharpened = np.arange(ids.size), max(_SHARPENED, 5 * count)
    if ids.size > sharpened:
        told.see(best, file.counts(sketch, ids, contents, roughly=True), file, sketch, roughly=True)
        best = np.flatnonzero(told.known)
    if best.size > sharpened:
        best = best[np.argpartition(-told.similarity[best], sharpened - 1)[:sharpened]]
    told.see(best, file.counts(sketch, ids[best], contents[best]), file, sketch)
    return Estimates(ids, told.similarity, told.most, ~told.known & (contents != 0))


@dataclass(frozen=True, slots=True)
class _Told:
    """Estimates on their way: each stage writes over those of the one before."""

    similarity: Similarities
    most: Similarities
    known: npt.NDArray[np.bool_]

    def see(
        self, at: Ids, counts: Ids, file: SketchFile, sketch: Sketch, *, roughly: bool = False
    ) -> None:
        """Take in what the sketches of the candidates ``at`` share with the query's."""
        seen = counts[:, 0] >= 0
        places, (shared, theirs) = at[seen], counts[seen].T
        ours = file.members(sketch, roughly=roughly)
        similarity = 2 * shared / np.maximum(1, ours + theirs)
        whole = sketch.num_parameters <= sketch.size
        self.similarity[places] = similarity
        self.most[places] = similarity if whole else _most(similarity, ours + theirs - shared)
        self.known[at] = seen


def _most(similarity: Similarities, trials: int | Ids) -> Similarities:
    """What S hardly exceeds, where it was estimated from so many trials of a chance of J."""
    jaccard = (similarity / (2 - similarity) * trials + 0.5) / (trials + 1)
    error = 2 / (1 + jaccard) ** 2 * np.sqrt(jaccard * (1 - jaccard) / (trials + 1))
    most: Similarities = similarity + _ERRORS * error
    return most


@dataclass(frozen=True, slots=True)
class Chosen:
    """Who is compared.

    Attributes:
        ids: these, the foremost first, shape ``(n,)``.
        most: what their S hardly exceeds: who falls short of others need not be compared.
        tied: and some of these, whose estimates are equal, and who could all be among the answered.
        places: how many: whoever knows their names may choose by them.
    """

    ids: Ids
    most: Similarities
    tied: Ids
    places: int


def foremost(estimates: Estimates, k: int, count: int) -> Chosen:
    """Which candidates are compared exactly, or as well as their signatures allow.

    Args:
        estimates: of all candidates.
        k: how many are to be answered.
        count: how many to take by their estimates, at least k.
    """
    order = np.argsort(-estimates.similarity, kind="stable")
    first, rest = order[:count], order[count:]
    begin, end = _tied(estimates.similarity[order], k, count)
    blunt = rest[max(0, end - count) :]
    blunt = blunt[estimates.blunt[blunt]][: max(_BLUNT, 4 * k)]
    sure = np.concatenate([first[:begin], blunt])
    tied = estimates.ids[order[begin:end]]
    return Chosen(
        estimates.ids[sure], estimates.most[sure], tied, count - begin if tied.size else 0
    )


def _tied(descending: Similarities, k: int, count: int) -> tuple[int, int]:
    """The group that reaches from within the first k to behind the first ``count``, if one does."""
    if descending.size <= count or descending[k - 1] != descending[count]:
        return count, count
    last = -descending[count]
    begin, end = (int(np.searchsorted(-descending, last, side)) for side in ("left", "right"))
    return begin, end
