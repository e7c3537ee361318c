"""The assignment of a new model to a cluster of an existing clustering.

The model is in the cluster whose ten nearest members are the most similar to it on average, see
``nearest_members``, if that is at least half of what the cluster's members have among themselves
beyond chance. An assignment stores nothing and changes no clustering; a data
subspace that joins becomes a member, and moves the mean of its cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from app.infra.db.database import Reader
from app.kinship.clustering.centroids import nearest_centroid, nearest_to_join
from app.kinship.clustering.nearest_members import nearest_cluster, yardsticks
from app.kinship.clustering.records import ClusteringContent, ClusteringRecord
from app.kinship.unknown_chance import why_no_p
from app.models.catalog.reader import Subject
from app.models.catalog.repositories.candidates import Candidate, candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.models.subspaces.service import SubspaceService, check_compare
from app.search.comparer import Comparer
from app.search.service import SearchService
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.kinship.newcomers import VOTERS, is_decided
from modelkin.types.clusterings import Assignment
from modelkin.types.search import Neighbor
from modelkin.types.vocabulary import Compare

__all__ = ["NewcomerAssignment"]

_NEIGHBOR_COUNTS = (11, 100, 1000)
"""Numbers of neighbours to seek, until clustered ones decide: newer models are in no cluster."""
_MAX_DIRECT_COMPARISONS = 1000
"""The most models of a clustering that are compared directly, without a search."""
_CANDIDATE_FACTOR = 2
"""Models compared as sharply as possible, for each voter."""
_CONTENDERS = 3
"""The clusters nearest by signatures, whose nearest members are compared as sharply, too."""


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
        """Find the nearest cluster; -1 if it is not near beyond chance, or far less than its
        members.

        In a space of data subspaces this is the cluster of the nearest centroid.

        Args:
            tags: the tags that all of its models carried.
        """
        check_compare(space, compare)
        if space.kind == "subspaces":
            placed = nearest_centroid(
                self._subspaces, session, space, clustering, content, subject, compare
            )
            return replace(placed, no_p=why_no_p(space, known=False))
        label_of = dict(zip(content.models, content.labels, strict=True))
        if len(label_of) <= _MAX_DIRECT_COMPARISONS:
            near, sizes = self._among(session, space, subject, label_of)
        else:
            near, sizes = self._nearest(session, space, subject, label_of, tags)
        near = self._with_chance(session, space, subject, near)
        voters = near[:VOTERS]
        pairs = self._support_sizes(session, space, subject, voters)
        constants = self._comparer.constants(session, space, subject)
        placed = nearest_cluster(
            clustering.id,
            content,
            label_of,
            near,
            _nearness(space, voters, pairs, len(label_of)),
            sizes=sizes,
            yardsticks=yardsticks(space, content, voters, pairs),
        )
        shares = [item.covered for item in voters if item.covered is not None]
        covered = min(shares, default=None)
        why = why_no_p(space, known=placed.log10_p is not None)
        return replace(placed, constant_tensors=constants.names, covered=covered, no_p=why)

    def join(
        self,
        session: Reader,
        space: SpaceRecord,
        clustering: ClusteringRecord,
        content: ClusteringContent,
        subject: Subject,
    ) -> tuple[Assignment, ClusteringContent]:
        """Assign a stored data subspace, and count it in the mean of its cluster.

        Returns:
            Where the model belongs, and the clustering with it.

        Raises:
            InvalidParameter: the model is in the clustering already, or has no block that the
                clustering compared.
        """
        placed, joined = nearest_to_join(
            self._subspaces, session, space, clustering, content, subject
        )
        return replace(placed, no_p=why_no_p(space, known=False)), joined

    def _with_chance(
        self, session: Reader, space: SpaceRecord, subject: Subject, near: list[Neighbor]
    ) -> list[Neighbor]:
        """Return the neighbours; voters have kappa where it is known."""
        voters = near[:VOTERS]
        if any(item.expected is None for item in voters):  # else the search has found it
            voters = self._comparer.with_chance(session, space, subject, voters)
        return [*voters, *near[VOTERS:]]

    def _support_sizes(
        self, session: Reader, space: SpaceRecord, subject: Subject, voters: Sequence[Neighbor]
    ) -> dict[str, tuple[int, int]]:
        """Return the numbers of indices of the newcomer and of each voter, by the voter's name."""
        found = candidates_by_name(session, space, [item.model for item in voters])
        sizes = {candidate.name: candidate.support_size for candidate in found}
        own = subject.packed.k if subject.packed is not None else None
        if own is None and subject.model is not None:
            own = subject.model.support_size
        # A signature that is not stored comes without its K: that of the voter stands in.
        return {name: (size if own is None else own, size) for name, size in sizes.items()}

    def _nearest(
        self,
        session: Reader,
        space: SpaceRecord,
        subject: Subject,
        label_of: Mapping[str, int],
        tags: Sequence[str],
    ) -> tuple[list[Neighbor], Mapping[int, int]]:
        """The nearest of many models, until they decide, and the sizes of all clusters."""
        sizes = Counter(label_of.values())
        known: list[Neighbor] = []
        for k in _NEIGHBOR_COUNTS:
            found = self._search.neighbors(session, space, subject, k=k, tags=tags)
            known = [item for item in found if item.model in label_of]
            if len(found) < k or (len(known) > VOTERS and is_decided(label_of, known, sizes)):
                break
        return known, sizes

    def _among(
        self, session: Reader, space: SpaceRecord, subject: Subject, label_of: Mapping[str, int]
    ) -> tuple[list[Neighbor], Mapping[int, int]]:
        """The nearest of few models, nearest first, and the sizes of the clusters that may win.

        Deleted models are left out.
        """
        query = self._comparer.query(session, space, subject)
        candidates = candidates_by_name(session, space, list(label_of))
        jaccards = self._comparer.jaccards(query, [candidate.id for candidate in candidates])
        candidates.sort(key=lambda c: (-jaccards.get(c.id, 0.0), c.name))
        members: dict[int, list[Candidate]] = {}
        for candidate in candidates:
            members.setdefault(label_of[candidate.name], []).append(candidate)
        heads = {cluster: own[:VOTERS] for cluster, own in members.items()}
        means = {c: fmean(jaccards.get(x.id, 0.0) for x in head) for c, head in heads.items()}
        contenders = sorted(means, key=lambda cluster: -means[cluster])[:_CONTENDERS]
        chosen = {c.id: c for c in candidates[: _CANDIDATE_FACTOR * (VOTERS + 1)]}
        chosen |= {c.id: c for cluster in contenders for c in heads[cluster]}
        found, _ = self._comparer.compare(query, [*chosen.values()], cache_sketches=False)
        near = sorted(found, key=lambda item: (-item.similarity, item.model))
        return near, {cluster: len(members[cluster]) for cluster in contenders}


def _nearness(
    space: SpaceRecord,
    voters: Sequence[Neighbor],
    pairs: Mapping[str, tuple[int, int]],
    comparisons: int,
) -> dict[str, Nearness]:
    """How near each voter is beside unrelated models, of so many that were compared."""
    return {
        item.model: Nearness.of(
            item.similarity,
            item.standard_error,
            item.expected,
            pairs.get(item.model, (0, 0)),
            space.num_parameters,
            comparisons,
            item.shared_indices,
        )
        for item in voters
    }
