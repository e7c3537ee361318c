"""Clients of Flower send their supports, and a strategy finds which of them are kin."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, Result
from sklearn.metrics import adjusted_rand_score
from torch.nn.functional import cross_entropy

import modelkin
from modelkin.core.codecs.checks import with_crc
from modelkin.core.codecs.support import pack_header
from modelkin.errors import InvalidInput
from modelkin.integrations.federation.messages import MAX_K, SupportMessage
from modelkin.integrations.flower import ClusteredStrategy, RoundClusters, SupportMod
from modelkin.torch import fisher_importance
from tests.sdk.integrations.conftest import Wire
from tests.sdk.integrations.flower.federation import LocalGrid, app, examples, mlp, received, reply

NODES = range(1, 7)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.WARNING)


def run(grid: LocalGrid, strategy: ClusteredStrategy, rounds: int = 1) -> Result:
    return strategy.start(
        grid=grid, initial_arrays=ArrayRecord(mlp().state_dict()), num_rounds=rounds
    )


def federation(mod: SupportMod) -> LocalGrid:
    return LocalGrid({node: app(mod) for node in NODES})


def support_of(node: int, **how: Any) -> modelkin.Support:
    """The support of a client at the weights that all receive first."""
    importance = fisher_importance(mlp(), cross_entropy, [examples(node)])
    return modelkin.select_support(importance, **how)


def agreed_k(message: Message) -> int:
    """The K that a message of the strategy asks for."""
    k = message.content["modelkin"]["k"]
    assert isinstance(k, int)
    return k


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "modelkin.integrations"]


@pytest.mark.slow
@pytest.mark.parametrize("send", ["support", "signature"])
def test_groups_are_found_each_round(send: str) -> None:
    """Clients that name their classes alike are one cluster, in every round, under one number."""
    found: list[RoundClusters] = []
    strategy = ClusteredStrategy(FedAvg(), on_clusters=found.append)
    result = run(federation(SupportMod(send)), strategy, rounds=3)
    assert [1, 2, 3] == [clusters.server_round for clusters in found]
    for clusters in found:
        assert tuple(NODES) == clusters.nodes
        assert 1.0 == adjusted_rand_score([n % 2 for n in NODES], clusters.clusters)
        assert found[0].members == clusters.members
        assert (send == "support") == clusters.exact
    assert [2, 2, 2] == [m["modelkin-clusters"] for m in result.train_metrics_clientapp.values()]
    assert found[-1].clusters[0] == strategy.cluster_of(1)
    assert strategy.cluster_of(99) is None


@pytest.mark.slow
def test_similarities_are_those_of_the_supports() -> None:
    """The first round's matrix is S of what each client selects; a signature's is near it."""
    expected = np.array(
        [[modelkin.similarity(support_of(a), support_of(b)) for a in NODES] for b in NODES]
    )
    for send, tolerance in (("support", 0.0), ("signature", 0.15)):
        strategy = ClusteredStrategy(FedAvg())
        run(federation(SupportMod(send)), strategy)
        assert strategy.clusters is not None
        np.testing.assert_allclose(strategy.clusters.similarity, expected, atol=tolerance)


@pytest.mark.slow
def test_clusters_have_models_of_their_own() -> None:
    """With per_cluster each group trains, and is evaluated with, the average of its own."""
    accuracy = {}
    for per_cluster in (False, True):
        strategy = ClusteredStrategy(FedAvg(), per_cluster=per_cluster)
        result = run(federation(SupportMod()), strategy, rounds=3)
        measured = result.evaluate_metrics_clientapp[3]["accuracy"]
        assert isinstance(measured, float)
        accuracy[per_cluster] = measured
    assert accuracy[False] < 0.6
    assert accuracy[True] > 0.9
    assert {0, 1} == strategy.cluster_arrays.keys()


def test_a_clusters_model_is_the_average_of_its_clients() -> None:
    """After a round a cluster's arrays are its members' mean, and the strategy's are all's."""
    grid = federation(SupportMod())
    strategy = ClusteredStrategy(FedAvg(), per_cluster=True)
    result = run(grid, strategy)
    trained = {n: _trained(n) for n in NODES}
    clusters = {strategy.cluster_of(node): node % 2 for node in NODES}
    for cluster, arrays in strategy.cluster_arrays.items():
        own = [trained[n]["0.weight"] for n in NODES if n % 2 == clusters[cluster]]
        expected = torch.stack(own).mean(0)
        np.testing.assert_allclose(arrays["0.weight"].numpy(), expected.numpy(), atol=1e-6)
    average = torch.stack([trained[n]["0.weight"] for n in NODES]).mean(0)
    np.testing.assert_allclose(result.arrays["0.weight"].numpy(), average.numpy(), atol=1e-6)


def _trained(node: int) -> dict[str, torch.Tensor]:
    model, (inputs, labels) = mlp(), examples(node)
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(5):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return dict(model.state_dict())


def test_clients_agree_on_k() -> None:
    """After the first round, the strategy sends all clients the K of the median client."""
    grid, seen = federation(SupportMod()), list[RoundClusters]()
    sizes: list[list[int]] = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            for message in replies:
                assert "modelkin" not in message.content, "the strategy inside sees its own alone"
            return super().aggregate_train(server_round, replies)

    strategy = ClusteredStrategy(Watching(), on_clusters=seen.append)
    for _ in range(2):
        run(grid, strategy)
        train = [m for m in grid.sent if m.metadata.message_type == "train"]
        sizes.append([agreed_k(m) for m in train if "modelkin" in m.content])
    median = sorted(support_of(node).k for node in NODES)[2]
    assert [[], [median] * 6] == sizes
    assert [1, 1] == [clusters.server_round for clusters in seen]


def test_any_strategy_may_be_inside() -> None:
    """A strategy with a state of its own goes on as without clusters."""
    plain = FedAdam(eta=0.01).start(
        grid=LocalGrid({n: app(None) for n in NODES}),
        initial_arrays=ArrayRecord(mlp().state_dict()),
        num_rounds=2,
    )
    around = run(federation(SupportMod()), ClusteredStrategy(FedAdam(eta=0.01)), rounds=2)
    for name, array in plain.arrays.items():
        np.testing.assert_allclose(around.arrays[name].numpy(), array.numpy(), atol=1e-6)


def test_alike_clients_are_one_cluster() -> None:
    """Where all clients hold the same, there are no groups to be found."""
    grid = LocalGrid({node: app(SupportMod()) for node in range(2, 14, 2)})
    strategy = ClusteredStrategy(FedAvg())
    run(grid, strategy)
    assert strategy.clusters is not None
    assert {0: tuple(range(2, 14, 2))} == strategy.clusters.members
    assert strategy.clusters.silhouette is None


@pytest.mark.slow
def test_supports_reach_the_service(client: modelkin.Client, space: str) -> None:
    """With a client each round's supports are in the space, tagged with round and cluster."""
    strategy = ClusteredStrategy(FedAvg(), client=client, space=space, model="digits/c{node}")
    run(federation(SupportMod()), strategy)
    models = {m.model: m for m in client.models.list(space)}
    assert {f"digits/c{node}" for node in NODES} == set(models)
    for node in NODES:
        assert support_of(node) == client.supports.get(space, f"digits/c{node}")
        info = models[f"digits/c{node}"]
        assert ("round-1",) == info.tags
        assert {"round": 1, "cluster": strategy.cluster_of(node)} == info.attributes
    kin = {int(n.model[-1]) % 2 for n in client.neighbors(space, "digits/c1", k=2)}
    assert {1} == kin


