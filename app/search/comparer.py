"""The comparer: compares a subject with few models, as sharply as the stored data allow.

Two supports are overlapped exactly. Otherwise S is an estimate: by sketches if both sides have one
that is sharper than a signature, else by full-width minhashes. Each item names its method.
``service`` decides which models are compared and which are returned.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import Unavailable
from app.models.catalog.reader import ModelReader, Subject
from app.models.catalog.repositories.candidates import Candidate, candidates_by_name
from app.models.catalog.repositories.sketches import sketches_by_id
from app.models.catalog.repositories.tensor_counts import counts_by_name
from app.models.index.cascade import is_sharper
from app.models.index.sketch_folder import SketchFolder
from app.models.index.sketch_heads import SAMPLE_SEED, SAMPLE_SIZE, sketch_of_head
from app.models.spaces.records import SpaceRecord
from app.models.spaces.repositories.layouts import tensor_sizes
from app.search.constants import Constants, SpaceConstants
from app.search.orders import rank_comparer
from app.search.prepared_query import PreparedQuery
from app.search.sketches import SketchesOutside
from modelkin import wire
from modelkin.core import estimators
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.chance import expected_similarities, kappa
from modelkin.core.similarity.outside import covered_share, magnification, overlap_outside
from modelkin.core.sketching.signature import jaccard_estimates
from modelkin.core.sketching.sketch import Sketch, similarity_in_sample, standard_error_in_sample
from modelkin.errors import InvalidParameter
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import NeighborMeasure

__all__ = ["Comparer", "require_layout"]

log = logging.getLogger(__name__)

_HELD_SUPPORTS = 16
"""Supports that are held until those without a sketch on this machine get theirs."""
_JOB_FETCH_S = 60.0
"""Seconds that each comparison of a job waits for supports; a job itself has no deadline."""


class Comparer:
    """Compares a query with candidates.

    Args:
        reader: reads stored models.
        sketches: the sketches on this machine.
        constants: knows the tensors that are left out.
    """

    def __init__(
        self, reader: ModelReader, sketches: SketchFolder, constants: SpaceConstants
    ) -> None:
        self._reader = reader
        self._sketches = sketches
        self._constants = constants

    def constants(self, session: Reader, space: SpaceRecord, subject: Subject) -> Constants:
        """The tensors that comparisons with a subject leave out."""
        return self._constants.of(session, space, subject)

    def query(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        measure: NeighborMeasure = "similarity",
    ) -> PreparedQuery:
        """A subject, with the data to compare it.

        Raises:
            InvalidParameter: the measure is ``"ordered"``, and the space is not, or the subject.
        """
        constants = self._constants.of(session, space, subject)
        ranked = measure == "ordered"
        by_ranks = rank_comparer(space, subject, constants.gaps) if ranked else None
        file = self._sketches.of(space.id, space.num_parameters)
        sketch, outside = _sketch(space, subject), None
        if constants and sketch is not None:
            outside = SketchesOutside(file, space.num_parameters, constants.gaps)
            sketch = outside.cut(sketch)
        return PreparedQuery(session, space, subject, sketch, file, constants, outside, by_ranks)

    def compare(
        self,
        query: PreparedQuery,
        candidates: Sequence[Candidate],
        *,
        deadline: Deadline = NEVER,
        cache_sketches: bool = True,
    ) -> tuple[list[Neighbor], bool]:
        """Compare the candidates; return unordered neighbours, and whether all supports were read.

        An estimate by signatures replaces an overlap with a support that could not be read, except
        where octaves are compared, which no signature has.

        Args:
            query: the query to compare with each candidate.
            candidates: a few models.
            deadline: the time after which no further candidate is compared; jobs have none.
            cache_sketches: whether to write the sketches that this machine lacks.
        """
        items, whole = [], True
        without_overlap: list[Candidate] = []
        damaged: list[Candidate] = []
        overlapped: list[tuple[int, int, PackedSupport]] = []
        ours = query.subject.packed
        late = set[str]()
        if ours is not None:
            late = self._reader.fetch(candidates, _left(query, deadline))
        for candidate in deadline.until(candidates):
            if candidate.blob_key in late:
                damaged.append(candidate)
                whole = False
                continue
            if ours is None or candidate.blob_key is None:
                without_overlap.append(candidate)
                continue
            try:
                found = self._reader.find_support(query.space, candidate)
            except Unavailable as error:  # one damaged file must not fail the whole answer
                log.error("%s", error)
                damaged.append(candidate)
                whole = False
                continue
            if found is None:
                damaged.append(candidate)
                continue
            model, theirs = found
            items.append(_exact_neighbor(query, candidate, ours, theirs))
            if cache_sketches:
                overlapped.append((model.id, model.content_id, theirs))
            if len(overlapped) == _HELD_SUPPORTS:
                self._cache_sketches(query, overlapped)
                overlapped.clear()
        self._cache_sketches(query, overlapped)
        if query.by_ranks is None:
            sketched, complete = self._sketch_counts(query, without_overlap, deadline)
            items += self._estimate(query, [*without_overlap, *damaged], sketched)
            whole &= complete
        return items, whole

    def with_chance(
        self, session: Reader, space: SpaceRecord, subject: Subject, items: Sequence[Neighbor]
    ) -> list[Neighbor]:
        """Add to the items the similarity expected by chance, and kappa, the similarity beyond it.

        Both stay None without a layout, and where a side has no support or its indices are not
        counted yet; and where constants are left out, of an estimate that could not leave them out.
        A support that was replaced after the query began is compared with the chance of its
        predecessor.
        """
        given = subject.model is None
        if subject.packed is None or not items or (given and subject.tensor_counts is None):
            return list(items)
        sizes = tensor_sizes(session, space)
        if sizes is None:
            return list(items)
        own = [] if subject.model is None else [subject.model.name]
        counts = counts_by_name(session, space, [*own, *(item.model for item in items)])
        ours = subject.tensor_counts if subject.model is None else counts.get(subject.model.name)
        constants = self._constants.of(session, space, subject)
        counted = [
            item
            for item in items
            if item.model in counts and not (constants and item.estimate == "signature")
        ]
        if ours is None or not counted:
            return list(items)
        theirs = [constants.without(counts[item.model]) for item in counted]
        expected = expected_similarities(
            constants.without(ours), theirs, sizes.astype(np.float64)
        ).tolist()
        pairs = zip(counted, expected, strict=True)
        known = {item.model: s0 for item, s0 in pairs if not math.isnan(s0)}
        partial = [
            item.model for item in counted if item.covered is not None and item.model in known
        ]
        for candidate in candidates_by_name(session, space, partial) if partial else ():
            packed = self._reader.find_packed(space, candidate)
            if packed is not None:
                known[candidate.name] *= magnification(subject.packed, packed, constants.gaps)
        return [_beyond_chance(item, known.get(item.model)) for item in items]

    def jaccards(self, query: PreparedQuery, ids: Sequence[int]) -> dict[int, float]:
        """J by full-width minhashes, by model id; missing models are left out."""
        values = self._reader.values(query.session, query.space, ids)
        if not values:
            return {}
        jaccards = jaccard_estimates(np.stack(list(values.values())), query.subject.values)
        return dict(zip(values, jaccards.tolist(), strict=True))

    def _cache_sketches(
        self, query: PreparedQuery, overlapped: Sequence[tuple[int, int, PackedSupport]]
    ) -> None:
        if query.sketch is None or not overlapped:
            return
        ids, contents = np.array([entry[:2] for entry in overlapped], np.int64).T
        counts = query.file.counts(query.sketch, ids, contents)
        for place in np.flatnonzero(counts[:, 0] < 0).tolist():
            query.file.write_packed(*overlapped[place])

    def _estimate(
        self,
        query: PreparedQuery,
        candidates: Sequence[Candidate],
        sketched: Mapping[int, tuple[int, int]],
    ) -> list[Neighbor]:
        if not candidates:
            return []
        jaccards = self.jaccards(query, [candidate.id for candidate in candidates])
        return [
            _estimate_neighbor(candidate, query, jaccards[candidate.id], sketched.get(candidate.id))
            for candidate in candidates
            if candidate.id in jaccards
        ]

    def _sketch_counts(
        self, query: PreparedQuery, candidates: Sequence[Candidate], deadline: Deadline
    ) -> tuple[dict[int, tuple[int, int]], bool]:
        """Return the shared and own members of the candidates that have a sketch, by id.

        Returns:
            The counts, and whether all sketches that are not on this machine yet could be read.
        """
        candidates = [candidate for candidate in candidates if candidate.content_id]
        if query.sketch is None or not candidates:
            return {}, True
        ids = np.array([candidate.id for candidate in candidates], np.int64)
        contents = np.array([candidate.content_id for candidate in candidates], np.int64)
        counts = query.sketches.counts(query.sketch, ids, contents)
        known = {
            candidate.id: (shared, members)
            for candidate, (shared, members) in zip(candidates, counts.tolist(), strict=True)
            if shared >= 0
        }
        missing = [candidate for candidate in candidates if candidate.id not in known]
        sent = sketches_by_id(query.session, [c.id for c in missing if c.blob_key is None])
        read = [(c, wire.decode_sketch(sent[c.id])) for c in missing if c.id in sent]
        stored = [candidate for candidate in missing if candidate.blob_key is not None]
        made = self._make_sketches(query, stored, deadline)
        for candidate, sketch in (*read, *made.items()):
            if sketch is not None:
                known[candidate.id] = query.count(sketch)
                query.file.write(candidate.id, candidate.content_id, sketch)
        return known, len(made) == len(stored)

    def _make_sketches(
        self, query: PreparedQuery, candidates: Sequence[Candidate], deadline: Deadline
    ) -> dict[Candidate, Sketch | None]:
        """The sketches of supports: from their store, side by side, or else made from them.

        Returns:
            None for a model that has gone; without those that are late or cannot be read.
        """
        heads = self._reader.heads(candidates, _left(query, deadline))
        headless = [each for each in candidates if heads.get(str(each.blob_key)) == b""]
        late = self._reader.fetch(headless, _left(query, deadline))
        made: dict[Candidate, Sketch | None] = {}
        for candidate in candidates:
            head = heads.get(str(candidate.blob_key))
            if head is None or candidate.blob_key in late:
                continue
            try:
                made[candidate] = self._make_sketch(query.space, candidate, head)
            except Unavailable as error:
                log.error("%s", error)
        return made

    def _make_sketch(self, space: SpaceRecord, candidate: Candidate, head: bytes) -> Sketch | None:
        if head:
            return sketch_of_head(head, space.num_parameters, candidate.support_size)
        found = self._reader.find_support(space, candidate)
        if found is None or found[0].content_id != candidate.content_id:
            return None
        return found[1].sketch(SAMPLE_SIZE, SAMPLE_SEED)


def _left(query: PreparedQuery, deadline: Deadline) -> float:
    """The seconds that an answer, or a job, still waits for data that this machine lacks."""
    return _JOB_FETCH_S if deadline is NEVER else min(query.fetching.left(), deadline.left())


def _sketch(space: SpaceRecord, subject: Subject) -> Sketch | None:
    """The subject's sketch, if it is sharper than its signature."""
    num_perm, sketch = space.signature.num_perm, subject.sketch
    if subject.packed is not None:
        expected = subject.packed.k * SAMPLE_SIZE / max(space.num_parameters, SAMPLE_SIZE)
        if space.num_parameters > SAMPLE_SIZE and expected < num_perm / 2:
            return None  # not worth looking the sample up
        sketch = subject.packed.sketch(SAMPLE_SIZE, SAMPLE_SEED)
    return sketch if sketch is not None and is_sharper(sketch, num_perm) else None


