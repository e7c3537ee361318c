"""Comparing a subject with few models, each as sharply as what is stored of both allows.

Two supports are overlapped exactly. Else sketches tell, where both sides have one that tells more
than a signature; else all full-width minhashes do, and those of nobody else. An item says which of
the three it was. Which models are worth it, and which are answered, is for ``search``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from app.catalog.reader import ModelReader, Subject
from app.catalog.repositories.candidates import Candidate
from app.catalog.repositories.sketches import sketches_by_id
from app.errors import Unavailable
from app.index.cascade import is_sharper
from app.index.sketch_files import SAMPLE_SEED, SAMPLE_SIZE, SketchFile, SketchFiles
from app.infra.db.database import Reader
from app.spaces.records import SpaceRecord
from modelkin import wire
from modelkin.core import estimators
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.overlap import shared_packed
from modelkin.core.sketching.signature import jaccard_estimates
from modelkin.core.sketching.sketch import Sketch, similarity_in_sample, standard_error_in_sample
from modelkin.types.search import Neighbor

__all__ = ["Query", "Comparer"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """Who is compared with others, where.

    Attributes:
        session: one view of the database.
        space: as it is there.
        subject: whose neighbours are sought.
        sketch: the subject's, if that tells more than its signature.
        file: the sketches of the space that are known here.
    """

    session: Reader
    space: SpaceRecord
    subject: Subject
    sketch: Sketch | None
    file: SketchFile


class Comparer:
    """Compares.

    Args:
        library: reads what is stored.
        sketches: those that are known on this machine.
    """

    def __init__(self, library: ModelReader, sketches: SketchFiles) -> None:
        self._library = library
        self._sketches = sketches

    def asked(self, session: Reader, space: SpaceRecord, subject: Subject) -> Query:
        """A subject, with what there is to compare it by."""
        file = self._sketches.of(space.id, space.num_parameters)
        return Query(session, space, subject, _sketch(space, subject), file)

    def compare(
        self, asked: Query, candidates: Iterable[Candidate], *, keep: bool = True
    ) -> tuple[list[Neighbor], bool]:
        """The candidates as neighbours, in no order, and whether all their supports could be read.

        An estimate by signatures stands in for an overlap with a support that could not.

        Args:
            asked: whom with.
            candidates: few.
            keep: write the sketches that are not known here and could be.
        """
        items, whole = [], True
        apart: list[Candidate] = []
        damaged: list[Candidate] = []
        overlapped: list[tuple[int, int, PackedSupport]] = []
        ours = asked.subject.packed
        for candidate in candidates:
            if ours is None or candidate.blob_key is None:
                apart.append(candidate)
                continue
            try:
                found = self._library.found(asked.space, candidate)
            except Unavailable as error:  # one damaged file spoils no answer about the others
                log.error("%s", error)
                damaged.append(candidate)
                whole = False
                continue
            if found is None:
                damaged.append(candidate)
                continue
            model, theirs = found
            items.append(_exact(candidate, ours, theirs))
            overlapped.append((model.id, model.content_id, theirs))
        if keep:
            self._keep(asked, overlapped)
        items += self._estimated(asked, apart, damaged)
        return items, whole

    def jaccards(self, asked: Query, ids: Sequence[int]) -> dict[int, float]:
        """J as all full-width minhashes estimate it, under the ids of models that exist."""
        values = self._library.values(asked.session, asked.space, ids)
        if not values:
            return {}
        jaccards = jaccard_estimates(np.stack(list(values.values())), asked.subject.values)
        return dict(zip(values, jaccards.tolist(), strict=True))

    def _keep(self, asked: Query, overlapped: Sequence[tuple[int, int, PackedSupport]]) -> None:
        if asked.sketch is None or not overlapped:
            return
        ids, contents = np.array([entry[:2] for entry in overlapped], np.int64).T
        counts = asked.file.counts(asked.sketch, ids, contents)
        for place in np.flatnonzero(counts[:, 0] < 0).tolist():
            asked.file.write_packed(*overlapped[place])

    def _estimated(
        self, asked: Query, apart: Sequence[Candidate], damaged: Sequence[Candidate]
    ) -> list[Neighbor]:
        if not apart and not damaged:
            return []
        jaccards = self.jaccards(asked, [candidate.id for candidate in (*apart, *damaged)])
        sketched = self._in_sample(asked, [c for c in apart if c.content_id])
        return [
            _sharper(candidate, asked, jaccards[candidate.id], sketched.get(candidate.id))
            for candidate in (*apart, *damaged)
            if candidate.id in jaccards
        ]

    def _in_sample(
        self, asked: Query, candidates: Sequence[Candidate]
    ) -> dict[int, tuple[int, int]]:
        """Shared and own members of those that have a sketch, under their ids."""
        if asked.sketch is None or not candidates:
            return {}
        ids = np.array([candidate.id for candidate in candidates], np.int64)
        contents = np.array([candidate.content_id for candidate in candidates], np.int64)
        counts = asked.file.counts(asked.sketch, ids, contents)
        known = {
            candidate.id: (shared, members)
            for candidate, (shared, members) in zip(candidates, counts.tolist(), strict=True)
            if shared >= 0
        }
        missing = [candidate for candidate in candidates if candidate.id not in known]
        for candidate, sketch in self._read(asked, missing):
            known[candidate.id] = asked.sketch.shared(sketch), sketch.members
            asked.file.write(candidate.id, candidate.content_id, sketch)
        return known

    def _read(
        self, asked: Query, candidates: Sequence[Candidate]
    ) -> Iterable[tuple[Candidate, Sketch]]:
        """The sketches themselves, from where the truth is."""
        sent = sketches_by_id(asked.session, [c.id for c in candidates if c.blob_key is None])
        for candidate in candidates:
            if candidate.id in sent:
                yield candidate, wire.decode_sketch(sent[candidate.id])
            elif candidate.blob_key is not None:
                try:
                    found = self._library.found(asked.space, candidate)
                except Unavailable as error:
                    log.error("%s", error)
                    continue
                if found is not None and found[0].content_id == candidate.content_id:
                    yield candidate, found[1].sketch(SAMPLE_SIZE, SAMPLE_SEED)


def _sketch(space: SpaceRecord, subject: Subject) -> Sketch | None:
    """The subject's sketch, if that tells more than its signature."""
    num_perm, sketch = space.signature.num_perm, subject.sketch
    if subject.packed is not None:
        expected = subject.packed.k * SAMPLE_SIZE / max(space.num_parameters, SAMPLE_SIZE)
        if space.num_parameters > SAMPLE_SIZE and expected < num_perm / 2:
            return None  # not worth looking the sample up
        sketch = subject.packed.sketch(SAMPLE_SIZE, SAMPLE_SEED)
    return sketch if sketch is not None and is_sharper(sketch, num_perm) else None


