"""Averages in shards over NVFlare's controller, in one process, where NVFlare is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVFlare has an environment of its own: `make nvflare`")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from nvflare.client import FLModel
from safetensors.numpy import load_file, save_file

from modelkin.errors import InvalidInput, InvalidParameter
from modelkin.integrations.flower import (
    ClusteredStrategy,
    ShardedStrategy,
    ShardMod,
    SupportMod,
    hand_over,
)
from modelkin.integrations.nvflare import ClusterClient, ClusteredFedAvg, ShardClient
from tests.sdk.integrations.flower.federation import LocalGrid
from tests.sdk.integrations.nvflare.controllers import Answer, LocalSites
from tests.sdk.integrations.nvflare.scripts import Script
from tests.support.federations.plain_kinds import importance, initial, trained

NAMES = tuple(f"site-{number}" for number in range(1, 9))
GROUPS = [list(NAMES[::2]), list(NAMES[1::2])]
Model = dict[str, np.ndarray[Any, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run, with the weights in its app."""
    (tmp_path / "custom").mkdir()
    save_file(initial(), tmp_path / "custom" / "initial.safetensors")
    return tmp_path


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds say who does not count, which here is on purpose."""
    caplog.set_level("ERROR", "modelkin.integrations")


def sites(*names: str, change: Any = None, **demands: Any) -> dict[str, Answer]:
    return {
        name: Script(name, change or (lambda model, _: model), shards=ShardClient(**demands))
        for name in names
    }


def job(scripts: dict[str, Answer], folder: Path, **rules: Any) -> LocalSites:
    """A job of three aggregators, or without shards, that has run."""
    rules = {"num_rounds": 1, "shards": {"aggregators": 3}, **rules}
    waits = {} if rules["shards"] is None else {"patience": 1}
    done = LocalSites(scripts, folder, initial="initial.safetensors", **waits, **rules)
    done.run()
    return done


def last(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "modelkin" / "rounds.json").read_text())[-1]
    assert isinstance(found, dict)
    return found


def exact(*names: str) -> dict[str, np.ndarray[Any, Any]]:
    """The average after one round, in float64."""
    models = [trained(initial(), name) for name in names]
    sizes = [int(name[-1]) for name in names]
    return {
        n: np.average([m[n].astype(np.float64) for m in models], axis=0, weights=sizes)
        for n in initial()
    }


def assert_close(found: Model, expected: Model) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-7, atol=1e-7)


def saved(folder: Path, name: str) -> Model:
    """The model of a site's cluster."""
    clusters = last(folder)["clusters"].items()
    (cluster,) = (number for number, names in clusters if name in names)
    return load_file(folder / "modelkin" / f"cluster-{cluster}.safetensors")