@pytest.mark.slow
@pytest.mark.parametrize("send", ["support", "signature"])
def test_clusters_reach_the_service(send: str, client: modelkin.Client, space: str) -> None:
    """At the end the service has the federation's clusters, and places a newcomer in one."""
    strategy = ClusteredStrategy(FedAvg(), client=client, space=space, n_clusters=2)
    run(federation(SupportMod(send)), strategy)
    (made,) = client.clusterings.list(space)
    assert ("agglomerative", 2) == (made.algorithm, made.num_clusters)
    labels = client.clusterings.get(space).labels
    assert 2 == len({(strategy.cluster_of(node), labels[f"flower/{node}"]) for node in NODES})
    placed = client.clusterings.assign(space, support_of(1))
    assert labels["flower/1"] == placed.cluster


def test_signatures_reach_the_service(client: modelkin.Client, space: str) -> None:
    """Where clients send signatures alone, the service has no more than these either."""
    strategy = ClusteredStrategy(FedAvg(), client=client, space=space)
    run(federation(SupportMod("signature")), strategy)
    assert {"signature"} == {m.kind for m in client.models.list(space)}
    assert support_of(1).signature() == client.signatures.get(space, "flower/1")


def test_a_service_that_is_away_stops_no_round(
    away: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    """Clusters are found without the service, and the log says that it was away."""
    strategy = ClusteredStrategy(FedAvg(), client=away.client(), space="digits")
    run(federation(SupportMod()), strategy, rounds=2)
    assert strategy.clusters is not None
    assert 2 == len(strategy.clusters.members)
    assert "round 1 is not stored yet" in warned(caplog)[0]
    assert warned(caplog)[-1].startswith("dropped, the service did not answer in time: round")


# --- clients that send something else -------------------------------------------------------


def sending(record: dict[str, Any] | None) -> ClientApp:
    """A client whose training replies carry this record, whatever it is."""
    found = ClientApp()

    @found.train()
    def train(message: Message, context: Context) -> Message:
        answer = reply(message, received(message), {"num-examples": 1})
        if record is not None:
            answer.content["modelkin"] = ConfigRecord(record)
        return answer

    return found


WELL_MADE = modelkin.Support.from_indices(np.arange(40), 462)
GOOD = SupportMessage(WELL_MADE, 9).to_values()
DENSE = modelkin.Support.from_indices(np.arange(93), 462).to_bytes()
WIDE = modelkin.Support.from_indices([7], 1 << 40).to_bytes()
WRONG: list[tuple[dict[str, Any] | None, str]] = [
    (None, "it sent no support"),
    ({}, "neither a support nor a signature"),
    ({**GOOD, "kind": "pickle"}, "neither a support nor a signature"),
    ({**GOOD, "data": "text"}, "neither a support nor a signature"),
    ({**GOOD, "data": GOOD["data"][:-9]}, "checksum|truncated|bytes"),  # type: ignore[index]
    ({**GOOD, "kind": "signature"}, "starts with b'MKSP', not b'MKSG'"),
    ({**GOOD, "k-star": 0}, "k-star is 0, not 1 to 462"),
    ({**GOOD, "k-star": "many"}, "k-star is 'many'"),
    ({**GOOD, "data": DENSE}, "K=93 indices|93 indices|93"),
    ({**GOOD, "data": WIDE}, "of 1099511627776 parameters, the model of this round has 462"),
    (
        SupportMessage(WELL_MADE.signature(seed=2), 9).to_values(),
        "its signature is of",
    ),
]


@pytest.mark.parametrize(("record", "why"), WRONG)
def test_what_cannot_be_read_is_left_out(
    record: dict[str, Any] | None, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that sends no support, or nonsense, is in no cluster; its training still counts."""
    mods = SupportMod("signature" if "signature is of" in why else "support")
    strategy = ClusteredStrategy(FedAvg(), per_cluster=True)
    grid = LocalGrid({**{n: app(mods) for n in (2, 3, 4, 5)}, 9: sending(record)})
    result = run(grid, strategy)
    assert strategy.clusters is not None
    assert (2, 3, 4, 5) == strategy.clusters.nodes
    (warning,) = [line for line in warned(caplog) if "client 9 is in no cluster" in line]
    assert re.search(why, warning), warning
    assert result.arrays is not None


def test_a_huge_support_is_refused_before_it_is_unpacked() -> None:
    """A few bytes that ask for gigabytes are an error, not an allocation."""
    data = with_crc(pack_header(1 << 33, MAX_K + 1, f"sha256:{'0' * 64}"))
    with pytest.raises(modelkin.ModelkinError, match=r"268,435,457|268435457"):
        SupportMessage.from_values({"kind": "support", "data": data, "k-star": 1})


def test_the_server_bounds_what_clients_send() -> None:
    """Supports of more than ``k_max`` of the round's model are refused, and no others are."""
    grid = {**{n: app(SupportMod()) for n in (2, 3)}, 9: sending({**GOOD, "data": DENSE})}
    seen = []
    for k_max in (None, 0.25):
        strategy = ClusteredStrategy(FedAvg(), k_max=k_max)
        run(LocalGrid(grid), strategy)
        assert strategy.clusters is not None
        seen.append(strategy.clusters.nodes)
    assert [(2, 3), (2, 3, 9)] == seen


def test_nobody_sends_anything() -> None:
    """Without a single support a round is the strategy's, and there are no clusters."""
    strategy = ClusteredStrategy(FedAvg(), on_clusters=lambda found: pytest.fail("none"))
    result = run(LocalGrid({n: app(None) for n in NODES}), strategy)
    assert strategy.clusters is None
    assert result.arrays is not None
    assert "modelkin-clusters" not in (result.train_metrics_clientapp.get(1) or {})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"space": "Digits"}, "space name"),
        ({"model": "everybody"}, "has no {node} in it"),
        ({"flush_seconds": -1.0}, "flush_seconds must be 0 or more"),
        ({"k_max": 1.5}, "k_max"),
        ({"k_max": 20}, r"k_max must be a share of the parameters in \(0, 1\].* not 20"),
        ({"per_cluster": "yes"}, "per_cluster must be True or False, not 'yes'"),
        ({"both": 1}, "both must be True or False, not 1"),
        ({"on_clusters": "yes"}, "on_clusters must be a function, not 'yes'"),
        ({"separation": 1.5}, "separation must be 0 to 1"),
        ({"separation": "x"}, "separation must be 0 to 1, not 'x'"),
        ({"layout": 3}, r"layout must be a Layout, as modelkin.torch.layout_of\(model\).* not 3"),
        ({"forget_after": 0}, "forget_after must be a number of rounds, 1 or more, not 0"),
        ({"model": "a//{node}"}, "segment 2"),
        ({"importance": "fischer"}, "importance.kind must be one of fisher, .*, not 'fischer'"),
    ],
)
def test_bad_arguments_are_refused_at_once(away: Wire, wrong: dict[str, Any], why: str) -> None:
    """What would be refused in the first round, or the last, is refused before it."""
    right: dict[str, Any] = {"client": away.client(), "space": "digits"}
    with pytest.raises(InvalidInput, match=why):
        ClusteredStrategy(FedAvg(), **(right | wrong))