def _exact(candidate: Candidate, ours: PackedSupport, theirs: PackedSupport) -> Neighbor:
    shared = shared_packed(ours, theirs)
    similarity = estimators.similarity_of(shared, ours.k, theirs.k)
    return Neighbor(
        model=candidate.name,
        similarity=similarity,
        jaccard=estimators.jaccard_of(similarity),
        estimate="exact",
        standard_error=0.0,
        shared_indices=shared,
    )


def _sharper(
    candidate: Candidate, asked: Query, jaccard: float, counts: tuple[int, int] | None
) -> Neighbor:
    """By sketches where these saw more members of the union than a signature has values."""
    num_perm = asked.space.signature.num_perm
    if asked.sketch is not None and counts is not None:
        shared, theirs = counts
        ours = asked.sketch.members
        whole = asked.space.num_parameters <= asked.sketch.size
        if whole or ours + theirs - shared > num_perm:
            similarity = similarity_in_sample(shared, ours, theirs)
            return Neighbor(
                model=candidate.name,
                similarity=similarity,
                jaccard=estimators.jaccard_of(similarity),
                estimate="sketch",
                standard_error=0.0 if whole else standard_error_in_sample(shared, ours, theirs),
                shared_indices=None,
            )
    return Neighbor(
        model=candidate.name,
        similarity=estimators.similarity_from_jaccard(jaccard),
        jaccard=jaccard,
        estimate="signature",
        standard_error=estimators.standard_error(jaccard, num_perm),
        shared_indices=None,
    )
