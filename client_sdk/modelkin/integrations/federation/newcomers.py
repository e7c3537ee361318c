"""The cluster of a newcomer of a federation, by the rules of a service and without one.

Supports: the cluster of the nearest members, if it is near enough (``core.kinship.newcomers``).
Data subspaces: the cluster of the nearest centroid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from modelkin.core.clustering.clustering import NOISE
from modelkin.core.indices import check_same_space
from modelkin.core.kinship.donors import expected_by_size
from modelkin.core.kinship.nearness import Nearness
from modelkin.core.kinship.newcomers import VOTERS, pairs_within, place, yardsticks
from modelkin.core.similarity.overlap import similarity
from modelkin.core.sketching.signature import Signature
from modelkin.core.subspaces.subspace import Subspace
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.integrations.federation.centroids import Centroids, usual_comparison
from modelkin.types.clusterings import Assignment, Vote

if TYPE_CHECKING:
    from modelkin.integrations.federation.cluster_history import RoundClusters

__all__ = ["Content", "assign", "kind_of"]

Content = Support | Signature | Subspace
"""What clients are compared by."""

_NO_P: Final = "chance in each tensor is not known: a service with the layout of the models says it"
_NOTHING: Final = "its data have nothing in common with any member"
_NO_NEARER: Final = (
    "no cluster is nearer than the mean of all members: start at random, or from what all share"
)


def assign(found: RoundClusters, newcomer: Content) -> Assignment:
    """The cluster that a newcomer would be in; see ``RoundClusters.assign``.

    Raises:
        InvalidParameter: the newcomer is of another kind than what the clusters are made of.
        SpaceMismatch: it is of another number of parameters, or another kind of signature.
    """
    label_of, contents = dict[str, int](), dict[str, Content]()
    for node, cluster in zip(found.nodes, found.clusters.tolist(), strict=True):
        if node in found.contents:
            name = found.names.get(node, str(node))
            label_of[name], contents[name] = cluster, found.contents[node]
    if isinstance(newcomer, Subspace):
        subspaces = {n: each for n, each in contents.items() if isinstance(each, Subspace)}
        if subspaces:
            return _by_data(found, label_of, subspaces, newcomer)
    elif isinstance(newcomer, Support | Signature):
        supports = {n: each for n, each in contents.items() if not isinstance(each, Subspace)}
        if supports:
            return _by_supports(found, label_of, supports, newcomer)
    kinds = sorted({type(each).__name__ for each in contents.values()}) or ["nothing"]
    raise InvalidParameter(
        f"the clusters are made of {' and '.join(kinds)}, and the newcomer is of "
        f"{type(newcomer).__name__}",
        field="newcomer",
    )


def _by_supports(
    found: RoundClusters,
    label_of: Mapping[str, int],
    contents: Mapping[str, Support | Signature],
    newcomer: Support | Signature,
) -> Assignment:
    """Among the ten nearest members of each cluster, with a yardstick by what members have."""
    signed = next((c for c in (newcomer, *contents.values()) if isinstance(c, Signature)), None)
    votes = [
        _vote(name, label_of[name], newcomer, other, signed) for name, other in contents.items()
    ]
    votes.sort(key=lambda vote: (-vote.similarity, vote.model))
    near = [vote for vote in votes if vote.similarity > 0]
    m, voters = newcomer.num_parameters, near[:VOTERS]
    pairs = {vote.model: (_size(newcomer), _size(contents[vote.model])) for vote in voters}
    unrelated = {
        vote.model
        for vote in voters
        if Nearness.of(
            vote.similarity, vote.standard_error, None, pairs[vote.model], m, len(votes)
        ).unrelated
    }
    within, sizes = _within(found), Counter(label_of.values())
    expected = [expected_by_size(pair, m) for pair in pairs.values()]
    placed = place(
        label_of,
        near,
        sizes=sizes,
        unrelated=unrelated,
        by=yardsticks(sizes, within, list(pairs.values()), expected),
    )
    return Assignment(
        clustering=_clustering(found),
        cluster=placed.cluster,
        exemplar=_exemplar(found, placed.cluster),
        share=placed.share,
        similarity=placed.similarity,
        votes=tuple(voters),
        margin=placed.margin,
        mean_similarity=placed.mean_similarity,
        within=placed.within,
        nearest_members=placed.members,
        reason=placed.reason,
        note=placed.note,
        no_p=_NO_P,
    )


def _vote(
    name: str,
    cluster: int,
    newcomer: Support | Signature,
    other: Support | Signature,
    signed: Signature | None,
) -> Vote:
    """S to a member: exact if all sent supports, else estimated as it is between members."""
    check_same_space(newcomer.num_parameters, other.num_parameters)
    if signed is None:
        assert isinstance(newcomer, Support)
        assert isinstance(other, Support)
        return Vote(name, similarity(newcomer, other), "exact", 0.0, cluster)
    a, b = (_signature(each, signed) for each in (newcomer, other))
    return Vote(name, a.similarity(b), "signature", a.standard_error(b), cluster)


def _by_data(
    found: RoundClusters,
    label_of: Mapping[str, int],
    contents: Mapping[str, Subspace],
    newcomer: Subspace,
) -> Assignment:
    """By the nearest centroid, unless the mean of all is as near."""
    held, names = list(contents.values()), list(contents)
    if kind_of(newcomer) != kind_of(held[0]):
        raise SpaceMismatch(
            f"the newcomer's subspace has m, constant and weighting {kind_of(newcomer)}, the "
            f"members' {kind_of(held[0])}"
        )
    labels = np.array([label_of[name] for name in names], np.int64)
    placed = Centroids(held, labels, usual_comparison(held)).place(newcomer)
    order = np.argsort(-placed.similarity, kind="stable").tolist()
    near = [at for at in order if placed.similarity[at] > 0]
    votes = tuple(
        Vote(names[at], float(placed.similarity[at]), "exact", 0.0, label_of[names[at]])
        for at in near[:VOTERS]
    )
    own = [at for at in order if labels[at] == placed.nearest][:VOTERS]
    is_in = placed.cluster != NOISE
    first = own[0] if is_in else order[0]
    reason = _NO_NEARER if votes else _NOTHING
    return Assignment(
        clustering=_clustering(found),
        cluster=placed.cluster,
        exemplar=_exemplar(found, placed.cluster),
        share=sum(vote.cluster == placed.cluster for vote in votes) / len(votes) if is_in else 0.0,
        similarity=float(placed.similarity[first]) if votes else None,
        votes=votes,
        margin=placed.margin,
        compare=placed.compare,
        mean_similarity=float(placed.similarity[own].mean()) if own else None,
        within=_within(found).get(placed.nearest),
        nearest_members=tuple(names[at] for at in own) if is_in else (),
        reason=None if is_in else reason,
        no_p=_NO_P,
    )


def kind_of(subspace: Subspace) -> tuple[int, float, str]:
    """The properties that comparable subspaces have in common."""
    return subspace.num_features, subspace.constant, subspace.weighting


def _signature(content: Support | Signature, like: Signature) -> Signature:
    if isinstance(content, Signature):
        return content
    return content.signature(like.num_perm, like.seed, like.scheme)


def _size(content: Support | Signature) -> int:
    return content.k if isinstance(content, Support) else content.support_size


def _within(found: RoundClusters) -> dict[int, float]:
    """The mean S of the pairs of each cluster's members; a cluster of one has none."""
    clusters, labels = np.unique(found.clusters), found.clusters
    means = [float(found.similarity[np.ix_(labels == c, labels == c)].mean()) for c in clusters]
    return pairs_within(labels.tolist(), clusters.tolist(), means)


def _exemplar(found: RoundClusters, cluster: int) -> str | None:
    """The name of the member that is most like the others of its cluster."""
    at = np.flatnonzero(found.clusters == cluster)
    if not at.size:
        return None
    node = found.nodes[at[found.similarity[np.ix_(at, at)].sum(1).argmax()]]
    return found.names.get(node, str(node))


def _clustering(found: RoundClusters) -> str:
    return f"round-{found.server_round}"
