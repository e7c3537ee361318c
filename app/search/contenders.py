"""Contenders: models that were not compared, but may belong to the k nearest.

The cascade compares the models with the best estimates. Where a whole family is about equally near,
as in a space of fine-tunes of one base, the estimates cannot order it: then many other models have
upper bounds above the k-th S found. If these are few enough the service compares them all, so that
the answer is that of ``exact``; else the answer counts them and bounds what they could change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from app.models.index.cascade import Selection, outside, scan_bounds
from app.models.index.scan import Scan, ScanCandidates

__all__ = ["MAX_BYTES", "MAX_MODELS", "Contenders", "Scanned", "find_contenders"]

Ids = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]

MAX_MODELS = 500
"""Contenders that are compared, at most: as many as ``auto`` compares without a cascade."""
MAX_BYTES = 512 << 20
"""Bytes that comparing them reads, at most: some 50 ms."""
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Scanned:
    """A scan and the models that it proposed.

    Attributes:
        by_values: whether candidates are compared by the values of signatures.
        share: the share of the subject's indices in constants, which are left out.
    """

    scan: Scan
    proposed: ScanCandidates
    by_values: bool
    share: float = 0.0

    def beyond(self, similarity: float) -> tuple[Ids, Similarities]:
        """The models outside the proposal whose S may be above ``similarity``, with bounds."""
        h = self.scan.num_perm
        most = outside(_largest_bounds(h, self.by_values), self.share)
        least = np.searchsorted(most, similarity, side="right")
        others = self.scan.others(self.proposed, int(least))
        bounds = scan_bounds(others.matches, others.contents, h, by_values=self.by_values)
        bounds = outside(bounds, self.share)
        near = bounds > similarity
        return others.ids[near], bounds[near]


@dataclass(frozen=True, slots=True)
class Contenders:
    """The models whose S may be above the S at rank k.

    Attributes:
        ids: the ids of the models, shape ``(n,)``.
        slack: the distance of their largest bound above the S at rank k; 0 without any.
    """

    ids: Ids
    slack: float

    def affordable(self, bytes_each: int) -> bool:
        """Whether comparing them all is within the budget."""
        return self.ids.size <= MAX_MODELS and self.ids.size * bytes_each <= MAX_BYTES


def find_contenders(
    chosen: Selection, done: Ids, scanned: Scanned | None, similarity: float
) -> Contenders:
    """The models that were not compared and may have more than a similarity.

    Args:
        chosen: the selection, whose candidates were compared unless their bounds were too low.
        done: the ids of its tied candidates that were compared, and of the subject.
        scanned: the scan that proposed them; None if nothing else was in question.
        similarity: the S at rank k.
    """
    above = chosen.others_bound > similarity + _ROUNDING
    ids, bounds = chosen.others[above], chosen.others_bound[above]
    if scanned is not None:
        more, more_bounds = scanned.beyond(similarity + _ROUNDING)
        ids, bounds = np.concatenate([ids, more]), np.concatenate([bounds, more_bounds])
    left = ~np.isin(ids, done)
    ids, bounds = ids[left], bounds[left]
    slack = min(1.0, float(bounds.max())) - similarity if bounds.size else 0.0
    return Contenders(ids, slack)


@lru_cache(maxsize=16)
def _largest_bounds(num_perm: int, by_values: bool) -> Similarities:
    """The largest bound of a model by how many of its bytes are equal, ascending."""
    matches = np.arange(num_perm + 1, dtype=np.int32)
    bounds = scan_bounds(matches, np.ones(matches.size, np.int64), num_perm, by_values=by_values)
    return np.maximum.accumulate(bounds)