def require_layout(space: SpaceRecord, field: str) -> None:
    """Require a layout of a space for a field that asks for kappa.

    Raises:
        InvalidParameter: the space has no layout; the error names the field.
    """
    if space.layout_digest is None:
        raise InvalidParameter(
            f"space {space.name!r} has no layout, and kappa is measured against chance in each "
            f"tensor: leave {field} out, or create a space with a layout",
            field=field,
        )


def _beyond_chance(item: Neighbor, expected: float | None) -> Neighbor:
    if expected is None:
        return item
    return Neighbor(  # quicker than replace()
        item.model,
        item.similarity,
        item.jaccard,
        item.estimate,
        item.standard_error,
        item.shared_indices,
        expected,
        kappa(item.similarity, expected),
        item.ordered_similarity,
        item.covered,
    )


def _exact_neighbor(
    query: PreparedQuery, candidate: Candidate, ours: PackedSupport, theirs: PackedSupport
) -> Neighbor:
    by_ranks = query.by_ranks
    found = overlap_outside(ours, theirs, query.constants.gaps)
    similarity = found.similarity
    return Neighbor(
        model=candidate.name,
        similarity=similarity,
        jaccard=estimators.jaccard_of(similarity),
        estimate="exact",
        standard_error=0.0,
        shared_indices=found.shared,
        ordered_similarity=None if by_ranks is None else by_ranks(theirs.unpack()),
        covered=covered_share(ours, theirs),
    )


