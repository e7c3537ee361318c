"""Search: the neighbours of a model, and the donors among them.

Candidates come from everything (``exact``), from the scan of signature bytes (``scan``) or from the
LSH buckets (``lsh``), in whose place a scan answers where they cannot. What is answered is always
compared again, by exact overlap where both sides have a support, by all full-width minhashes where
one has not. An item says which of the two it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from app.index.registry import IndexRegistry
from app.index.space_index import Snapshot
from app.services.buckets import BucketService
from app.services.library import Library, Subject
from app.stores.ports import ModelRecord, SpaceRecord
from app.stores.sql import models
from app.stores.sql.database import Reader
from modelkin.core import donors, overlap
from modelkin.core import packed as packing
from modelkin.core.banding import recall_at
from modelkin.core.packed import PackedSupport
from modelkin.core.signature import jaccard_estimates
from modelkin.errors import InvalidParameter, Unavailable
from modelkin.types import Donor, Donors, Neighbor, Neighbors

__all__ = ["METHODS", "SearchService"]

log = logging.getLogger(__name__)

METHODS = ("auto", "exact", "scan", "lsh")
MAX_K = 1000

_EXACT_WORK = 64 << 20
"""``auto`` compares everything exactly while that reads at most so many bytes: some 10 ms."""
_SCANNED = 200
"""A scan looks again, at full width, at no fewer models than this, and at no fewer than 4 k."""
_RECALL = 0.99
"""``auto`` leaves finding to the buckets where these find so large a share of the nearest asked."""
_REFINED = 40
"""And overlaps exactly no fewer than this, and no fewer than 2 k: S of a signature is off by
about .026, so beyond the k best by estimate others may belong among them.
"""


@dataclass(frozen=True, slots=True)
class _Candidate:
    model: ModelRecord
    jaccard: float
    """As estimated from the full-width signatures."""


@dataclass(frozen=True, slots=True)
class _Query:
    """Whose neighbours are sought, where, how many and how near."""

    session: Reader
    space: SpaceRecord
    subject: Subject
    k: int
    min_similarity: float


class SearchService:
    """The use cases that rank models by how much they overlap with one."""

    def __init__(self, library: Library, indexes: IndexRegistry, buckets: BucketService) -> None:
        self._library = library
        self._indexes = indexes
        self._buckets = buckets

    def neighbors(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        *,
        k: int,
        min_similarity: float = 0.0,
        method: str = "auto",
        tags: Sequence[str] = (),
    ) -> Neighbors:
        """The ``k`` models that overlap most with ``subject``, best first, itself left out.

        Args:
            k: 1 to 1,000.
            min_similarity: S below which nobody is a neighbour, 0 to 1.
            method: one of :data:`METHODS`.
            tags: only models that carry all of these.

        Raises:
            InvalidParameter: one of these is out of its range.
        """
        _check(k, min_similarity, method)
        query = _Query(session, space, subject, k, min_similarity)
        among = _ids(models.ids_with_tags(session, space, tags)) if tags else None
        chosen = self._choose(query, among) if method == "auto" else method
        if chosen != "lsh":
            return self._search(query, chosen, among)
        mates = self._buckets.mates(session, space, subject.values)
        if mates is None:
            return replace(self._search(query, "scan", among), degraded=True)
        if mates.truncated and method == "auto":
            return self._search(query, "scan", among)
        near = mates.ids if among is None else np.intersect1d(mates.ids, among)
        found = self._search(query, "lsh", near)
        if mates.truncated and len(found) < k:
            return self._search(query, "scan", among)
        return replace(found, recall=recall_at(min_similarity, space.banding))

    def donors(
        self,
        session: Reader,
        space: SpaceRecord,
        target: Subject,
        *,
        k: int,
        tags: Sequence[str] = (),
    ) -> Donors:
        """The ``k`` best donors for ``target``, weighted by their similarity to it.

        Source: section 5 of the paper, ``u_t(j) ~ S(t, j)``. A model that shares nothing with the
        target is no donor, so there may be fewer than ``k``.
        """
        near = self.neighbors(session, space, target, k=k, tags=tags)
        useful = [item for item in near if item.similarity > 0]
        weights = donors.weights(np.array([item.similarity for item in useful]))
        return Donors(
            items=tuple(
                Donor(
                    item.model, item.similarity, float(weight), item.estimate, item.standard_error
                )
                for item, weight in zip(useful, weights, strict=True)
            ),
            target=near.model,
            method="similarity",
        )

    def _choose(self, query: _Query, among: npt.NDArray[np.int64] | None) -> str:
        """The method for ``auto``."""
        if self._is_small(query.space, among):
            return "exact"
        served = recall_at(query.min_similarity, query.space.banding) >= _RECALL
        return "lsh" if served else "scan"

    def _search(self, query: _Query, method: str, among: npt.NDArray[np.int64] | None) -> Neighbors:
        """What a method finds among some models, ascending ids, or among all."""
        session, space, subject = query.session, query.space, query.subject
        wanted, refined = max(_SCANNED, 4 * query.k), max(_REFINED, 2 * query.k)
        if method == "exact":
            wanted = refined = max(1, space.models)
        if method == "lsh" and among is not None and among.size <= wanted:
            ids = among
        else:
            snapshot = self._snapshot(session, space)
            ids = snapshot.candidates(subject.values, wanted, among=among)
        candidates = self._estimate(session, space, subject, ids)
        found, whole = self._refine(space, subject, candidates, refined)
        items = [item for item in found if item.similarity >= query.min_similarity]
        items.sort(key=lambda item: (-item.similarity, item.model))
        return Neighbors(
            items=tuple(items[: query.k]),
            model=None if subject.model is None else subject.model.name,
            method=method,
            candidates=len(candidates),
            degraded=not whole,
        )

    def _snapshot(self, session: Reader, space: SpaceRecord) -> Snapshot:
        index = self._indexes.of(space.id, space.signature)
        return index.at(space.version, _SpaceFeed(session, space.id))

    def _is_small(
        self,
        space: SpaceRecord,
        among: npt.NDArray[np.int64] | None,
    ) -> bool:
        """Whether comparing everything exactly is cheap: a support takes at most M / 8 bytes."""
        count = space.models if among is None else among.size
        return count <= _SCANNED or count * (space.num_parameters // 8) <= _EXACT_WORK

    def _estimate(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        ids: npt.NDArray[np.int64],
    ) -> list[_Candidate]:
        """The candidates with J estimated from all minhashes, best first, ties by name."""
        own = None if subject.model is None else subject.model.id
        records = models.models_by_id(session, (int(i) for i in ids if i != own))
        signatures = self._library.values(session, space, records)
        if not signatures:
            return []
        estimates = jaccard_estimates(np.stack(list(signatures.values())), subject.values)
        candidates = [
            _Candidate(records[model_id], float(jaccard))
            for model_id, jaccard in zip(signatures, estimates, strict=True)
        ]
        candidates.sort(key=lambda c: (-c.jaccard, c.model.name))
        return candidates

    def _refine(
        self,
        space: SpaceRecord,
        subject: Subject,
        candidates: Sequence[_Candidate],
        count: int,
    ) -> tuple[list[Neighbor], bool]:
        """The best ``count`` candidates, overlapped exactly where both sides have a support.

        Also answers whether every support could be read; an estimate stands in for one that
        could not.
        """
        whole = True
        items = []
        for candidate in candidates[:count]:
            packed = None
            if subject.packed is not None:
                try:
                    packed = self._library.packed(space, candidate.model)
                except Unavailable as error:  # one damaged file spoils no answer about the others
                    log.error("%s", error)
                    whole = False
            if subject.packed is None or packed is None:
                items.append(_estimated(candidate, space.signature.num_perm))
            else:
                items.append(_exact(candidate, subject.packed, packed))
        return items, whole


@dataclass(frozen=True, slots=True)
class _SpaceFeed:
    """What the index of a space follows: the database as this transaction sees it."""

    session: Reader
    space_id: int

    def changed(self, since: int) -> Iterable[tuple[int, bytes]]:
        return models.changed_since(self.session, self.space_id, since)

    def removed(self, since: int) -> Iterable[int]:
        return models.removed_since(self.session, self.space_id, since)


def _exact(candidate: _Candidate, ours: PackedSupport, theirs: PackedSupport) -> Neighbor:
    shared = packing.shared_packed(ours, theirs)
    similarity = overlap.similarity_of(shared, ours.k, theirs.k)
    return Neighbor(
        model=candidate.model.name,
        similarity=similarity,
        jaccard=overlap.jaccard_of(similarity),
        estimate="exact",
        standard_error=0.0,
        shared_indices=shared,
    )


def _estimated(candidate: _Candidate, num_perm: int) -> Neighbor:
    return Neighbor(
        model=candidate.model.name,
        similarity=overlap.similarity_from_jaccard(candidate.jaccard),
        jaccard=candidate.jaccard,
        estimate="signature",
        standard_error=overlap.standard_error(candidate.jaccard, num_perm),
        shared_indices=None,
    )


def _ids(ids: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.sort(np.fromiter(ids, np.int64))


def _check(k: int, min_similarity: float, method: str) -> None:
    if not 1 <= k <= MAX_K:
        raise InvalidParameter(f"k must be 1 to {MAX_K}, not {k}", field="k")
    if not 0 <= min_similarity <= 1:
        raise InvalidParameter(
            f"min_similarity must be 0 to 1, not {min_similarity}", field="min_similarity"
        )
    if method not in METHODS:
        raise InvalidParameter(
            f"method must be one of {', '.join(METHODS)}, not {method!r}", field="method"
        )
