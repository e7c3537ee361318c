"""The Flower app of ``examples/flower``: three clusters, and a better model in each."""

from __future__ import annotations

import importlib
import json
import logging
import random
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from modelkin import Client, select_support
from modelkin.integrations.flower import ClusteredStrategy, RoundClusters
from modelkin.torch import fisher_importance
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.support.repetitions import repetitions
from tests.support.servers.server_process import Server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2] / "examples" / "flower"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
TURNED = [[f"clinic-{part:02}" for part in range(turn, 12, 3)] for turn in range(3)]


@pytest.fixture(autouse=True)
def _app(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The app's folder on the path, as Flower has it, and little said."""
    caplog.set_level(logging.ERROR, "flwr")
    monkeypatch.syspath_prepend(ROOT)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        yield
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.partition(".")[0] == "turned_digits"]:
        del sys.modules[name]


def app_of(component: str) -> Any:
    """A component as ``flwr run`` finds it."""
    module, _, name = PROJECT["components"][component].partition(":")
    return getattr(importlib.import_module(module), name)


def run(folder: Path, **config: Any) -> None:
    """All rounds with the app's own settings but for some of them."""
    settings = {**PROJECT["config"], "models": str(folder), **config}
    app_of("serverapp")(clinics(settings), Context(1, 0, {}, RecordDict(), settings))


def clinics(settings: dict[str, Any]) -> LocalGrid:
    """The twelve clinics, by node ids."""
    nodes = {1001 + 17 * part: part for part in range(12)}
    contexts = {
        node: Context(1, node, {"partition-id": part}, RecordDict(), settings)
        for node, part in nodes.items()
    }
    return LocalGrid(dict.fromkeys(nodes, app_of("clientapp")), contexts)


def sampled(seed: int, grid: LocalGrid, rounds: int, **how: Any) -> ClusteredStrategy:
    """A run that samples half of the clinics in each round."""
    random.seed(seed)  # FedAvg samples by it
    torch.manual_seed(seed)
    strategy = ClusteredStrategy(
        FedAvg(fraction_train=0.5, fraction_evaluate=0.0), per_cluster=True, **how
    )
    network = importlib.import_module("turned_digits.task").network()
    strategy.start(grid=grid, initial_arrays=ArrayRecord(network.state_dict()), num_rounds=rounds)
    return strategy


def accuracy(weights: Path, names: list[str]) -> float:
    """The mean accuracy of a model on what some clinics test on."""
    task = importlib.import_module("turned_digits.task")
    model = task.network()
    model.load_state_dict(load_file(weights))
    parts = [int(name.removeprefix("clinic-")) for name in names]
    return float(np.mean([task.accuracy(model, task.load(part)[1]) for part in parts]))


