"""Donors by what they hold of the target: what is rare of it, or most of it together.

Both look at which of the target's indices each of the nearest models holds, and so leave out the
models that have only a signature.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from app.catalog.reader import ModelReader, Subject
from app.catalog.repositories.candidates import Candidate, candidates_by_id
from app.errors import SupportRequired, Unavailable
from app.kinship.donors.request import Choice, DonorRequest, Found, Target
from app.spaces.records import SpaceRecord
from modelkin.core import estimators
from modelkin.core.kinship.cover import greedy_cover
from modelkin.core.kinship.membership import TargetIndices
from modelkin.core.packed import PackedSupport, shared_packed
from modelkin.core.similarity.rarity import index_weights, rarities
from modelkin.errors import InvalidSupport
from modelkin.types.kinship import DonorExplanation
from modelkin.types.search import Neighbor

__all__ = ["CoverageSearch"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Words = npt.NDArray[np.uint64]

_COUNTED = 256
"""Supports at most by which it is told how rare an index is: shares are right within .03."""
_RANKED_BY_RARITY, _COVERING = 64, 256
"""Of the nearest models so many, and 4 k at least, may be donors by ``idf`` and by ``cover``:
weighing by rarity moves the ranking by a few places, and who covers what is left may be far.
"""
_MOST = 2000


class CoverageSearch:
    """The methods ``idf`` and ``cover``, over the supports that are stored."""

    def __init__(self, library: ModelReader) -> None:
        self._library = library

    def idf(self, target: Target, ask: DonorRequest) -> Found:
        """Overlap weighed by how rare an index is in the space."""
        probe = self._probe(target, ask)
        pool = self._pool(target, ask, probe, _RANKED_BY_RARITY)
        if not pool.neighbors:
            return Found((), pool.considered, pool.left_out, pool.whole)
        weights = index_weights(self._holders(target, probe), probe.size)
        choices = [
            Choice(
                neighbor,
                rarity.share,
                DonorExplanation(
                    "", neighbor.shared_indices, rarity=rarity.share, rarity_gain=rarity.gain
                ),
            )
            for neighbor, rarity in zip(pool.neighbors, rarities(pool.rows, weights), strict=True)
        ]
        choices.sort(key=lambda choice: choice.rank)
        return Found(choices[: ask.k], pool.considered, pool.left_out, pool.whole)

    def cover(self, target: Target, ask: DonorRequest) -> Found:
        """The fewest donors that together hold the target's support, one after another."""
        probe = self._probe(target, ask)
        pool = self._pool(target, ask, probe, _COVERING)
        steps = greedy_cover(pool.rows, probe.size, ask.k) if pool.neighbors else []
        choices = [
            Choice(
                pool.neighbors[step.row],
                step.explained,
                DonorExplanation(
                    "",
                    pool.neighbors[step.row].shared_indices,
                    explained=step.explained,
                    cumulative=step.cumulative,
                ),
            )
            for step in steps
        ]
        return Found(choices, pool.considered, pool.left_out, pool.whole)

    def _probe(self, target: Target, ask: DonorRequest) -> TargetIndices:
        """The target's indices.

        Raises:
            SupportRequired: it has only a signature.
            Unavailable: its support is damaged.
        """
        packed = target.subject.packed
        if packed is None:
            raise SupportRequired(
                f"method={ask.method} asks which indices of the target others hold, and there is "
                f"only a signature of it: send its support, or ask for method=similarity",
                field="target",
            )
        try:
            return TargetIndices.of(packed)
        except InvalidSupport as error:
            raise Unavailable(f"the stored support of the target is damaged: {error}") from error

    def _pool(self, target: Target, ask: DonorRequest, probe: TargetIndices, least: int) -> _Pool:
        """The nearest models with what they hold of the target, the nearest first."""
        count = min(_MOST, max(least, 4 * ask.k)) + len(ask.exclude)
        ids, _ = target.around.nearest(count, target.among)
        near = candidates_by_id(target.session, target.space, ids.tolist())
        wanted = [candidate for candidate in near if candidate.name not in ask.exclude]
        left_out = sum(candidate.blob_key is None for candidate in wanted)
        seen, whole = self._each(
            target.space, wanted, lambda name, packed: _seen(name, target.subject, packed, probe)
        )
        kept = [
            (neighbor, row)
            for neighbor, row in seen
            if neighbor.similarity > 0 and neighbor.similarity >= ask.min_similarity
        ]
        kept.sort(key=lambda pair: (-pair[0].similarity, pair[0].model))
        return _Pool(
            neighbors=[neighbor for neighbor, _ in kept],
            rows=_stacked([row for _, row in kept], probe),
            considered=len(seen),
            left_out=left_out,
            whole=whole,
        )

    def _holders(self, target: Target, probe: TargetIndices) -> Words:
        """What a sample of the whole space holds of the target."""
        ids = target.around.sample(_COUNTED)
        sampled = candidates_by_id(target.session, target.space, ids.tolist())
        rows, _ = self._each(target.space, sampled, lambda _, packed: probe.held_by(packed))
        return _stacked(rows, probe)

    def _each(
        self,
        space: SpaceRecord,
        candidates: Iterable[Candidate],
        look: Callable[[str, PackedSupport], T],
    ) -> tuple[list[T], bool]:
        """A look at each support that there is, and whether all of them could be read.

        One after another: a support that is mapped holds a descriptor.
        """
        found, whole = [], True
        for candidate in candidates:
            if candidate.blob_key is None:
                continue
            try:
                packed = self._library.packed(space, candidate)
            except Unavailable as error:  # one damaged file spoils no answer about the others
                log.error("%s", error)
                whole = False
                continue
            if packed is not None:
                found.append(look(candidate.name, packed))
        return found, whole


@dataclass(frozen=True, slots=True)
class _Pool:
    """Models that may be donors, the nearest first, and what each holds of the target."""

    neighbors: list[Neighbor]
    rows: Words
    considered: int
    left_out: int
    whole: bool


def _seen(
    name: str, target: Subject, packed: PackedSupport, probe: TargetIndices
) -> tuple[Neighbor, Words]:
    """A model beside the target, exactly, and what it holds of the indices asked for."""
    assert target.packed is not None
    row = probe.held_by(packed)
    shared = (
        int(np.bitwise_count(row).sum()) if probe.whole else shared_packed(target.packed, packed)
    )
    similarity = estimators.similarity_of(shared, target.packed.k, packed.k)
    jaccard = estimators.jaccard_of(similarity)
    return Neighbor(name, similarity, jaccard, "exact", 0.0, shared), row


def _stacked(rows: list[Words], probe: TargetIndices) -> Words:
    return np.stack(rows) if rows else np.empty((0, -(-probe.size // 64)), np.uint64)
