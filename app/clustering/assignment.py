"""The assignment of a new model to a cluster of an existing clustering.

The nearest clustered models vote. The weight of a vote is the voter's S minus the S of the nearest
model without a vote. So a large cluster farther away does not outvote a small one, as it would if
all votes counted alike. If all are equally similar, they do count alike. On planted groups this is
right more often than the nearest exemplar. An assignment stores nothing and changes no clustering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.catalog.reader import Subject
from app.catalog.repositories.candidates import candidates_by_name
from app.clustering.centroids import nearest_centroid
from app.clustering.records import ClusteringContent, ClusteringRecord
from app.clustering.votes import VOTERS, count_votes
from app.infra.db.database import Reader
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.spaces.records import SpaceRecord
from app.subspaces.service import SubspaceService, check_compare
from modelkin.core.kinship.donors import is_unrelated
from modelkin.core.similarity.chance import kappa as beyond_chance
from modelkin.types.clusterings import Assignment
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import Compare

__all__ = ["NewcomerAssignment"]

_NEIGHBOR_COUNTS = (11, 100, 1000)
"""Neighbours that are sought, until enough of them are in the clustering; newer models are not."""
_MAX_DIRECT_COMPARISONS = 1000
"""A clustering of up to so many models has its own models compared, without a search."""
_NUM_ERRORS = 2
"""Standard errors by which an estimate is beyond chance."""
_CANDIDATE_FACTOR = 2
"""Models compared as sharply as possible, for each voter."""


class NewcomerAssignment:
    """Assigns new models to clusters.

    Args:
        search: finds the nearest models of a space.
        comparer: compares with few models.
    """

    def __init__(
        self, search: SearchService, comparer: Comparer, subspaces: SubspaceService
    ) -> None:
        self._search = search
        self._comparer = comparer
        self._subspaces = subspaces

    def assign(
        self,
        session: Reader,
        space: SpaceRecord,
        clustering: ClusteringRecord,
        content: ClusteringContent,
        subject: Subject,
        tags: Sequence[str],
        compare: Compare | None = None,
    ) -> Assignment:
        """The cluster that the nearest clustered models vote for; -1 if none is nearer than chance.

        In a space of data subspaces it is the cluster of the nearest centroid.

        Args:
            content: of the clustering.
            tags: that all of its models carried.
        """
        check_compare(space, compare)
        if space.kind == "subspaces":
            return nearest_centroid(
                self._subspaces, session, space, clustering, content, subject, compare
            )
        label_of = dict(zip(content.models, content.labels, strict=True))
        if len(label_of) <= _MAX_DIRECT_COMPARISONS:
            near = self._among(session, space, subject, content.models)
        else:
            near = self._nearest(session, space, subject, label_of, tags)
        near = self._with_chance(session, space, subject, near)
        unrelated = self._unrelated(session, space, subject, near[:VOTERS])
        return count_votes(clustering.id, content, label_of, near, unrelated)

    def _with_chance(
        self, session: Reader, space: SpaceRecord, subject: Subject, near: list[Neighbor]
    ) -> list[Neighbor]:
        """The same, voters with kappa where that is known."""
        voters = near[:VOTERS]
        if any(item.expected is None for item in voters):  # else the search has found it
            voters = self._comparer.with_chance(session, space, subject, voters)
        return [*voters, *near[VOTERS:]]

    def _unrelated(
        self, session: Reader, space: SpaceRecord, subject: Subject, voters: Sequence[Neighbor]
    ) -> set[str]:
        """The models that chance alone may make as near, by the bound for donors.

        Of many estimates the largest errs upwards, so one counts less two of its standard errors.
        """
        found = candidates_by_name(session, space, [item.model for item in voters])
        sizes = {candidate.name: candidate.support_size for candidate in found}
        own = subject.packed.k if subject.packed is not None else None
        if own is None and subject.model is not None:
            own = subject.model.support_size
        unrelated = set[str]()
        for item in voters:
            size = sizes.get(item.model, 0)
            # A signature that is not stored comes without its K: that of the voter stands in.
            pair = (size if own is None else own, size)
            least = max(0.0, item.similarity - _NUM_ERRORS * item.standard_error)
            kappa = None if item.expected is None else beyond_chance(least, item.expected)
            if is_unrelated(least, kappa, pair, space.num_parameters):
                unrelated.add(item.model)
        return unrelated

    def _nearest(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        label_of: Mapping[str, int],
        tags: Sequence[str],
    ) -> list[Neighbor]:
        known: list[Neighbor] = []
        for k in _NEIGHBOR_COUNTS:
            found = self._search.neighbors(session, space, subject, k=k, tags=tags)
            known = [item for item in found if item.model in label_of]
            if len(known) > VOTERS or len(found) < k:
                break
        return known

    def _among(
        self, session: Reader, space: SpaceRecord, subject: Subject, names: Sequence[str]
    ) -> list[Neighbor]:
        """The nearest of few models, nearest first; deleted ones are left out."""
        query = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, names)
        jaccards = self._comparer.jaccards(query, [candidate.id for candidate in candidates])
        candidates.sort(key=lambda c: (-jaccards.get(c.id, 0.0), c.name))
        found, _ = self._comparer.compare(
            query, candidates[: _CANDIDATE_FACTOR * (VOTERS + 1)], cache_sketches=False
        )
        return sorted(found, key=lambda item: (-item.similarity, item.model))
