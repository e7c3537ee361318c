"""Rounds without an engine give what Flower's strategy gives, to the bit, on the same clients."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from flwr.app import ArrayRecord
from torch.nn.functional import cross_entropy

from modelkin.integrations.federation.cluster_means import Model
from modelkin.integrations.federation.clustered_rounds import (
    ClusteredRounds,
    ClusterRules,
    Reply,
)
from modelkin.integrations.federation.support_maker import SupportMaker
from modelkin.integrations.flower import ClusteredStrategy, SupportMod
from modelkin.torch import fisher_importance
from tests.sdk.integrations.flower.federation import LocalGrid, app
from tests.sdk.integrations.flower.test_known_clients import Sampling
from tests.support.federations.two_kinds import examples, fit, mlp

NODES = range(1, 9)
NAMES = {node: f"site-{node}" for node in NODES}
ROUNDS: tuple[Sequence[int], ...] = (range(1, 8), (1, 2, 3, 8), NODES)
"""Who trains: one client comes late."""


def trained(model: Model, node: int, k: int | None) -> Reply:
    """What a client of ``flower.federation`` makes of a model."""
    network, (inputs, labels) = mlp(), examples(node)
    network.load_state_dict({name: torch.tensor(values) for name, values in model.items()})
    importance = fisher_importance(network, cross_entropy, [(inputs, labels)])
    sent, _ = SupportMaker().make(importance, k)
    fit(network, inputs, labels)
    arrays = {name: values.numpy() for name, values in network.state_dict().items()}
    return Reply(arrays, len(labels), sent.to_values())


@pytest.mark.parametrize("weights", ["examples", "equal", "cover", "rarity"])
def test_clusters_models_and_weights_are_those_of_flower(
    weights: Literal["examples", "equal", "cover", "rarity"], caplog: pytest.LogCaptureFixture
) -> None:
    """Three rounds of eight clients of two kinds, one of which comes in the second round."""
    caplog.set_level(logging.ERROR)
    rounds = ClusteredRounds(
        {name: values.numpy() for name, values in mlp().state_dict().items()},
        ClusterRules(weights=weights),
    )
    for number, sampled in enumerate(ROUNDS, start=1):
        rounds.begin(number, NAMES, lambda nodes: {})
        got = {node: rounds.model_for(node) for node in sampled}
        rounds.finish(number, {n: trained(model, n, rounds.k) for n, model in got.items()})
    apps = {node: app(SupportMod(name=name)) for node, name in NAMES.items()}
    strategy = ClusteredStrategy(Sampling(*ROUNDS), per_cluster=True, weights=weights)
    arrays = ArrayRecord(mlp().state_dict())
    strategy.start(grid=LocalGrid(apps), initial_arrays=arrays, num_rounds=len(ROUNDS))
    assert rounds.clusters is not None
    assert strategy.clusters is not None
    assert {(1, 3, 5, 7), (2, 4, 6, 8)} == set(strategy.clusters.members.values())
    assert strategy.clusters.members == rounds.clusters.members
    assert strategy.clusters.weights == rounds.clusters.weights
    assert strategy.clusters.similarity.tobytes() == rounds.clusters.similarity.tobytes()
    expected = {
        cluster: {name: array.numpy().tobytes() for name, array in model.items()}
        for cluster, model in strategy.cluster_arrays.items()
    }
    assert expected == {
        cluster: {name: values.tobytes() for name, values in model.items()}
        for cluster, model in rounds.cluster_arrays.items()
    }
