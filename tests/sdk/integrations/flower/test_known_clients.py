"""Clients that a round does not sample, that join late or that leave, in clusters by supports."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import ClusteredStrategy, RoundClusters, SupportMod
from modelkin.torch import fisher_importance
from tests.sdk.integrations.flower.federation import LocalGrid, app, examples, mlp

ODD, EVEN = (1, 3, 5), (2, 4, 6)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


class Sampling(FedAvg):
    """FedAvg with the clients of each round as given."""

    def __init__(self, *rounds: Sequence[int]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._rounds = rounds

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        sampled = self._rounds[server_round - 1]
        messages = super().configure_train(server_round, arrays, config, grid)
        return [each for each in messages if each.metadata.dst_node_id in sampled]


def run(
    apps: dict[int, ClientApp], *rounds: Sequence[int], **how: Any
) -> tuple[ClusteredStrategy, list[RoundClusters], LocalGrid]:
    """All rounds of these samples, with a model for each cluster."""
    found, grid = list[RoundClusters](), LocalGrid(apps)
    strategy = ClusteredStrategy(
        Sampling(*rounds), per_cluster=True, on_clusters=found.append, **how
    )
    arrays = ArrayRecord(mlp().state_dict())
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=len(rounds))
    return strategy, found, grid


def clients(*nodes: int) -> dict[int, ClientApp]:
    return {node: app(SupportMod()) for node in nodes}


def weights_of(grid: LocalGrid, node: int) -> list[np.ndarray]:
    """The first layer that a client was sent in each of its rounds."""
    return [
        message.content["arrays"]["0.weight"].numpy()  # type: ignore[union-attr]
        for message in grid.sent
        if message.metadata.dst_node_id == node and message.metadata.message_type == "train"
    ]


def test_clients_that_are_not_sampled_stay_in_their_clusters() -> None:
    """A round clusters all known clients, and says which of them replied."""
    _, found, _ = run(clients(*ODD, *EVEN), (1, 2, 3, 4), (1, 2), (5, 6))
    assert [(1, 2, 3, 4), (1, 2), (5, 6)] == [each.replied for each in found]
    assert [(1, 2, 3, 4)] * 2 == [each.nodes for each in found[:2]]
    assert {ODD, EVEN} == set(found[2].members.values())
    assert found[0].clusters.tolist() == found[2].clusters[:4].tolist()


def test_a_cluster_without_a_sampled_client_keeps_its_model() -> None:
    """Only those that replied move a model."""
    rounds = list[dict[int, np.ndarray]]()

    def remember(_: RoundClusters) -> None:
        models = strategy.cluster_arrays.items()
        rounds.append({number: arrays["0.weight"].numpy().copy() for number, arrays in models})

    sampling = Sampling((*ODD, *EVEN), ODD)
    strategy = ClusteredStrategy(sampling, per_cluster=True, on_clusters=remember)
    arrays = ArrayRecord(mlp().state_dict())
    strategy.start(grid=LocalGrid(clients(*ODD, *EVEN)), initial_arrays=arrays, num_rounds=2)
    odd, even = strategy.cluster_of(1), strategy.cluster_of(2)
    assert odd is not None
    assert even is not None
    first, second = rounds
    assert np.array_equal(first[even], second[even])
    assert not np.array_equal(first[odd], second[odd])


def test_a_late_client_is_placed_by_its_support_at_the_first_weights() -> None:
    """It gets the weights of round 1, joins its kin at once, and does not move their model then."""
    everyone = clients(*ODD, *EVEN)
    alone, _, _ = run(everyone, (1, 2, 3, 4), (1, 2, 3, 4))
    strategy, found, grid = run(everyone, (1, 2, 3, 4), (1, 2, 3, 4, 5, 6), (5,))
    assert {ODD, EVEN} == set(found[1].members.values())
    first, then = weights_of(grid, 5)
    assert np.array_equal(mlp().state_dict()["0.weight"].numpy(), first)
    own, other = strategy.cluster_of(5), strategy.cluster_of(2)
    assert own is not None
    assert other is not None
    assert np.array_equal(alone.cluster_arrays[own]["0.weight"].numpy(), then)
    for node in (1, 2):
        kept = alone.cluster_of(node)
        assert kept == strategy.cluster_of(node)
    assert np.array_equal(
        alone.cluster_arrays[other]["0.weight"].numpy(),
        strategy.cluster_arrays[other]["0.weight"].numpy(),
    )


def test_a_client_without_a_support_trains_on() -> None:
    """It gets the strategy's model in later rounds, not the first weights again and again."""
    apps = {**clients(1, 2, 3, 4), 9: app(None)}
    strategy, found, grid = run(apps, *[(1, 2, 3, 4, 9)] * 3)
    assert strategy.cluster_of(9) is None
    assert {9} == set(found[-1].left_out)
    first, second, third = weights_of(grid, 9)
    assert not np.array_equal(first, second)
    assert not np.array_equal(second, third)


