"""Which cluster something would be in that was not there when the clustering was made.

The nearest of the clustered models vote, each by how much more similar it is than the first one
that has no vote: so a small cluster is not outvoted by a large one that is farther away, as it is
when all count alike; they do where none is more similar. Measured on planted groups, this is right
more often than the nearest exemplar, which is one model and no more. It stores nothing and changes
no clustering.
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

__all__ = ["NewcomerAssignment"]

_VOTERS = 10
_ASKED = (11, 100, 1000)
"""Neighbours that are sought, until enough of them are of the clustering: others came since."""
_FEW = 1000
"""Models of a clustering that are compared themselves, when it is not of the whole space."""
_SPARE = 2
"""How many times as many of them are compared as sharply as can be, as count."""


class NewcomerAssignment:
    """Places newcomers.

    Args:
        search: finds the nearest of a space.
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
        held: ClusteringContent,
        subject: Subject,
        tags: Sequence[str],
    ) -> Assignment:
        """The cluster that the nearest clustered models vote for; -1 where none of them is near.

        Args:
            held: the clustering.
            tags: that all of its models carried.
        """
        label_of = dict(zip(held.models, held.labels, strict=True))
        if len(label_of) <= _FEW:
            near = self._among(session, space, subject, held.models)
        else:
            near = self._nearest(session, space, subject, label_of, tags)
        return _elected(clustering_id, held, label_of, near)

    def _nearest(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        label_of: Mapping[str, int],
        tags: Sequence[str],
    ) -> list[Neighbor]:
        known: list[Neighbor] = []
        for k in _ASKED:
            found = self._search.neighbors(session, space, subject, k=k, tags=tags)
            known = [item for item in found if item.model in label_of]
            if len(known) > _VOTERS or len(found) < k:
                break
        return known

    def _among(
        self, session: Reader, space: SpaceRecord, subject: Subject, names: Sequence[str]
    ) -> list[Neighbor]:
        """Those of few models that still exist, the nearest first."""
        asked = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, names)
        jaccards = self._comparer.jaccards(asked, [candidate.id for candidate in candidates])
        candidates.sort(key=lambda c: (-jaccards.get(c.id, 0.0), c.name))
        found, _ = self._comparer.compare(
            asked, candidates[: _SPARE * (_VOTERS + 1)], cache_sketches=False
        )
        return sorted(found, key=lambda item: (-item.similarity, item.model))


def _elected(
    clustering_id: str,
    held: ClusteringContent,
    label_of: Mapping[str, int],
    near: Sequence[Neighbor],
) -> Assignment:
    """Count the votes of the nearest, given in order."""
    near = [item for item in near if item.similarity > 0]
    voters = near[:_VOTERS]
    least = near[_VOTERS].similarity if len(near) > _VOTERS else 0.0
    weighty = any(item.similarity > least for item in voters)
    weights: dict[int, float] = {}
    for item in voters:
        cluster = label_of[item.model]
        weight = item.similarity - least if weighty else 1.0  # equally near, all count alike
        weights[cluster] = weights.get(cluster, 0.0) + weight
    # Of equal ones the cluster of the nearest: dictionaries keep their order.
    winner = max(weights, key=lambda cluster: weights[cluster], default=NOISE)
    total = sum(weights.values())
    votes = tuple(
        Vote(item.model, item.similarity, item.estimate, item.standard_error, label_of[item.model])
        for item in voters
    )
    own = [vote for vote in votes if vote.cluster == winner]
    exemplar_of = dict(zip(held.clusters, held.exemplars, strict=True))
    return Assignment(
        clustering=clustering_id,
        cluster=winner,
        exemplar=exemplar_of.get(winner),
        share=weights[winner] / total if voters else 0.0,
        similarity=own[0].similarity if own else 0.0,
        votes=votes,
    )
