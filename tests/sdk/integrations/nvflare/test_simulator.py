"""Federations in NVFlare's own simulator, in the environment that ``make test-all`` makes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from safetensors.numpy import load_file
from torch.nn.functional import cross_entropy

from modelkin.integrations.flower import ClusteredStrategy, SupportMod, hand_over
from modelkin.torch import fisher_importance
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.soak.federations import nvflare_simulator

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[4]
CLINICS = range(8)


@pytest.fixture(scope="module")
def home() -> Path:
    """The environment that has NVFlare."""
    if not nvflare_simulator.is_complete(nvflare_simulator.HOME):
        pytest.skip("no environment with NVFlare: `make nvflare` makes one")
    return nvflare_simulator.HOME


def test_the_controller_and_its_sites(home: Path) -> None:
    """The tests that need NVFlare, in the environment that has it."""
    here = Path(__file__)
    tests = [each for each in sorted(here.parent.glob("test_*.py")) if each != here]
    tests.append(here.parents[1] / "federation" / "test_same_bad_clients.py")
    printed = nvflare_simulator.run(home, "-m", "pytest", "-q", *map(str, tests))
    assert "skipped" not in printed
    assert " passed" in printed


def test_the_example_gives_what_flower_gives(home: Path, tmp_path: Path) -> None:
    """Three clusters by how digits are turned, and the models of these, to the bit."""
    *clusters, accuracy, place = nvflare_simulator.example(home, tmp_path)
    turned = [[f"clinic-{part:02}" for part in range(turn, 8, 3)] for turn in range(3)]
    assert turned == sorted(line.partition(": ")[2].split(", ") for line in clusters)
    assert json.loads(accuracy.partition(": ")[2])[-1] >= 0.85
    models = Path(place.partition(": ")[2])
    report = json.loads((models / "rounds.json").read_text())[-1]
    flower = _by_flower()
    assert flower.clusters is not None
    assert report["clusters"] == {str(n): [*who] for n, who in flower.clusters.named.items()}
    assert report["silhouette"] == flower.clusters.silhouette
    for number, arrays in flower.cluster_arrays.items():
        expected = {name: array.numpy() for name, array in arrays.items()}
        found = load_file(models / f"cluster-{number}.safetensors")
        assert {name: values.tobytes() for name, values in expected.items()} == {
            name: values.tobytes() for name, values in found.items()
        }


def _by_flower() -> ClusteredStrategy:
    """Flower's strategy on the same clinics, each with the random numbers that its process has."""
    sys.path.insert(0, str(ROOT / "examples" / "flower"))
    task: Any = importlib.import_module("turned_digits.task")
    sys.path.pop(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        apps = {part + 1: _clinic(task, part) for part in CLINICS}
        strategy = ClusteredStrategy(FedAvg(fraction_evaluate=0.0), per_cluster=True)
        arrays = ArrayRecord(task.network().state_dict())
        strategy.start(grid=LocalGrid(apps), initial_arrays=arrays, num_rounds=5)
    torch.set_num_threads(threads)
    return strategy


def _clinic(task: Any, part: int) -> ClientApp:
    """What ``examples/nvflare/client.py`` does, as a ClientApp."""
    app = ClientApp(mods=[SupportMod(name=f"clinic-{part:02}")])
    torch.manual_seed(part)
    numbers = [torch.get_rng_state()]

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, (samples, _) = task.network(), task.load(part)
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        model.load_state_dict(arrays.to_torch_state_dict())
        hand_over(fisher_importance(model, cross_entropy, [samples]))
        torch.set_rng_state(numbers[0])
        task.train(model, samples, epochs=5)
        numbers[0] = torch.get_rng_state()
        records: dict[str, Any] = {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"num-examples": len(samples[1])}),
        }
        return Message(RecordDict(records), reply_to=message)

    return app