def test_clients_are_forgotten_where_that_is_asked_for() -> None:
    """After two rounds without an answer a client is unknown, and new when it is back."""
    rounds = [(*ODD, *EVEN), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6)]
    strategy, found, grid = run(clients(*ODD, *EVEN), *rounds, forget_after=2)
    sizes = [len(each.nodes) for each in found]
    assert [6, 6, 4, 6] == sizes
    assert {ODD, EVEN} == set(found[-1].members.values())
    first, again = weights_of(grid, 5)
    assert np.array_equal(first, again)
    assert strategy.cluster_of(5) == strategy.cluster_of(1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_cluster": True, "forget_after": 0},
        {"per_cluster": True, "forget_after": True},
        {"forget_after": 3},
        {"by": "data", "per_cluster": True, "forget_after": 3},
    ],
)
def test_forget_after_is_checked(wrong: dict[str, Any]) -> None:
    """A number of rounds, and only where supports are kept."""
    with pytest.raises(InvalidParameter, match="forget_after"):
        ClusteredStrategy(FedAvg(), **wrong)


@pytest.mark.slow
def test_a_latecomer_finds_its_cluster_in_the_service(client: modelkin.Client, space: str) -> None:
    """The space has the supports at the first weights, so that one at these is placed right."""
    strategy, _, _ = run(
        clients(*ODD, *EVEN),
        *[(*ODD, *EVEN)] * 4,
        client=client,
        space=space,
        n_clusters=2,
    )
    labels = client.clusterings.get(space).labels
    assert 2 == len({(strategy.cluster_of(n), labels[f"flower/{n}"]) for n in (*ODD, *EVEN)})
    assert strategy.clusters is not None
    for node in (7, 8):
        placed = client.clusterings.assign(space, support_at_first(node))
        assert labels[f"flower/{node - 6}"] == placed.cluster
        assert strategy.cluster_of(node - 6) == placed.match(strategy.clusters.models)


def test_clusters_of_a_federation_are_matched_by_the_names_in_the_service(
    client: modelkin.Client, space: str
) -> None:
    """Other numbers than the service's, names that clients sent, and a pattern of the caller's."""
    apps = {
        node: app(SupportMod(name=lambda context: f"ward-{context.node_id}"))
        for node in (*ODD, *EVEN)
    }
    # The even come first, and a larger group gets the lower number in the service.
    rounds = [EVEN[:2], EVEN[:2], (*ODD, *EVEN[:2])]
    how = {"client": client, "space": space, "n_clusters": 2, "model": "wards/{node}"}
    strategy, _, _ = run(apps, *rounds, **how)
    assert strategy.clusters is not None
    clusters = strategy.clusters.models
    assert {f"wards/ward-{node}" for node in ODD} == set(clusters[strategy.cluster_of(1) or 0])
    matched = [
        client.clusterings.assign(space, support_at_first(node)).match(clusters) for node in (7, 8)
    ]
    assert [strategy.cluster_of(1), strategy.cluster_of(2)] == matched
    assert set(matched) <= set(strategy.cluster_arrays)


def support_at_first(node: int) -> modelkin.Support:
    """What a client that never took part selects at the weights of the first round."""
    return modelkin.select_support(fisher_importance(mlp(), cross_entropy, [examples(node)]))
