"""Comparisons of data subspaces: neighbours, pairs, matrices and distances, all of them exact.

The request chooses the compared blocks, else the space. If one side has no classes, the blocks of
all samples are compared, unless the request asks for classes.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import WrongKind
from app.models.catalog.reader import Subject
from app.models.catalog.repositories import models
from app.models.catalog.repositories.candidates import candidates_by_id
from app.models.spaces.records import SpaceRecord
from app.models.subspaces.index import SubspaceIndex
from modelkin.core.estimators import jaccard_of
from modelkin.core.subspaces.affinity import affinities, affinity
from modelkin.core.subspaces.angles import principal_angles
from modelkin.core.subspaces.subspace import Compare, Subspace
from modelkin.errors import InvalidParameter
from modelkin.types.search import BlockAngles, Neighbor, Neighbors, Overlap

__all__ = [
    "Nearest",
    "Similarities",
    "SubspaceService",
    "check_compare",
    "choose_compare",
    "common_compare",
    "exact_neighbor",
    "require_supports",
    "note",
    "subspace_of",
]

_MAX_TIES = 5_000
"""The most models as near as the k-th whose names decide which of them are in the answer."""

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Similarities:
    """S of one subject with the other models of its space.

    Attributes:
        ids: the ids of the models, ascending, shape ``(n,)``.
        similarity: S with each model, shape ``(n,)``.
        compare: the compared blocks.
    """

    ids: Ids
    similarity: Floats
    compare: Compare


@dataclass(frozen=True, slots=True)
class Nearest:
    """The most similar models.

    Attributes:
        items: the neighbours, best first.
        considered: the number of compared models with the requested tags.
    """

    items: tuple[Neighbor, ...]
    considered: int


class SubspaceService:
    """The use cases that compare data subspaces.

    Args:
        index: the columns of all models.
    """

    def __init__(self, index: SubspaceIndex) -> None:
        self._index = index

    def similarities(
        self, session: Reader, space: SpaceRecord, subject: Subject, compare: Compare
    ) -> Similarities:
        """S of the subject with all other models."""
        ids, similarity = self._index.query(session, space, subspace_of(subject), compare)
        order = np.argsort(ids)
        ids, similarity = ids[order], similarity[order]
        if subject.model is not None:
            others = ids != subject.model.id
            ids, similarity = ids[others], similarity[others]
        return Similarities(ids, similarity, compare)

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
        compare: Compare | None = None,
        deadline: Deadline = NEVER,
    ) -> Neighbors:
        """Return the ``k`` models with the nearest data, best first, without the subject.

        Raises:
            InvalidParameter: the method is for supports, or the subject lacks the blocks to
                compare.
            ClientLeft: the client has gone.
        """
        if method not in ("auto", "exact"):
            raise InvalidParameter(
                f"data subspaces are always compared exactly: method is auto or exact, not "
                f"{method}",
                field="method",
            )
        chosen = choose_compare(space, subspace_of(subject), compare)
        found = self.similarities(session, space, subject, chosen)
        deadline.require_client()
        kept = self.nearest(session, space, found, k=k, min_similarity=min_similarity, tags=tags)
        return Neighbors(
            items=kept.items,
            model=None if subject.model is None else subject.model.name,
            method="exact",
            candidates=kept.considered,
            degraded=False,
            truncated=False,
            note=note(compare, chosen),
        )

    def nearest(
        self,
        session: Reader,
        space: SpaceRecord,
        similarities: Similarities,
        *,
        k: int,
        min_similarity: float = 0.0,
        tags: Sequence[str] = (),
    ) -> Nearest:
        """Return the ``k`` most similar of these models, best first and ties by name."""
        ids, similarity = similarities.ids, similarities.similarity
        if tags:
            among = np.isin(ids, list(models.ids_with_tags(session, space, tags)))
            ids, similarity = ids[among], similarity[among]
        near = similarity >= min_similarity
        considered = ids.size
        ids, similarity = ids[near], similarity[near]
        if ids.size > k:
            kth = np.partition(similarity, ids.size - k)[ids.size - k]
            above, tied = np.flatnonzero(similarity > kth), np.flatnonzero(similarity == kth)
            kept = np.concatenate([above, tied[:_MAX_TIES]])
            ids, similarity = ids[kept], similarity[kept]
        found = dict(zip(ids.tolist(), similarity.tolist(), strict=True))
        items = (
            exact_neighbor(candidate.name, found[candidate.id])
            for candidate in candidates_by_id(session, space, list(found))
        )
        best = heapq.nsmallest(k, items, key=lambda item: (-item.similarity, item.model))
        return Nearest(tuple(best), considered)

    def overlap(
        self, session: Reader, space: SpaceRecord, a: str, b: str, compare: Compare | None
    ) -> Overlap:
        """Compare two models, with the principal angles of each block that both have.

        Raises:
            ModelNotFound: there is no such model.
            InvalidParameter: a model lacks the blocks to compare.
        """
        one, other = self.load(session, space, [a, b])
        chosen = common_compare(space, [one, other], compare)
        similarity = affinity(one, other, compare=chosen)
        angles = tuple(
            BlockAngles(label, tuple(np.degrees(found).tolist()))
            for label, found in principal_angles(one, other).items()
        )
        return Overlap(
            a,
            b,
            None,
            similarity,
            jaccard_of(similarity),
            note=note(compare, chosen),
            angles=angles,
        )

    def matrix(
        self,
        session: Reader,
        space: SpaceRecord,
        names: Sequence[str],
        compare: Compare | None,
        deadline: Deadline = NEVER,
    ) -> Floats:
        """Return S of all pairs of some models, in the order of ``names``.

        Raises:
            ModelNotFound, InvalidParameter, ClientLeft: see :meth:`overlap`.
        """
        subspaces = self.load(session, space, names)
        session.release()
        deadline.require_client()
        return affinities(subspaces, common_compare(space, subspaces, compare))

    def load(self, session: Reader, space: SpaceRecord, names: Sequence[str]) -> list[Subspace]:
        """The subspaces of some models, in order; :class:`ModelNotFound` names one missing."""
        records = models.get_models(session, space, names)
        data = models.signatures_by_id(session, [record.id for record in records])
        return [Subspace.from_bytes(data[record.id]) for record in records]


def check_compare(space: SpaceRecord, compare: Compare | None) -> None:
    """Raise :class:`InvalidParameter` for a ``compare`` in a space of supports."""
    if compare is not None and space.kind == "supports":
        raise InvalidParameter(
            f"compare is for data subspaces, and space {space.name!r} holds supports: leave it out",
            field="compare",
        )


def subspace_of(subject: Subject) -> Subspace:
    """The subspace of a subject in a space of data subspaces."""
    assert subject.subspace is not None, "the reader gives one in such a space"
    return subject.subspace


def choose_compare(space: SpaceRecord, subject: Subspace, compare: Compare | None) -> Compare:
    """Choose the blocks to compare with a subject: the requested, else the space's if it has them.

    Raises:
        InvalidParameter: the subject lacks the blocks.
    """
    return common_compare(space, [subject], compare)


def common_compare(
    space: SpaceRecord, subspaces: Sequence[Subspace], compare: Compare | None
) -> Compare:
    """Choose the blocks to compare: the requested, else the space's if all subspaces have them.

    Raises:
        InvalidParameter: a subspace lacks the blocks.
    """
    spec = space.subspaces
    assert spec is not None
    wanted = spec.compare if compare is None else compare
    lacking = [each for each in subspaces if not each.of(wanted)]
    if not lacking:
        return wanted
    other: Compare = "whole" if wanted == "classes" else "classes"
    if compare is None and all(each.of(other) for each in subspaces):
        return other
    what = "classes" if wanted == "classes" else "block of all samples"
    raise InvalidParameter(
        f"a subspace without {what} cannot be compared by {wanted}: ask for compare={other}",
        field="compare",
    )


def require_supports(space: SpaceRecord, what: str, instead: str) -> None:
    """Raise :class:`WrongKind` in a space of data subspaces; ``instead`` names what they can do."""
    if space.kind != "supports":
        raise WrongKind(f"space {space.name!r} holds data subspaces, and {what}: {instead}")


def note(asked: Compare | None, chosen: Compare) -> str | None:
    """The note of an answer that compared less than the space's blocks, or None."""
    if asked is None and chosen == "whole":
        return "compared by all samples together, not by class"
    return None


def exact_neighbor(name: str, similarity: float) -> Neighbor:
    """A neighbour by an S that is not estimated."""
    return Neighbor(
        model=name,
        similarity=similarity,
        jaccard=jaccard_of(similarity),
        estimate="exact",
        standard_error=0.0,
        shared_indices=None,
    )
