"""Newcomers of a federation: placed without a service as a service places them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from modelkin import Client, Subspace, Support, fit_subspace
from modelkin.errors import InvalidParameter, SpaceMismatch
from modelkin.integrations.federation.client_names import ClientNames
from modelkin.integrations.federation.cluster_history import ClusterHistory, RoundClusters
from modelkin.integrations.federation.data_clusters import ASK, DataClusters
from modelkin.integrations.federation.messages import SupportMessage
from tests.support.servers.server_process import Server

M, K = 4000, 200
NODES = range(1, 16)
NAMES = {node: f"site-{node:02}" for node in NODES}


def support(group: int, seed: int, k: int = K, m: int = M) -> Support:
    """Two thirds of the indices are of the group's own tenth of all parameters."""
    rng = np.random.default_rng([group, seed])
    own = rng.choice(m // 10, 2 * k // 3, replace=False) + group * (m // 10)
    return Support.from_indices(np.union1d(own, rng.choice(m, k - own.size, replace=False)), m)


def group(node: int) -> int:
    """The planted group of a client: the last is alone in its own."""
    return 2 if node == NODES[-1] else node % 2


def clustered(*signed: int) -> RoundClusters:
    """The clusters of fifteen clients, of whom some sent signatures."""
    held = {node: support(group(node), node) for node in NODES}
    messages = {
        node: SupportMessage(own.signature() if node in signed else own, own.k)
        for node, own in held.items()
    }
    found = ClusterHistory().cluster(3, messages, {})
    return replace(found, names=NAMES)


FOUND = clustered()


def cluster(of: int, found: RoundClusters = FOUND) -> int:
    """The number of a planted group's cluster."""
    return int(found.clusters[found.nodes.index(15 if of == 2 else 2 - of)])


@pytest.mark.parametrize("of", [0, 1, 2])
def test_kin_are_placed_by_the_mean_of_their_nearest_members(of: int) -> None:
    """S, its mean over the members and theirs among themselves are those of the indices."""
    newcomer = support(of, 99)
    placed = FOUND.assign(newcomer)
    assert (cluster(of), None) == (placed.cluster, placed.reason)
    chosen = set(newcomer.indices.tolist())
    members = {node: set(support(of, node).indices.tolist()) for node in NODES if group(node) == of}

    def s(one: set[int], other: set[int]) -> float:
        return 2 * len(one & other) / (len(one) + len(other))

    near = sorted((-s(chosen, own), NAMES[node]) for node, own in members.items())
    assert placed.nearest_members == tuple(name for _, name in near)
    assert pytest.approx(-np.mean([each for each, _ in near]), abs=1e-12) == placed.mean_similarity
    pairs = [s(members[a], members[b]) for a in members for b in members if a < b]
    if pairs:
        sizes = [(newcomer.k, len(support(group(n), n))) for n in voters(placed)]
        reach = np.mean([2 * min(pair) / sum(pair) for pair in sizes])
        assert pytest.approx(np.mean(pairs) * reach) == placed.within


def voters(placed: Any) -> list[int]:
    """The nodes of the models that an answer lists."""
    return [int(vote.model.removeprefix("site-")) for vote in placed.votes]


def test_a_stranger_is_in_no_cluster() -> None:
    """As near as chance: the reason says so, and what is nearest is listed."""
    drawn = np.unique(np.random.default_rng(5).choice(M, K))
    placed = FOUND.assign(Support.from_indices(drawn, M))
    assert -1 == placed.cluster
    assert (None, (), 10) == (placed.exemplar, placed.nearest_members, len(placed.votes))
    assert "chance" in str(placed.reason)
    held = np.concatenate([support(group(node), node).indices for node in NODES])
    nothing = FOUND.assign(Support.from_indices(np.setdiff1d(np.arange(M), held), M))
    assert (-1, None) == (nothing.cluster, nothing.similarity)
    assert "shares no index" in str(nothing.reason)


def test_kin_with_less_in_common_have_a_note() -> None:
    """A third of its indices are the group's, of the members two thirds."""
    rng = np.random.default_rng(1)
    own = np.union1d(rng.choice(M // 10, K // 2, False), rng.choice(M, K // 2, False))
    placed = FOUND.assign(Support.from_indices(own, M))
    assert cluster(0) == placed.cluster
    assert "may have fewer samples" in str(placed.note)


@pytest.mark.parametrize("signed", [(), (3,)])
def test_signatures_are_estimates(signed: tuple[int, ...]) -> None:
    """A newcomer's or a client's; both find the cluster, with standard errors."""
    found, newcomer = clustered(*signed), support(1, 99)
    placed = found.assign(newcomer if signed else newcomer.signature())
    assert cluster(1, found) == placed.cluster
    assert {"signature"} == {vote.estimate for vote in placed.votes}
    assert all(vote.standard_error > 0 for vote in placed.votes)
    exact = FOUND.assign(newcomer).mean_similarity
    assert exact is not None
    assert placed.mean_similarity == pytest.approx(exact, abs=0.1)


def subspace(of: int, seed: int, features: int = 32) -> Subspace:
    """Samples of one of two groups of directions."""
    rng = np.random.default_rng([7, seed])
    basis = np.random.default_rng([8, of]).normal(size=(4, features))
    return fit_subspace(rng.normal(size=(200, 4)) @ basis + 0.1 * rng.normal(size=(200, features)))


def by_data() -> RoundClusters:
    """The clusters of eight clients by their data, with one that came later."""
    names = ClientNames()
    rounds = DataClusters(ClusterHistory(), names, missing="", recluster_every=None)

    def ask(nodes: Any) -> dict[int, dict[str, object]]:
        return {node: {ASK: subspace(node % 2, node).to_bytes()} for node in nodes}

    rounds.update(1, range(1, 9), ask)
    found = rounds.update(2, range(1, 10), ask)
    assert found is not None
    return found


def test_data_are_placed_by_the_nearest_centroid() -> None:
    """As clients that join are; one without anything in common is in none."""
    found = by_data()
    labels = dict(zip(found.nodes, found.clusters.tolist(), strict=True))
    assert 9 in labels
    assert 9 not in found.contents  # it moves no mean
    for of in (0, 1):
        placed = found.assign(subspace(of, 77))
        assert labels[2 - of] == placed.cluster
        members = {str(node) for node in found.contents if node % 2 == of}
        assert members == set(placed.nearest_members)
        assert 0.5 < (placed.margin or 0) <= 1
    mixed = found.assign(subspace(5, 77))
    assert (-1, ()) == (mixed.cluster, mixed.nearest_members)
    assert "mean of all" in str(mixed.reason)


@pytest.mark.parametrize(
    ("found", "newcomer", "error", "said"),
    [
        (FOUND, subspace(0, 1), InvalidParameter, "made of Support, and the newcomer is of Sub"),
        (by_data(), support(0, 1), InvalidParameter, "made of Subspace, and the newcomer is of Su"),
        (FOUND, "support", InvalidParameter, "is of str"),
        (FOUND, support(0, 1, m=M + 10), SpaceMismatch, "4010"),
        (clustered(1), support(0, 1).signature(64), SpaceMismatch, "different num_perm"),
        (by_data(), subspace(0, 1, features=16), SpaceMismatch, r"\(16, 0.5"),
        (replace(FOUND, contents={}), support(0, 1), InvalidParameter, "made of nothing"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    found: RoundClusters, newcomer: Any, error: type[Exception], said: str
) -> None:
    """With both kinds."""
    with pytest.raises(error, match=said):
        found.assign(newcomer)


@pytest.mark.slow
def test_a_service_without_a_layout_places_alike(sqlite_server: Server) -> None:
    """All of the answer but the names of clusters, of the clustering, and why there is no P."""
    with Client(sqlite_server.url) as client:
        client.ensure_space("newcomers", num_parameters=M)
        for node in NODES:
            client.put_support("newcomers", NAMES[node], support(group(node), node))
        made = client.clusterings.create("newcomers", "agglomerative", n_clusters=3)
        for newcomer in (support(0, 99), support(1, 98), support(2, 97), support(5, 96)):
            theirs, ours = client.clusterings.assign("newcomers", newcomer), FOUND.assign(newcomer)
            assert theirs.nearest_members == ours.nearest_members
            assert [vote.model for vote in theirs.votes] == [vote.model for vote in ours.votes]
            for name in ("similarity", "mean_similarity", "within", "share", "margin"):
                assert getattr(theirs, name) == pytest.approx(getattr(ours, name)), name
            assert (theirs.cluster < 0, theirs.note is None) == (
                ours.cluster < 0,
                ours.note is None,
            )
            if ours.cluster >= 0:
                assert made.labels[ours.nearest_members[0]] == theirs.cluster
                assert ours.cluster == theirs.match(FOUND.named)
