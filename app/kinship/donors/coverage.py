"""Donors by the target's indices that they hold: by rare indices, or by most of them together.

Both methods compare the indices of the target with those of the nearest models. So they leave out
models that have only a signature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from app.infra.errors import SupportRequired, Unavailable
from app.kinship.donors.request import DonorRanking, DonorRequest, RankedDonor, Target
from app.kinship.donors.unrelated import ChanceFilter
from app.models.catalog.reader import ModelReader
from app.models.catalog.repositories.candidates import Candidate, candidates_by_id
from modelkin.core import estimators
from modelkin.core.kinship.cover import greedy_cover
from modelkin.core.kinship.membership import TargetIndices
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.outside import covered_share, overlap_outside
from modelkin.core.similarity.rarity import index_weights, rarities
from modelkin.errors import InvalidSupport
from modelkin.types.kinship import DonorExplanation
from modelkin.types.search import Neighbor

__all__ = ["CoverageSearch"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Words = npt.NDArray[np.uint64]

_RARITY_SAMPLE_SIZE = 256
"""Supports that estimate how rare an index is, at most: shares are right within .03."""
_MIN_IDF_POOL = 64
"""The least pool of nearest models for ``idf``, at least 4 k: rarity moves a model a few places."""
_MIN_COVER_POOL = 256
"""The least pool of nearest models for ``cover``: the model with the missing indices may be far."""
_MAX_POOL = 2000


class CoverageSearch:
    """The methods ``idf`` and ``cover``, over the supports that are stored."""

    def __init__(self, reader: ModelReader, chance: ChanceFilter) -> None:
        self._reader = reader
        self._chance = chance

    def idf(self, target: Target, request: DonorRequest) -> DonorRanking:
        """Rank by the overlap, weighted by how rare each index is in the space."""
        indices = self._target_indices(target, request)
        pool = self._pool(target, request, indices, _MIN_IDF_POOL)
        if not pool.neighbors:
            return DonorRanking(
                (), pool.considered, pool.left_out, pool.whole, target.deadline.passed()
            )
        weights = index_weights(self._holders(target, indices), indices.size)
        choices = [
            RankedDonor(
                neighbor,
                rarity.share,
                DonorExplanation(
                    "", neighbor.shared_indices, rarity=rarity.share, rarity_gain=rarity.gain
                ),
            )
            for neighbor, rarity in zip(pool.neighbors, rarities(pool.rows, weights), strict=True)
        ]
        choices.sort(key=lambda choice: choice.rank)
        late = target.deadline.passed()
        return DonorRanking(choices, pool.considered, pool.left_out, pool.whole, late)

    def cover(self, target: Target, request: DonorRequest) -> DonorRanking:
        """The fewest donors that together hold the target's support, one after another.

        Unrelated models hold a share of any support, by chance. So they come after all others.
        """
        indices = self._target_indices(target, request)
        pool = self._pool(target, request, indices, _MIN_COVER_POOL)
        judged = self._chance.relatedness(target, pool.neighbors)
        neighbors = [each.neighbor for each in judged]
        unrelated = np.array([each.unrelated for each in judged], np.bool_)
        last = unrelated & (not request.include_unrelated)
        groups = np.flatnonzero(~last), np.flatnonzero(last)
        choices = [
            RankedDonor(
                neighbors[step.row],
                step.explained,
                DonorExplanation(
                    "",
                    neighbors[step.row].shared_indices,
                    explained=step.explained,
                    cumulative=step.cumulative,
                ),
            )
            for step in greedy_cover(
                pool.rows, indices.size, request.k, groups, target.deadline.passed
            )
        ]
        late = target.deadline.passed()
        return DonorRanking(choices, pool.considered, pool.left_out, pool.whole, late)

    def _target_indices(self, target: Target, request: DonorRequest) -> TargetIndices:
        """Return the target's indices.

        Raises:
            SupportNeeded: the target has only a signature.
            Unavailable: the target's support is damaged.
        """
        packed = target.subject.packed
        if packed is None:
            raise SupportRequired(
                f"method={request.method} compares the target's indices, and there is only a "
                f"signature of it: send its support, or use method=similarity",
                field="target",
            )
        try:
            return TargetIndices.of(packed, gaps=target.neighborhood.constants.gaps)
        except InvalidSupport as error:
            raise Unavailable(f"the stored support of the target is damaged: {error}") from error

    def _pool(
        self, target: Target, request: DonorRequest, indices: TargetIndices, least: int
    ) -> _Pool:
        """The nearest models, nearest first, with the target's indices that each holds."""
        count = min(_MAX_POOL, max(least, 4 * request.k)) + len(request.exclude)
        ids, _ = target.neighborhood.nearest(count, target.among)
        near = candidates_by_id(target.session, target.space, ids.tolist())
        wanted = [candidate for candidate in near if candidate.name not in request.exclude]
        left_out = sum(candidate.blob_key is None for candidate in wanted)
        compared, whole = self._visit_supports(
            target,
            wanted,
            lambda name, packed: _compare_exactly(name, target, packed, indices),
        )
        kept = [
            (neighbor, row)
            for neighbor, row in compared
            if neighbor.similarity > 0 and neighbor.similarity >= request.min_similarity
        ]
        kept.sort(key=lambda pair: (-pair[0].similarity, pair[0].model))
        return _Pool(
            neighbors=[neighbor for neighbor, _ in kept],
            rows=_stack([row for _, row in kept], indices),
            considered=len(compared),
            left_out=left_out,
            whole=whole,
        )

    def _holders(self, target: Target, indices: TargetIndices) -> Words:
        """The target's indices that each model of a sample of the space holds."""
        ids = target.neighborhood.sample(_RARITY_SAMPLE_SIZE)
        sampled = candidates_by_id(target.session, target.space, ids.tolist())
        rows, _ = self._visit_supports(
            target, sampled, lambda _, packed: indices.membership_bits(packed)
        )
        return _stack(rows, indices)

    def _visit_supports(
        self,
        target: Target,
        candidates: Sequence[Candidate],
        visit: Callable[[str, PackedSupport], T],
    ) -> tuple[list[T], bool]:
        """Apply ``visit`` to each support; return the results, and whether all could be read.

        Supports that there is no time for are left out, and no view of the database is held. Only
        one support is open at a time, because each takes its size in memory.
        """
        found, whole = [], True
        target.session.release()
        self._reader.fetch(candidates, target.deadline.left())
        for candidate in target.deadline.until(candidates):
            if candidate.blob_key is None:
                continue
            try:
                packed = self._reader.find_packed(target.space, candidate)
            except Unavailable as error:  # one damaged file must not fail the whole answer
                log.error("%s", error)
                whole = False
                continue
            if packed is not None:
                found.append(visit(candidate.name, packed))
        return found, whole


@dataclass(frozen=True, slots=True)
class _Pool:
    """Candidate donors, nearest first, and the target's indices that each holds."""

    neighbors: list[Neighbor]
    rows: Words
    considered: int
    left_out: int
    whole: bool


def _compare_exactly(
    name: str, target: Target, packed: PackedSupport, indices: TargetIndices
) -> tuple[Neighbor, Words]:
    """A model compared with the target, exactly, and the target's indices that it holds."""
    ours, gaps = target.subject.packed, target.neighborhood.constants.gaps
    assert ours is not None
    row = indices.membership_bits(packed)
    found = overlap_outside(ours, packed, gaps)
    jaccard, covered = estimators.jaccard_of(found.similarity), covered_share(ours, packed)
    neighbor = Neighbor(
        name, found.similarity, jaccard, "exact", 0.0, found.shared, covered=covered
    )
    return neighbor, row


def _stack(rows: list[Words], indices: TargetIndices) -> Words:
    return np.stack(rows) if rows else np.empty((0, -(-indices.size // 64)), np.uint64)