SETTINGS: dict[str, dict[str, Any]] = {
    "concealed": {},
    "plain": {"conceal": False},
    "replicas": {"replicas": 2},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_each_cluster_has_its_exact_mean(folder: Path, settings: dict[str, Any]) -> None:
    """Of float64 within 1e-7, and no array of a site comes to the server."""
    found: list[FLModel] = []

    def sent(model: FLModel, _: int) -> FLModel:
        found.append(model)
        return model

    scripts = sites(*NAMES, change=sent, conceal=settings.get("conceal", True))
    job(scripts, folder, shards={"aggregators": 3, **settings})
    assert GROUPS == sorted(last(folder)["clusters"].values())
    assert {len(NAMES), 0} == {len(found), sum(len(model.params) for model in found)}
    for group in GROUPS:
        assert_close(saved(folder, group[0]), exact(*group))
    assert_close(load_file(folder / "modelkin" / "all.safetensors"), exact(*NAMES))
    assert GROUPS == sorted(part["members"] for part in last(folder)["shards"])
    assert 1 == len({part["digest"] for part in last(folder)["shards"]})


def test_clusters_have_the_models_of_flower(folder: Path) -> None:
    """Of the same sites, within 1e-7."""
    job(sites(*NAMES), folder)
    apps = {node: _app(name) for node, name in enumerate(NAMES, start=1)}
    strategy = ClusteredStrategy(
        ShardedStrategy(FedAvg(fraction_evaluate=0.0), aggregators=3), per_cluster=True
    )
    arrays = ArrayRecord({name: Array(values) for name, values in initial().items()})
    strategy.start(grid=LocalGrid(apps), initial_arrays=arrays, num_rounds=1)
    assert strategy.clusters is not None
    found = {str(n): [*names] for n, names in strategy.clusters.named.items()}
    assert found == last(folder)["clusters"]
    for node, name in ((1, "site-1"), (2, "site-2")):
        record = strategy.cluster_arrays[strategy.cluster_of(node) or 0]
        assert_close(saved(folder, name), {n: array.numpy() for n, array in record.items()})


def _app(name: str) -> ClientApp:
    """A site as a client of Flower."""
    app = ClientApp(mods=[SupportMod(name=name), ShardMod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        hand_over(importance(name))
        model = trained(initial(), name)
        records: dict[str, Any] = {
            "arrays": ArrayRecord({each: Array(values) for each, values in model.items()}),
            "metrics": MetricRecord({"num-examples": int(name[-1])}),
        }
        return Message(RecordDict(records), reply_to=message)

    return app


def test_sites_go_on_from_their_cluster(folder: Path) -> None:
    """Two rounds are those of a federation in the clear, but for the rounding."""
    rules: dict[str, Any] = {"num_rounds": 2}
    job(sites(*NAMES), folder, **rules)
    models = {group[0]: saved(folder, group[0]) for group in GROUPS}
    plain: dict[str, Answer] = {n: Script(n, lambda model, _: model) for n in NAMES}
    job(plain, folder, shards=None, **rules)
    for name, model in models.items():
        for array, values in saved(folder, name).items():
            np.testing.assert_allclose(model[array], values, atol=2e-6)


def _lies(model: FLModel, _: int) -> FLModel:
    model.meta["NUM_STEPS_CURRENT_ROUND"] = -1
    return model


def _another(model: FLModel, _: int) -> FLModel:
    return FLModel(params={"body.w": np.zeros(3)}, meta=model.meta)


ODD: dict[str, tuple[Any, str]] = {
    "it vanishes": (lambda model, _: None, "did not answer"),
    "another layout": (_another, "another layout"),
    "it lies about its samples": (_lies, "examples are -1"),
}


@pytest.mark.parametrize("oddity", ODD)
def test_a_site_that_does_not_fit_is_left_out(folder: Path, oddity: str) -> None:
    """With its reason, and the others' mean is exact."""
    change, why = ODD[oddity]
    job({**sites(*NAMES), **sites("site-3", change=change)}, folder)
    assert why in last(folder)["refused"]["site-3"]
    assert_close(saved(folder, "site-2"), exact(*GROUPS[1]))
    assert_close(saved(folder, "site-1"), exact("site-1", "site-5", "site-7"))


def test_a_site_that_is_lost_after_its_training(folder: Path) -> None:
    """The others send their cells again, without it."""
    scripts, lost = sites(*NAMES), Script("site-4", lambda m, _: m, shards=ShardClient())

    def vanishes(message: FLModel) -> FLModel | None:
        asked = message.meta["modelkin"]["shards"]["values"]
        return None if asked["step"] == "send" else lost(message)

    scripts["site-4"] = vanishes
    job(scripts, folder)
    assert "site-4" in last(folder)["refused"]
    assert {1, 2} == {part["attempts"] for part in last(folder)["shards"]}
    assert_close(saved(folder, "site-2"), exact("site-2", "site-6", "site-8"))


def test_a_script_that_starts_again_joins_with_a_new_key(folder: Path) -> None:
    """A round without it, then it counts."""
    scripts = sites(*NAMES)

    def restarts(model: FLModel, count: int) -> FLModel:
        if count == 2:
            scripts.update(sites("site-5"))
        return model

    scripts["site-1"] = Script("site-1", restarts, shards=ShardClient())
    job(scripts, folder, num_rounds=3)
    assert GROUPS == sorted(part["members"] for part in last(folder)["shards"])


def test_a_small_cluster_is_averaged_with_the_others(folder: Path) -> None:
    """An average of fewer than three would show their models."""
    job(sites(*NAMES[::2], "site-2", "site-4"), folder)
    assert {None, 0, 1} >= {part["cluster"] for part in last(folder)["shards"]}
    assert all(len(part["members"]) != 2 for part in last(folder)["shards"])


def test_a_server_without_shards_gets_no_model(folder: Path) -> None:
    """Nor one that conceals nothing, or that averages two."""
    job(sites(*NAMES), folder, shards=None)
    assert_close(load_file(folder / "modelkin" / "all.safetensors"), initial())
    for rules, why in (
        ({"shards": {"aggregators": 3, "conceal": False}}, "ShardClient(conceal=False)"),
        ({"min_members": 2}, "ShardClient(min_members=...)"),
    ):
        job(sites(*NAMES), folder, **rules)
        assert set(NAMES) == set(last(folder)["refused"])
        assert why in last(folder)["refused"]["site-1"]
        assert_close(load_file(folder / "modelkin" / "all.safetensors"), initial())


def test_sites_without_shards_are_named(folder: Path) -> None:
    """One does not take part; where none does, the job ends with the reason."""
    other: dict[str, Answer] = {"site-3": Script("site-3", lambda model, _: model)}
    job({**sites(*NAMES), **other}, folder)
    assert "ClusterClient(shards=" in last(folder)["refused"]["site-3"]
    nobody: dict[str, Answer] = {n: Script(n, lambda model, _: model) for n in NAMES}
    with pytest.raises(InvalidParameter, match=r"site-1: .*ClusterClient\(shards="):
        job(nobody, folder)


@pytest.mark.parametrize(
    "rules",
    [
        {"shards": {}},
        {"shards": {"aggregators": 0}},
        {"shards": {"aggregators": 3, "colour": 1}},
        {"shards": {"aggregators": 3, "conceal": False, "one_in": 2, "masks": "own"}},
        {"shards": {"aggregators": 3}, "weights": "equal"},
        {"shards": {"aggregators": 3}, "robust": True},
    ],
)
def test_settings_out_of_their_range_are_refused(rules: dict[str, Any]) -> None:
    """When the job is made."""
    with pytest.raises(InvalidInput):
        ClusteredFedAvg(initial="initial.safetensors", **rules)


def test_demands_of_a_site_are_checked() -> None:
    """When the script starts."""
    wrong: Any = 3
    with pytest.raises(InvalidInput):
        ClusterClient(shards=wrong)
    with pytest.raises(InvalidInput):
        ClusterClient(shards=ShardClient(b"short"))