def test_each_cluster_has_a_better_model_than_all_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five rounds of twelve clinics that turn digits: by 0.1 or more, in each of three clusters."""
    run(tmp_path / "clustered")
    printed = capsys.readouterr().out
    assert 15 == len(re.findall(r"^round \d, cluster \d: clinic-", printed, re.MULTILINE))
    run(tmp_path / "global", **{"per-cluster": False})
    clusters = json.loads((tmp_path / "clustered" / "clusters.json").read_text())
    assert TURNED == sorted(clusters.values())
    for cluster, names in clusters.items():
        own = accuracy(tmp_path / "clustered" / f"cluster-{cluster}.safetensors", names)
        common = accuracy(tmp_path / "global" / "all.safetensors", names)
        assert own >= common + 0.1
        assert own >= 0.85


def test_a_service_shows_names_tags_and_clusters(tmp_path: Path, sqlite_server: Server) -> None:
    """The clinics by their names, in place of the ids of their nodes."""
    run(tmp_path, service=sqlite_server.url, **{"num-server-rounds": 1})
    with Client(sqlite_server.url) as client:
        found = {each.model: each for each in client.models.list("turned-digits")}
        space = client.spaces.get("turned-digits")
        nearest = client.neighbors("turned-digits", "clinics/clinic-00", k=3)
    assert "fisher" == space.importance.kind
    assert space.layout is not None
    assert "hidden.weight" == space.layout.tensors[0].name
    assert all(each.kappa is not None for each in nearest)
    assert sorted(f"clinics/{name}" for names in TURNED for name in names) == sorted(found)
    assert ("north", "round-1") == found["clinics/clinic-00"].tags
    assert "1001" == found["clinics/clinic-00"].attributes["node"]
    clusters: dict[Any, list[str]] = {}
    for name, each in sorted(found.items()):
        clusters.setdefault(each.attributes["cluster"], []).append(name.removeprefix("clinics/"))
    assert TURNED == sorted(clusters.values())


@pytest.mark.parametrize("n_clusters", [3, None])
@pytest.mark.parametrize("seed", range(repetitions(3, few=1)))
def test_half_of_the_clinics_a_round_are_in_the_same_three_clusters(
    seed: int, n_clusters: int | None
) -> None:
    """With half sampled, all known clinics are clustered: no group is merged, none trains alone."""
    found: list[RoundClusters] = []
    grid = clinics(PROJECT["config"])
    strategy = sampled(seed, grid, 6, n_clusters=n_clusters, on_clusters=found.append)
    for clusters in found:
        assert 6 == len(clusters.replied)
        assert set(clusters.replied) <= set(clusters.nodes)
    for before, after in pairwise(found):
        assert set(before.nodes) <= set(after.nodes), "no known client is forgotten"
    assert found[-1].clusters.max() <= 3
    assert 12 == len(found[-1].nodes)
    assert TURNED == sorted(list(names) for names in found[-1].named.values())
    assert set(found[-1].members) == strategy.cluster_arrays.keys()
    task = importlib.import_module("turned_digits.task")
    for cluster, names in found[-1].named.items():
        model = task.network()
        model.load_state_dict(strategy.cluster_arrays[cluster].to_torch_state_dict())
        parts = [int(name.removeprefix("clinic-")) for name in names]
        right = np.mean([task.accuracy(model, task.load(part)[1]) for part in parts])
        assert right >= 0.75


class Joining(FedAvg):
    """FedAvg of all clinics but those that come later.

    Args:
        joins: the round of each clinic that is not there from the first one on.
    """

    def __init__(self, joins: dict[int, int]) -> None:
        super().__init__(fraction_evaluate=0.0)
        self._joins = joins

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_train(server_round, arrays, config, grid)
        return [
            message
            for message in messages
            if self._joins.get((message.metadata.dst_node_id - 1001) // 17, 1) <= server_round
        ]


@pytest.mark.parametrize("n_clusters", [3, None])
def test_clinics_that_join_late_are_with_their_kin_at_once(n_clusters: int | None) -> None:
    """From rounds 4 and 7 on: in their cluster in their first round, none alone or elsewhere."""
    found: list[RoundClusters] = []
    joins = {0: 4, 7: 4, 3: 7, 11: 7}
    strategy = ClusteredStrategy(
        Joining(joins), per_cluster=True, n_clusters=n_clusters, on_clusters=found.append
    )
    network = importlib.import_module("turned_digits.task").network()
    strategy.start(
        grid=clinics(PROJECT["config"]),
        initial_arrays=ArrayRecord(network.state_dict()),
        num_rounds=7,
    )
    for clusters in found:
        there = {n for n in range(12) if joins.get(n, 1) <= clusters.server_round}
        expected = [
            [f"clinic-{n:02}" for n in range(turn, 12, 3) if n in there] for turn in range(3)
        ]
        assert expected == sorted((list(names) for names in clusters.named.values()), key=by_turn)


def by_turn(names: list[str]) -> int:
    """How the first of these clinics turns its images."""
    return int(names[0].removeprefix("clinic-")) % 3


def test_a_service_places_newcomers_by_supports_at_the_first_weights(
    tmp_path: Path, sqlite_server: Server
) -> None:
    """After three rounds, six of other images: each with those that turn alike."""
    run(tmp_path, service=sqlite_server.url, **{"num-server-rounds": 3})
    task = importlib.import_module("turned_digits.task")
    with Client(sqlite_server.url) as client:
        labels = client.clusterings.get("turned-digits").labels
        assert 3 == len(set(labels.values()))
        for part in range(6):
            importance = fisher_importance(task.network(), cross_entropy, [task.load(part)[1]])
            placed = client.clusterings.assign("turned-digits", select_support(importance))
            assert labels[f"clinics/clinic-{part + 3:02}"] == placed.cluster
