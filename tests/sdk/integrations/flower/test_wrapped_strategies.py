"""Strategies that aggregate in a way of their own, inside ``ClusteredStrategy``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedXgbBagging, FedXgbCyclic, Strategy

from modelkin import fit_subspace
from modelkin.errors import InvalidParameter
from modelkin.integrations.flower import ClusteredStrategy, DataMod
from tests.sdk.integrations.flower.federation import LocalGrid

NODES = (1, 2, 3, 4)
Arrays = dict[str, Any]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Flower logs every step of every round."""
    caplog.set_level(logging.ERROR)


def answering(make: Any, nodes: Iterable[int] = NODES) -> dict[int, ClientApp]:
    """Clients that say of which kind their data are, and answer what a function makes."""
    return {node: _answering(make, node) for node in nodes}


def _answering(make: Any, node: int) -> ClientApp:
    def fit(context: Context) -> Any:
        plane = np.random.default_rng(node % 2).normal(size=(2, 12))
        return fit_subspace(np.random.default_rng(node).normal(size=(60, 2)) @ plane)

    found = ClientApp(mods=[DataMod(fit)])

    @found.train()
    def train(message: Message, context: Context) -> Message:
        (received,) = message.content.array_records.values()
        arrays = make(node, {name: array.numpy() for name, array in received.items()})
        records: dict[str, Any] = {
            "arrays": ArrayRecord({name: Array(values) for name, values in arrays.items()}),
            "metrics": MetricRecord({"num-examples": node}),
        }
        return Message(RecordDict(records), reply_to=message)

    return found


def run(apps: dict[int, ClientApp], strategy: Strategy, initial: Arrays) -> ArrayRecord:
    """The model after two rounds."""
    first = ArrayRecord({name: Array(values) for name, values in initial.items()})
    return strategy.start(grid=LocalGrid(apps), initial_arrays=first, num_rounds=2).arrays


def tree(node: int, received: Arrays) -> Arrays:
    """The bytes of a tree, as XGBoost saves one; those of the nodes have different lengths."""
    model = {
        "gbtree_model_param": {"num_trees": "1", "num_parallel_tree": "1"},
        "iteration_indptr": [0, 1],
        "tree_info": [0],
        "trees": [{"id": 0, "leaf": "x" * node}],
    }
    saved = json.dumps({"learner": {"gradient_booster": {"model": model}}})
    return {"0": np.frombuffer(saved.encode(), np.uint8)}


def leaves(arrays: ArrayRecord) -> list[int]:
    """The nodes whose trees are in a model."""
    saved = json.loads(arrays["0"].numpy().tobytes())
    trees = saved["learner"]["gradient_booster"]["model"]["trees"]
    return sorted(len(each["leaf"]) for each in trees)


@pytest.mark.parametrize("kind", [FedXgbBagging, FedXgbCyclic])
def test_trees_are_gathered_as_without_clusters(kind: type[FedAvg]) -> None:
    """Replies of any length count: all trees of both rounds, or the whole model of one client."""
    empty = {"0": np.empty(0, np.uint8)}
    strategy = ClusteredStrategy(kind(fraction_evaluate=0.0), by="data")
    found = leaves(run(answering(tree), strategy, empty))
    assert sorted(NODES * 2) == found if kind is FedXgbBagging else found[0] in NODES
    assert strategy.clusters is not None
    assert {} == strategy.clusters.weighted_down
    assert [(1, 3), (2, 4)] == sorted(strategy.clusters.members.values())


@pytest.mark.parametrize("option", [{"per_cluster": True}, {"weights": "equal"}, {"robust": True}])
def test_options_of_means_are_refused_for_trees(option: dict[str, Any]) -> None:
    """Before the first message, also for a class derived from a strategy of trees."""

    class Mine(FedXgbBagging):
        pass

    (field,) = option
    with pytest.raises(InvalidParameter, match=f"^{field} cannot .* FedXgbBagging") as refused:
        ClusteredStrategy(Mine(fraction_evaluate=0.0), **option)
    assert field == refused.value.field


WHOLE = {"body": np.zeros(3, np.float32), "head": np.zeros(2, np.float32)}


class OfHeads(FedAvg):
    """Sends the whole model, gets heads alone, and puts their mean into the model."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.whole = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        return None if arrays is None else ArrayRecord({**self.whole, **arrays}), metrics


def head(node: int, received: Arrays) -> Arrays:
    return {"head": received["head"] + np.float32(node)}


def test_an_aggregation_of_a_users_own_may_take_a_part() -> None:
    """Of what it sends: it gets all replies, whose mean of a round is 3 here."""
    strategy = ClusteredStrategy(OfHeads(fraction_evaluate=0.0), by="data")
    found = run(answering(head), strategy, WHOLE)
    assert {"body", "head"} == set(found)
    assert found["head"].numpy() == pytest.approx([6, 6])
    assert strategy.clusters is not None
    assert {} == strategy.clusters.weighted_down


class SendingHeads(FedAvg):
    """Sends a part of its first model, of which Flower's own mean becomes the model."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        part = ArrayRecord({"head": arrays["head"]})
        return super().configure_train(server_round, part, config, grid)


def test_replies_are_compared_with_what_was_sent() -> None:
    """A part of the model, here: a client that answers more than it was sent is left out."""

    def more(node: int, received: Arrays) -> Arrays:
        extra = {"body": WHOLE["body"]} if node == 9 else {}
        return {**head(node, received), **extra}

    strategy = ClusteredStrategy(SendingHeads(fraction_evaluate=0.0), by="data")
    found = run(answering(more, (*NODES, 9)), strategy, WHOLE)
    assert {"head"} == set(found)
    assert found["head"].numpy() == pytest.approx([6, 6])
    assert strategy.clusters is not None
    assert {9} == set(strategy.clusters.weighted_down)
    assert "the model does not have 'body'" in strategy.clusters.weighted_down[9]
