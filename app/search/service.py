"""Search: the neighbours of a model.

Candidates come from everything (``exact``), from the scan of signature bytes (``scan``) or from the
LSH buckets (``lsh``), in whose place a scan answers where they cannot. ``app.index.cascade`` says
which of them are worth comparing, ``compare`` compares those, and the best are answered: whatever
found them, an item is as sharp as what is stored of it allows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from app.catalog.reader import Subject
from app.catalog.repositories import models
from app.catalog.repositories.candidates import Candidate, candidates_by_id, candidates_in_pages
from app.index import cascade
from app.index.buckets.service import BucketService
from app.index.change_feed import ChangeFeed
from app.index.registry import IndexRegistry
from app.index.space_index import Snapshot
from app.infra.db.database import Reader
from app.search.comparer import Comparer, Query
from app.spaces.records import SpaceRecord
from modelkin.errors import InvalidParameter
from modelkin.types.search import Neighbor, Neighbors

__all__ = ["METHODS", "SearchService"]

METHODS = ("auto", "exact", "scan", "lsh")
MAX_K = 1000

Ids = npt.NDArray[np.int64]

_EXACT_MODELS, _EXACT_WORK = 500, 64 << 20
"""``auto`` compares so many models exactly, while that reads so many bytes at most: some 10 ms."""
_RECALL = 0.99
"""``auto`` leaves finding to the buckets where these find so large a share of the nearest asked."""
_MARGIN = 6
"""So many more than are answered are compared at once, before it is known who may be left out."""
_FEW = 200
"""So few candidates of buckets are looked up in the database: the index need not be there."""


@dataclass(frozen=True, slots=True)
class _Query:
    """Whose neighbours are sought, how many and how near."""

    asked: Query
    k: int
    min_similarity: float

    @property
    def own(self) -> int | None:
        """The id of the model itself, which is no neighbour of its own."""
        model = self.asked.subject.model
        return None if model is None else model.id

    @property
    def compared(self) -> int:
        """How many candidates are compared at least."""
        exactly = self.asked.subject.packed is not None
        return cascade.comparison_size(
            self.k, exactly=exactly, sketched=self.asked.sketch is not None
        )


@dataclass(frozen=True, slots=True)
class _Proposal:
    """Candidates: their ids, ascending, those of their contents, and S by their signatures."""

    ids: Ids
    contents: Ids
    similarity: npt.NDArray[np.float64]

    def without(self, model_id: int | None) -> _Proposal:
        """The others."""
        kept = self.ids != (-1 if model_id is None else model_id)
        return _Proposal(self.ids[kept], self.contents[kept], self.similarity[kept])


class SearchService:
    """The use cases that rank models by how much they overlap with one.

    Args:
        comparer: compares a subject with candidates.
        indexes: the signatures of all spaces, to scan.
        buckets: the LSH buckets.
    """

    def __init__(self, comparer: Comparer, indexes: IndexRegistry, buckets: BucketService) -> None:
        self._comparer = comparer
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
        query = _Query(self._comparer.asked(session, space, subject), k, min_similarity)
        among = _ids(models.ids_with_tags(session, space, tags)) if tags else None
        chosen = self._choose(query, among) if method == "auto" else method
        if chosen != "lsh":
            return self._search(query, chosen, among)
        mates = self._buckets.candidates(
            session,
            space,
            subject.values,
            model_id=None if subject.model is None else subject.model.id,
            packed=subject.packed,
        )
        if mates is None:
            return replace(self._search(query, "scan", among), degraded=True)
        if mates.truncated and method == "auto":
            return self._search(query, "scan", among)
        near = mates.ids if among is None else np.intersect1d(mates.ids, among)
        found = self._search(query, "lsh", near)
        if mates.truncated and len(found) < k:
            return self._search(query, "scan", among)
        if mates.truncated:
            return replace(found, truncated=True)
        return replace(found, recall=space.recall_at(min_similarity))

    def _choose(self, query: _Query, among: Ids | None) -> str:
        """The method for ``auto``."""
        space = query.asked.space
        count = space.models if among is None else among.size
        work = count * (space.num_parameters // 8)  # the most that so many supports can take
        if count <= query.compared or (count <= _EXACT_MODELS and work <= _EXACT_WORK):
            return "exact"
        recall = space.recall_at(query.min_similarity)
        return "lsh" if recall is not None and recall >= _RECALL else "scan"

    def _search(self, query: _Query, method: str, among: Ids | None) -> Neighbors:
        """What a method finds among some models, ascending ids, or among all."""
        if method == "exact":
            return self._exactly(query, among)
        asked = query.asked
        if method == "lsh" and among is not None and among.size <= _FEW:
            proposal = self._looked_up(query, among)
        else:
            proposal = self._scanned(query, among)
        proposal = proposal.without(query.own)
        estimates = cascade.estimate(
            proposal.ids,
            proposal.contents,
            proposal.similarity,
            asked.sketch,
            asked.file,
            num_perm=asked.subject.values.size,
            count=query.compared,
        )
        chosen = cascade.select_candidates(estimates, query.k, query.compared)
        found, whole = self._compared(query, chosen)
        return _answered(query, method, found, proposal.ids.size, whole=whole)

    def _compared(self, query: _Query, chosen: cascade.Selection) -> tuple[list[Neighbor], bool]:
        """The third stage: the foremost, and then of the others who may still be among the best."""
        asked, first = query.asked, query.k + _MARGIN
        near = chosen.upper_bound >= query.min_similarity
        ids, most = chosen.ids[near], chosen.upper_bound[near]
        tied = _first_by_name(asked, chosen)
        candidates = candidates_by_id(asked.session, asked.space, ids[:first].tolist())
        found, whole = self._comparer.compare(asked, candidates + tied)
        if len(found) >= query.k:
            kth = heapq.nlargest(query.k, (item.similarity for item in found))[-1]
            ids = np.concatenate([ids[:first], ids[first:][most[first:] >= kth]])
        if ids.size > first:
            candidates = candidates_by_id(asked.session, asked.space, ids[first:].tolist())
            more, all_whole = self._comparer.compare(asked, candidates)
            found, whole = found + more, whole and all_whole
        return found, whole

    def _exactly(self, query: _Query, among: Ids | None) -> Neighbors:
        """All of them compared, a page at a time."""
        asked, best, count, all_whole = query.asked, list[Neighbor](), 0, True
        for page in candidates_in_pages(asked.session, asked.space, among):
            others = [candidate for candidate in page if candidate.id != query.own]
            found, whole = self._comparer.compare(asked, others, keep=False)
            best = heapq.nsmallest(query.k, [*best, *found], _rank)
            count, all_whole = count + len(found), all_whole and whole
        return _answered(query, "exact", best, count, whole=all_whole)

    def _scanned(self, query: _Query, among: Ids | None) -> _Proposal:
        """The first stage of the cascade: what the bytes of the signatures propose."""
        subject = query.asked.subject
        snapshot = self._snapshot(query.asked)
        count = cascade.scan_size(len(snapshot) if among is None else among.size, query.k)
        found = snapshot.candidates(subject.values, count + 1, among=among)
        similarity = cascade.similarity_from_matches(found.matches, subject.values.size)
        return _Proposal(found.ids, found.contents, similarity)

    def _looked_up(self, query: _Query, among: Ids) -> _Proposal:
        """A few candidates, by all their minhashes where there are more than will be compared."""
        asked, ids = query.asked, among.tolist()
        found = candidates_by_id(asked.session, asked.space, ids)
        found.sort(key=lambda candidate: candidate.id)
        jaccards = self._comparer.jaccards(asked, ids) if len(ids) > query.compared else {}
        return _Proposal(
            np.array([candidate.id for candidate in found], np.int64),
            np.array([candidate.content_id for candidate in found], np.int64),
            cascade.similarity_from_jaccards(
                np.array([jaccards.get(c.id, 1.0) for c in found], np.float64)
            ),
        )

    def _snapshot(self, asked: Query) -> Snapshot:
        space, feed = asked.space, ChangeFeed(asked.session, asked.space.id)
        return self._indexes.snapshot_at(space.id, space.signature, space.version, feed)


def _answered(
    query: _Query, method: str, found: Iterable[Neighbor], candidates: int, *, whole: bool
) -> Neighbors:
    near = (item for item in found if item.similarity >= query.min_similarity)
    model = query.asked.subject.model
    return Neighbors(
        items=tuple(heapq.nsmallest(query.k, near, _rank)),
        model=None if model is None else model.name,
        method=method,
        candidates=candidates,
        degraded=not whole,
    )


def _rank(item: Neighbor) -> tuple[float, str]:
    return -item.similarity, item.model


def _first_by_name(asked: Query, chosen: cascade.Selection) -> list[Candidate]:
    """Of those that tie the first by name, as there is room for them."""
    if not chosen.tied.size:
        return []
    tied = candidates_by_id(asked.session, asked.space, chosen.tied.tolist())
    return heapq.nsmallest(chosen.tied_places, tied, lambda candidate: candidate.name)


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