def _estimate_neighbor(
    candidate: Candidate, query: PreparedQuery, jaccard: float, counts: tuple[int, int] | None
) -> Neighbor:
    """The estimate by sketches if these saw more of the union than a signature has values."""
    num_perm = query.space.signature.num_perm
    if query.sketch is not None and counts is not None:
        shared, theirs = counts
        ours = query.sketch.members
        whole = query.space.num_parameters <= query.sketch.size
        # A signature cannot leave out constants, so with these a sketch of few members is better.
        few = max(1, ours + theirs - shared) if query.constants else num_perm + 1
        if whole or ours + theirs - shared >= few:
            similarity = similarity_in_sample(shared, ours, theirs)
            return Neighbor(
                model=candidate.name,
                similarity=similarity,
                jaccard=estimators.jaccard_of(similarity),
                estimate="sketch",
                standard_error=0.0 if whole else standard_error_in_sample(shared, ours, theirs),
                shared_indices=None,
            )
    similarity = estimators.similarity_from_jaccard(jaccard)
    error = estimators.standard_error(jaccard, num_perm)
    share = query.constant_share
    if share:
        similarity, error = max(0.0, (similarity - share) / (1 - share)), error / (1 - share)
        jaccard = estimators.jaccard_of(similarity)
    return Neighbor(
        model=candidate.name,
        similarity=similarity,
        jaccard=jaccard,
        estimate="signature",
        standard_error=error,
        shared_indices=None,
    )
