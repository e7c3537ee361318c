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
from app.clustering.records import ClusteringContent
from app.infra.db.database import Reader
from app.search.comparer import Comparer
from app.search.service import SearchService
from app.spaces.records import SpaceRecord
from modelkin.core.clustering.clustering import NOISE
from modelkin.types.clusterings import Assignment, Vote
from modelkin.types.search import Neighbor

__all__ = ["NewcomerAssignment", "count_votes"]

_VOTERS = 10
_NEIGHBOR_COUNTS = (11, 100, 1000)
"""Neighbours that are sought, until enough of them are in the clustering; newer models are not."""
_MAX_DIRECT_COMPARISONS = 1000
"""A clustering of up to so many models has its own models compared, without a search."""
_CANDIDATE_FACTOR = 2
"""Models compared as sharply as possible, for each voter."""


class NewcomerAssignment:
    """Assigns new models to clusters.

    Args:
        search: finds the nearest models of a space.
        comparer: compares with few models.
    """

    def __init__(self, search: SearchService, comparer: Comparer) -> None:
        self._search = search
        self._comparer = comparer

    def assign(
        self,
        session: Reader,
        space: SpaceRecord,
        clustering_id: str,
        content: ClusteringContent,
        subject: Subject,
        tags: Sequence[str],
    ) -> Assignment:
        """The cluster that the nearest clustered models vote for; -1 if none of them is near.

        Args:
            content: of the clustering.
            tags: that all of its models carried.
        """
        label_of = dict(zip(content.models, content.labels, strict=True))
        if len(label_of) <= _MAX_DIRECT_COMPARISONS:
            near = self._among(session, space, subject, content.models)
        else:
            near = self._nearest(session, space, subject, label_of, tags)
        return count_votes(clustering_id, content, label_of, near)

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
            if len(known) > _VOTERS or len(found) < k:
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
            query, candidates[: _CANDIDATE_FACTOR * (_VOTERS + 1)], cache_sketches=False
        )
        return sorted(found, key=lambda item: (-item.similarity, item.model))


def count_votes(
    clustering_id: str,
    content: ClusteringContent,
    label_of: Mapping[str, int],
    near: Sequence[Neighbor],
) -> Assignment:
    """Count the votes of the nearest models, given in order."""
    near = [item for item in near if item.similarity > 0]
    voters = near[:_VOTERS]
    least = near[_VOTERS].similarity if len(near) > _VOTERS else 0.0
    weighted = any(item.similarity > least for item in voters)
    weights: dict[int, float] = {}
    for item in voters:
        cluster = label_of[item.model]
        weight = item.similarity - least if weighted else 1.0  # equally near models count alike
        weights[cluster] = weights.get(cluster, 0.0) + weight
    # Ties go to the cluster of the nearest model: dictionaries keep their order.
    winner = max(weights, key=lambda cluster: weights[cluster], default=NOISE)
    total = sum(weights.values())
    votes = tuple(
        Vote(item.model, item.similarity, item.estimate, item.standard_error, label_of[item.model])
        for item in voters
    )
    own = [vote for vote in votes if vote.cluster == winner]
    exemplar_of = dict(zip(content.clusters, content.exemplars, strict=True))
    return Assignment(
        clustering=clustering_id,
        cluster=winner,
        exemplar=exemplar_of.get(winner),
        share=weights[winner] / total if voters else 0.0,
        similarity=own[0].similarity if own else 0.0,
        votes=votes,
    )
