"""Placing a newcomer's data in the cluster of the nearest centroid.

S is an inner product of unit vectors, so a cluster has a mean, and the squared distance to it is
``1 - 2 mean S(x, members) + mean S(members, members)``. On planted groups this is right more often
than votes of the ten nearest models if clusters are smaller than ten, and as often otherwise. A
newcomer that is no nearer to any centroid than to the mean of all models is in no cluster: the
weights of a wrong cluster are a worse start than random ones. See docs/starting.md.

A newcomer may join the cluster, which moves its mean: the running mean of DFL2G, Algorithm 1. Later
newcomers are then compared with it, too, so where they are placed depends on who came before.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from app.infra.db.database import Reader
from app.kinship.clustering.nearest_members import witnesses
from app.kinship.clustering.records import ClusteringContent, ClusteringRecord
from app.models.catalog.reader import Subject
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from app.models.subspaces.service import SubspaceService, exact_neighbor, subspace_of
from modelkin.core.clustering.clustering import NOISE, mean_with_newcomer, mean_within
from modelkin.core.kinship.newcomers import VOTERS, pairs_within
from modelkin.core.subspaces.affinity import SubspaceDistances, scaled_columns
from modelkin.core.subspaces.subspace import Compare
from modelkin.errors import InvalidParameter
from modelkin.types.clusterings import Assignment

__all__ = ["nearest_centroid", "nearest_to_join"]

_NO_CLASS = (
    "it has no class in common with any model of the clustering; assign it with compare=whole, "
    "which compares all samples"
)
_NOTHING = "its data have nothing in common with any model of the clustering"
_NO_NEARER = (
    "no cluster is nearer than the mean of all models: start at random, or from what all share"
)

_MOST_COMPARED = 500
"""Members whose mean S to each other is computed where the clustering did not store it."""

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Members:
    """The clustered models that still exist, by name.

    Attributes:
        names: the names, shape ``(n,)``.
        labels: the id of each model's cluster, shape ``(n,)``.
        similarity: S of each model with the newcomer, shape ``(n,)``.
    """

    names: Sequence[str]
    labels: Labels
    similarity: Floats


def nearest_centroid(
    subspaces: SubspaceService,
    session: Reader,
    space: SpaceRecord,
    clustering: ClusteringRecord,
    content: ClusteringContent,
    subject: Subject,
    compare: Compare | None,
) -> Assignment:
    """Find the cluster with the nearest centroid; -1 if the mean of all models is as near.

    Where the newcomer has no class in common with any model, and the request does not insist on
    classes, all samples are compared: the answer says so.

    Raises:
        InvalidParameter: the newcomer has no block of this kind.
    """
    clustered: Compare = clustering.chosen.get("compare", "whole")
    chosen = _possible(subject, compare or clustered, insist=compare is not None)
    members = _members(subspaces, session, space, content, subject, chosen)
    if compare is None and chosen == "classes" and not members.similarity.any():
        chosen = _possible(subject, "whole", insist=True)
        members = _members(subspaces, session, space, content, subject, chosen)
    _require_members(members)
    known = _with_lengths(subspaces, session, space, clustered, content, members, chosen)
    return _place(clustering.id, known, members, chosen)


def nearest_to_join(
    subspaces: SubspaceService,
    session: Reader,
    space: SpaceRecord,
    clustering: ClusteringRecord,
    content: ClusteringContent,
    subject: Subject,
) -> tuple[Assignment, ClusteringContent]:
    """Find the cluster with the nearest centroid, by the blocks that the clustering compared.

    Returns:
        Where the newcomer belongs, and the clustering with it; as it is for cluster -1.

    Raises:
        InvalidParameter: the model is in the clustering already, or has no block that the
            clustering compared.
    """
    assert subject.model is not None
    name = subject.model.name
    if name in content.models:
        raise InvalidParameter(
            f"model {name!r} is in clustering {clustering.id} already", field="model"
        )
    compare: Compare = clustering.chosen.get("compare", "whole")
    chosen = _possible(subject, compare, insist=True, field="model")
    members = _members(subspaces, session, space, content, subject, chosen)
    _require_members(members)
    known = _with_lengths(subspaces, session, space, chosen, content, members, chosen)
    placed = _place(clustering.id, known, members, chosen)
    if placed.cluster == NOISE:
        return placed, content
    return placed, _joined(known, members, name, placed.cluster)


def _joined(
    content: ClusteringContent, members: _Members, name: str, cluster: int
) -> ClusteringContent:
    """A clustering with one more member; models stay in order, and clusters by their size."""
    at = bisect(content.models, name)
    labels = (*content.labels[:at], cluster, *content.labels[at:])
    row, size = content.clusters.index(cluster), content.labels.count(cluster)
    own = float(members.similarity[members.labels == cluster].mean())
    within = list(content.within)
    within[row] = mean_with_newcomer(within[row], size, own)
    overall = mean_with_newcomer(
        content.overall or 0.0, len(content.models), float(members.similarity.mean())
    )
    joined = replace(
        content,
        models=(*content.models[:at], name, *content.models[at:]),
        labels=labels,
        within=tuple(within),
        overall=overall,
    )
    sizes = Counter(labels)
    order = sorted(range(len(content.clusters)), key=lambda row: -sizes[content.clusters[row]])
    by_cluster = ("clusters", "exemplars", "within", "log10_p", "kappa")
    held = {field: getattr(joined, field) for field in by_cluster}
    sorted_: dict[str, Any] = {
        field: tuple(value[row] for row in order) for field, value in held.items() if value
    }
    return replace(joined, **sorted_)


def _require_members(members: _Members) -> None:
    if not members.names:
        raise InvalidParameter(
            "none of the models of this clustering exists any more: make a new one",
            field="clustering",
        )


def _with_lengths(
    subspaces: SubspaceService,
    session: Reader,
    space: SpaceRecord,
    clustered: Compare,
    content: ClusteringContent,
    members: _Members,
    compare: Compare,
) -> ClusteringContent:
    """The clustering with the squared lengths of its means, by the blocks that are compared."""
    if compare == clustered and content.within and content.overall is not None:
        return content
    within, overall = _lengths(subspaces, session, space, content, members, compare)
    return replace(content, within=tuple(within), overall=overall)


def _possible(
    subject: Subject, compare: Compare, *, insist: bool, field: str = "compare"
) -> Compare:
    """Return the requested blocks, or the blocks of all samples if the newcomer has no classes."""
    newcomer = subspace_of(subject)
    if newcomer.of(compare):
        return compare
    if not insist and newcomer.of("whole"):
        return "whole"
    what = "class" if compare == "classes" else "block of all samples"
    raise InvalidParameter(f"the newcomer's subspace has no {what} to compare", field=field)


def _members(
    subspaces: SubspaceService,
    session: Reader,
    space: SpaceRecord,
    content: ClusteringContent,
    subject: Subject,
    compare: Compare,
) -> _Members:
    found = subspaces.similarities(session, space, subject, compare)
    place = {model_id: at for at, model_id in enumerate(found.ids.tolist())}
    label_of = dict(zip(content.models, content.labels, strict=True))
    known = sorted(
        (candidate.name, place[candidate.id])
        for candidate in candidates_by_name(session, space, content.models)
        if candidate.id in place
    )
    return _Members(
        [name for name, _ in known],
        np.array([label_of[name] for name, _ in known], np.int64),
        found.similarity[[at for _, at in known]],
    )


def _lengths(
    subspaces: SubspaceService,
    session: Reader,
    space: SpaceRecord,
    content: ClusteringContent,
    members: _Members,
    compare: Compare,
) -> tuple[Sequence[float], float]:
    """The squared length of each centroid, and of the mean of all, from a sample of members."""
    step = -(-len(members.names) // _MOST_COMPARED)
    names = members.names[::step]
    held = subspaces.load(session, space, names)
    distances = SubspaceDistances([scaled_columns(each, compare) for each in held])
    row_of = {cluster: row for row, cluster in enumerate(content.clusters)}
    rows = np.array([row_of.get(label, NOISE) for label in members.labels[::step].tolist()])
    present, compacted = np.unique(rows[rows >= 0], return_inverse=True)
    labels = rows.copy()
    labels[rows >= 0] = compacted
    found = np.ones(len(content.clusters))
    found[present] = mean_within(distances, labels)
    return found.tolist(), float(mean_within(distances, np.zeros_like(labels))[0])


def _place(
    clustering_id: str,
    content: ClusteringContent,
    members: _Members,
    compare: Compare,
) -> Assignment:
    """The assignment to the nearest centroid, with the ten nearest models as its witnesses."""
    within, overall = content.within, content.overall or 0.0
    # Names ascend, so a stable sort leaves ties in their order.
    order = np.argsort(-members.similarity, kind="stable").tolist()
    label_of = dict(zip(members.names, members.labels.tolist(), strict=True))
    near = [
        exact_neighbor(members.names[at], float(members.similarity[at])) for at in order[:VOTERS]
    ]
    votes = witnesses(label_of, [item for item in near if item.similarity > 0])
    nowhere = Assignment(
        clustering=clustering_id,
        cluster=NOISE,
        share=0.0,
        similarity=votes[0].similarity if votes else None,
        votes=votes,
        margin=0.0,
        compare=compare,
        reason=_NO_CLASS if compare == "classes" else _NOTHING,
    )
    distances = {
        cluster: 1.0 - 2.0 * float(members.similarity[own].mean()) + length
        for cluster, length in zip(content.clusters, within, strict=True)
        if (own := members.labels == cluster).any()
    }
    if not distances or not votes:
        return nowhere
    winner, *others = sorted(distances, key=lambda cluster: (distances[cluster], cluster))
    nearest = [at for at in order if members.labels[at] == winner][:VOTERS]
    nowhere = replace(
        nowhere,
        mean_similarity=float(members.similarity[nearest].mean()),
        within=pairs_within(content.labels, content.clusters, within).get(winner),
        reason=_NO_NEARER,
    )
    centre = 1.0 - 2.0 * float(members.similarity.mean()) + overall
    if others and distances[winner] >= centre:
        return nowhere
    gap = 0.0
    if others and distances[others[0]] > 0:
        gap = 1.0 - max(0.0, distances[winner]) / distances[others[0]]
    return replace(
        nowhere,
        cluster=winner,
        exemplar=dict(zip(content.clusters, content.exemplars, strict=True))[winner],
        share=sum(vote.cluster == winner for vote in votes) / len(votes),
        similarity=float(members.similarity[nearest[0]]),
        nearest_members=tuple(members.names[at] for at in nearest),
        margin=gap if others else 1.0,
        reason=None,
    )
