"""What neighbours are beside unrelated models, and which of them are the very same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.infra.db.database import Reader
from app.models.catalog.reader import Subject
from app.models.catalog.repositories.candidates import Candidate, candidates_by_name
from app.models.spaces.records import SpaceRecord
from modelkin.core.kinship.nearness import Nearness
from modelkin.types.search import Neighbor, Neighbors

__all__ = ["with_standing"]


def with_standing(
    session: Reader, space: SpaceRecord, subject: Subject, found: Neighbors
) -> Neighbors:
    """Add to neighbours, for readers, whether unrelated models may be as near.

    All models of the space were compared, of which these are the nearest. A model that has gone
    meanwhile is as it was, and so are all of a space of data subspaces.
    """
    if space.kind == "subspaces" or not found.items:
        return found
    candidates = candidates_by_name(session, space, [item.model for item in found])
    known = {candidate.name: candidate for candidate in candidates}
    size, digest = _size_of(subject), _digest_of(subject, found.items)
    items = (
        _judge(space, size, digest, item, known[item.model]) if item.model in known else item
        for item in found
    )
    return replace(found, items=tuple(items))


def _judge(
    space: SpaceRecord, size: int, digest: str | None, item: Neighbor, candidate: Candidate
) -> Neighbor:
    near = Nearness.of(
        item.similarity,
        item.standard_error,
        item.expected,
        (size, candidate.support_size),
        space.num_parameters,
        space.models,
        item.shared_indices,
    )
    return replace(
        item,
        unrelated=near.unrelated,
        log10_p=near.log10_p,
        identical=digest is not None and digest == candidate.digest,
    )


def _size_of(subject: Subject) -> int:
    """How many indices the subject has; 0 of a signature that is not stored."""
    if subject.model is not None:
        return subject.model.support_size
    return 0 if subject.packed is None else subject.packed.k


def _digest_of(subject: Subject, items: Sequence[Neighbor]) -> str | None:
    """The digest of the subject's support; that of one which is not stored is not computed unless
    a neighbour may have it.
    """
    if subject.model is not None:
        return subject.model.digest
    if subject.packed is None or all(item.similarity < 1.0 for item in items):
        return None
    return subject.packed.digest
