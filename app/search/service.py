"""Search: the neighbours of a model.

Candidates are all models (``exact``), or come from the scan of signature bytes (``scan``) or the
LSH buckets (``lsh``). If the buckets cannot answer, a scan does. :mod:`app.models.index.cascade`
selects the candidates to compare, :mod:`app.search.comparer` compares them, and the best are
returned. Every item is as sharp as the stored data allow, whichever method proposed it.
:mod:`app.search.contenders` finds models that were left out and may be as near. What is shown to
readers gets its standing beside unrelated models from :mod:`app.search.standing`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.models.catalog.reader import Subject
from app.models.catalog.repositories import models
from app.models.catalog.repositories.candidates import (
    Candidate,
    candidates_by_id,
    candidates_in_pages,
)
from app.models.index import cascade
from app.models.index.buckets.service import BucketService
from app.models.index.change_feed import ChangeFeed
from app.models.index.registry import IndexRegistry
from app.models.index.space_index import Snapshot
from app.models.spaces.records import SpaceRecord
from app.models.subspaces.service import SubspaceService, check_compare
from app.search.comparer import Comparer
from app.search.contenders import Scanned, find_contenders
from app.search.orders import require_ordered
from app.search.prepared_query import PreparedQuery
from app.search.request import Proposal, SearchRequest, check_kappa, check_request
from modelkin.types.search import Neighbor, Neighbors
from modelkin.types.vocabulary import Compare, NeighborMeasure, UsedSearchMethod

__all__ = ["SearchService"]

Ids = npt.NDArray[np.int64]

_MAX_EXACT_MODELS, _MAX_EXACT_BYTES = 500, 64 << 20
"""``auto`` compares this many models exactly, if they have at most this many bytes: 10 ms."""
_MIN_LSH_RECALL = 0.99
"""``auto`` uses the buckets if they find at least this share of the nearest models."""
_EXTRA_COMPARISONS = 6
"""Candidates beyond k in the first round of comparisons; their S decides on further comparisons."""
_MAX_LOOKUPS = 200
"""The most candidates of buckets that are read from the database, without the index."""


class SearchService:
    """The use cases that rank models by their overlap with a subject.

    Args:
        comparer: compares a subject with candidates.
        indexes: the signatures of all spaces, to scan.
        subspaces: compares the models of spaces of data subspaces.
    """

    def __init__(
        self,
        comparer: Comparer,
        indexes: IndexRegistry,
        buckets: BucketService,
        subspaces: SubspaceService,
    ) -> None:
        self._comparer = comparer
        self._indexes = indexes
        self._buckets = buckets
        self._subspaces = subspaces

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
        min_kappa: float | None = None,
        compare: Compare | None = None,
        measure: NeighborMeasure = "similarity",
        deadline: Deadline = NEVER,
    ) -> Neighbors:
        """The ``k`` models that overlap most with ``subject``, best first, without the subject.

        Args:
            k: the number of neighbours, 1 to 1,000.
            min_similarity: the least S of a neighbour, 0 to 1.
            method: the method, one of :data:`app.search.request.METHODS`.
            tags: tags that all neighbours must carry.
            min_kappa: the least kappa among the ``k``, -1 to 1; models without a kappa are left
                out.
            compare: the way in which blocks of data subspaces meet; None for the space's default.
            measure: the measure that ranks the models; ``"ordered"`` ranks those proposed by S.
            deadline: the time after which the answer has only models compared by then.

        Raises:
            InvalidParameter: an argument is out of its range or for another kind of space; or the
                space lacks the layout that kappa needs, or the ranks.
            ClientLeft: the client has gone, as the deadline reports.
        """
        check_request(k, min_similarity, method)
        check_kappa(space, min_kappa)
        if measure == "ordered":
            require_ordered(space)
        if space.kind == "subspaces":
            return self._subspaces.neighbors(
                session,
                space,
                subject,
                k=k,
                min_similarity=min_similarity,
                method=method,
                tags=tags,
                compare=compare,
                deadline=deadline,
            )
        check_compare(space, compare)
        request = SearchRequest(
            self._comparer.query(session, space, subject, measure), k, min_similarity, deadline
        )
        found = self._find(request, method, tags)
        deadline.require_client()
        items = self._comparer.with_chance(session, space, subject, found.items)
        if min_kappa is not None:
            items = [item for item in items if item.kappa is not None and item.kappa >= min_kappa]
        return replace(found, items=tuple(items))

    def _find(self, request: SearchRequest, method: str, tags: Sequence[str]) -> Neighbors:
        """The nearest models by a method, without their chance."""
        session, space = request.query.session, request.query.space
        subject = request.query.subject
        among = _ids(models.ids_with_tags(session, space, tags)) if tags else None
        chosen = self._choose(request, among) if method == "auto" else method
        if chosen != "lsh":
            return self._search(request, chosen, among)
        candidates = self._buckets.candidates(
            session,
            space,
            subject.values,
        )
        if candidates is None:
            return replace(self._search(request, "scan", among), degraded=True)
        if candidates.truncated and method == "auto":
            return self._search(request, "scan", among)
        near = candidates.ids if among is None else np.intersect1d(candidates.ids, among)
        found = self._search(request, "lsh", near)
        if candidates.truncated and len(found) < request.k and not found.truncated:
            return self._search(request, "scan", among)
        if candidates.truncated:
            return replace(found, truncated=True)
        return replace(found, recall=space.recall_at(request.min_similarity))

    def _choose(self, request: SearchRequest, among: Ids | None) -> str:
        """The method for ``auto``."""
        space = request.query.space
        count = space.models if among is None else among.size
        work = count * (space.num_parameters // 8)  # an upper bound for this many supports
        if count <= request.comparison_size or (
            count <= _MAX_EXACT_MODELS and work <= _MAX_EXACT_BYTES
        ):
            return "exact"
        recall = space.recall_at(request.min_similarity)
        return "lsh" if recall is not None and recall >= _MIN_LSH_RECALL else "scan"

    def _search(self, request: SearchRequest, method: str, among: Ids | None) -> Neighbors:
        """The neighbours by one method, among some models (ascending ids), or among all."""
        if method == "exact":
            return self._compare_all(request, among)
        query = request.query
        if method == "lsh" and among is not None and among.size <= _MAX_LOOKUPS:
            proposal = self._propose_by_lookup(request, among)
        else:
            proposal = self._propose_by_scan(request, among)
        proposal = proposal.without(request.own_id)
        estimates = cascade.estimate(
            proposal.ids,
            proposal.contents,
            proposal.similarity,
            query.sketch,
            query.sketches,
            num_perm=query.subject.values.size,
            count=request.comparison_size,
            exactly=request.exactly,
            share=query.constant_share,
        )
        chosen = cascade.select_candidates(estimates, request.k, request.comparison_size)
        tied = _tied_by_name(query, chosen)
        found, whole = self._compare_selection(request, chosen, tied)
        if request.measure == "ordered":
            return _result(request, method, found, proposal.ids.size, whole=whole)
        contenders = find_contenders(
            chosen,
            np.array([-1 if request.own_id is None else request.own_id, *(c.id for c in tied)]),
            proposal.scanned,
            request.similarity_at_k(found),
        )
        if not contenders.ids.size or request.deadline.passed():
            return _result(request, method, found, proposal.ids.size, whole=whole)
        if not contenders.affordable(request.bytes_each):
            answer = _result(request, method, found, proposal.ids.size, whole=whole)
            return replace(
                answer, ties_left_out=contenders.ids.size, similarity_slack=contenders.slack
            )
        candidates = candidates_by_id(query.session, query.space, contenders.ids.tolist())
        more, all_whole = self._comparer.compare(query, candidates, deadline=request.deadline)
        whole = whole and all_whole
        return _result(request, method, found + more, proposal.ids.size, whole=whole)

    def _compare_selection(
        self, request: SearchRequest, chosen: cascade.Selection, tied: Sequence[Candidate]
    ) -> tuple[list[Neighbor], bool]:
        """Compare the best candidates, then others that may be among the best: the third stage.

        If octaves rank, compare all chosen models: a bound of S does not bound the ordered
        similarity.
        """
        query, ordered = request.query, request.measure == "ordered"
        first = chosen.ids.size if ordered else request.k + _EXTRA_COMPARISONS
        near = chosen.upper_bound >= request.min_similarity
        ids, most = chosen.ids[near], chosen.upper_bound[near]
        candidates = candidates_by_id(query.session, query.space, ids[:first].tolist())
        found, whole = self._comparer.compare(
            query, [*candidates, *tied], deadline=request.deadline
        )
        if len(found) >= request.k:
            kth = request.similarity_at_k(found)
            ids = np.concatenate([ids[:first], ids[first:][most[first:] >= kth]])
        if ids.size > first:
            candidates = candidates_by_id(query.session, query.space, ids[first:].tolist())
            more, all_whole = self._comparer.compare(query, candidates, deadline=request.deadline)
            found, whole = found + more, whole and all_whole
        return found, whole

    def _compare_all(self, request: SearchRequest, among: Ids | None) -> Neighbors:
        """Compare all models, a page at a time, as far as there is time.

        With a deadline no view of the database is held while they are compared.
        """
        deadline = request.deadline
        query, best, count, all_whole = request.query, list[Neighbor](), 0, True
        for page in candidates_in_pages(query.session, query.space, among):
            if deadline is not NEVER:
                query.session.release()
            others = [candidate for candidate in page if candidate.id != request.own_id]
            found, whole = self._comparer.compare(
                query, others, deadline=deadline, cache_sketches=False
            )
            count, all_whole = count + len(found), all_whole and whole
            near = (item for item in found if item.similarity >= request.min_similarity)
            best = heapq.nsmallest(request.k, [*best, *near], _rank)
            if deadline.passed():
                break
        return _result(request, "exact", best, count, whole=all_whole)

    def _propose_by_scan(self, request: SearchRequest, among: Ids | None) -> Proposal:
        """The first stage of the cascade: candidates from a scan of the signature bytes."""
        subject = request.query.subject
        snapshot = self._snapshot(request.query)
        count = request.scan_size(len(snapshot) if among is None else among.size)
        by_values = not request.exactly and request.query.sketch is None
        scan = snapshot.scan(
            subject.values,
            among=among,
            nearest=request.k + (request.own_id is not None) if by_values else 0,
            least=cascade.least_matches(request.least_of_all, subject.values.size),
        )
        found = scan.best(count + 1)
        similarity = cascade.similarity_from_matches(found.matches, subject.values.size)
        scanned = Scanned(scan, found, by_values, request.query.constant_share)
        return Proposal(found.ids, found.contents, similarity, scanned)

    def _propose_by_lookup(self, request: SearchRequest, among: Ids) -> Proposal:
        """Few candidates, ranked by full minhashes if there are more than will be compared."""
        query, ids = request.query, among.tolist()
        found = candidates_by_id(query.session, query.space, ids)
        found.sort(key=lambda candidate: candidate.id)
        jaccards = self._comparer.jaccards(query, ids) if len(ids) > request.comparison_size else {}
        return Proposal(
            np.array([candidate.id for candidate in found], np.int64),
            np.array([candidate.content_id for candidate in found], np.int64),
            cascade.similarity_from_jaccards(
                np.array([jaccards.get(c.id, 1.0) for c in found], np.float64)
            ),
        )

    def _snapshot(self, query: PreparedQuery) -> Snapshot:
        space, feed = query.space, ChangeFeed(query.session, query.space.id)
        return self._indexes.snapshot_at(space.id, space.signature, space.version, feed)


def _result(
    request: SearchRequest, method: str, found: Iterable[Neighbor], candidates: int, *, whole: bool
) -> Neighbors:
    near = (item for item in found if item.similarity >= request.min_similarity)
    model = request.query.subject.model
    return Neighbors(
        items=tuple(heapq.nsmallest(request.k, near, _rank)),
        model=None if model is None else model.name,
        method=cast(UsedSearchMethod, method),
        candidates=candidates,
        degraded=not whole,
        truncated=request.deadline.passed(),
        note=_note(request.query),
        measure=request.measure,
        constant_tensors=request.query.constants.names,
    )


def _note(query: PreparedQuery) -> str | None:
    """The caveats of the comparison, and of the difference of a stored model that it asks about."""
    space, model = query.space, query.subject.model
    differs = model is not None and space.importance.kind == "delta"
    notes = (query.note, model.difference_note if differs and model is not None else None)
    return "; ".join(filter(None, notes)) or None


def _rank(item: Neighbor) -> tuple[float, str]:
    by_octaves = item.ordered_similarity
    return -(item.similarity if by_octaves is None else by_octaves), item.model


def _tied_by_name(query: PreparedQuery, chosen: cascade.Selection) -> list[Candidate]:
    """The first of the tied candidates by name, as many as there are places."""
    if not chosen.tied.size:
        return []
    tied = candidates_by_id(query.session, query.space, chosen.tied.tolist())
    return heapq.nsmallest(chosen.tied_places, tied, lambda candidate: candidate.name)


def _ids(ids: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.sort(np.fromiter(ids, np.int64))
