"""NVFlare's controller and its sites, in one process; run in the environment that has NVFlare."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVFlare has an environment of its own: `make nvflare`")

from nvflare.client import FLModel, ParamsType
from nvflare.job_config.api import FedJob
from safetensors.numpy import load_file, save_file

from modelkin import fit_subspace
from modelkin.errors import InvalidParameter
from modelkin.integrations.nvflare import ClusteredFedAvg, KinRobust
from tests.sdk.integrations.nvflare.controllers import Answer, LocalSites
from tests.sdk.integrations.nvflare.scripts import Script
from tests.support.federations.plain_kinds import draws, initial, trained
from tests.support.private_names import foreign_private_names

NAMES = tuple(f"site-{number}" for number in range(1, 9))
Model = dict[str, np.ndarray[Any, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run, with the weights in its app."""
    (tmp_path / "custom").mkdir()
    save_file(initial(), tmp_path / "custom" / "initial.safetensors")
    return tmp_path


def sites(*names: str, **how: Any) -> dict[str, Answer]:
    return {name: Script(name, lambda model, _: model, **how) for name in names}


def by_data(name: str) -> Any:
    """What a site says of its data: points near a plane that its kind shares."""
    common, own = draws(name)
    points = own.normal(size=(60, 2)) @ common.normal(size=(2, 12))
    return fit_subspace(points + 0.05 * own.normal(size=points.shape))


def described(*names: str) -> dict[str, Answer]:
    return {
        name: Script(name, lambda model, _: model, subspace=lambda name=name: by_data(name))
        for name in names
    }


def last(folder: Path) -> dict[str, Any]:
    """What the last round gave."""
    found = json.loads((folder / "modelkin" / "rounds.json").read_text())[-1]
    assert isinstance(found, dict)
    return found


def groups(report: dict[str, Any]) -> list[list[str]]:
    return sorted(report["clusters"].values())


def bits(model: Any) -> dict[str, bytes]:
    return {name: np.asarray(values).tobytes() for name, values in model.items()}


def saved(folder: Path, name: str, report: dict[str, Any]) -> Model:
    """The saved model of a site's cluster."""
    (cluster,) = (number for number, names in report["clusters"].items() if name in names)
    return load_file(folder / "modelkin" / f"cluster-{cluster}.safetensors")


def test_the_module_uses_no_private_name_of_nvflare() -> None:
    """The test of all other modules cannot see NVFlare's classes."""
    folder = Path(inspect.getfile(ClusteredFedAvg)).parent
    assert {} == foreign_private_names(sorted(folder.glob("*.py")))


def test_sites_get_the_model_of_their_cluster(folder: Path) -> None:
    """Odd and even sites are found by their supports, and their means are saved."""
    job = LocalSites(sites(*NAMES), folder, num_rounds=2, initial="initial.safetensors")
    job.run()
    report = last(folder)
    assert [list(NAMES[::2]), list(NAMES[1::2])] == groups(report)
    for group in (NAMES[::2], NAMES[1::2]):
        got = {name: job.got[1][name].params for name in group}
        mean = {
            each: np.average(
                [trained(params, name)[each].astype(np.float64) for name, params in got.items()],
                axis=0,
                weights=[int(name[-1]) for name in group],
            )
            for each in initial()
        }
        model = saved(folder, group[0], report)
        assert all(np.allclose(mean[n], model[n], rtol=1e-6, atol=1e-7) for n in mean)
        assert 1 == pytest.approx(sum(report["weights"][name] for name in group))
    assert type(job.got[1]["site-1"].meta["modelkin"]["k"]) is int


def test_differences_are_the_same_as_models(folder: Path) -> None:
    """A site may send what has changed; only the sum is rounded again."""
    whole = LocalSites(sites(*NAMES), folder, num_rounds=1, initial="initial.safetensors")
    whole.run()
    expected = saved(folder, "site-1", last(folder))

    def step(model: FLModel, _: int) -> FLModel:
        params = {name: values - initial()[name] for name, values in model.params.items()}
        return FLModel(params_type=ParamsType.DIFF, params=params, meta=model.meta)

    scripts: dict[str, Answer] = {name: Script(name, step) for name in NAMES}
    LocalSites(scripts, folder, num_rounds=1, initial="initial.safetensors").run()
    found = saved(folder, "site-1", last(folder))
    assert all(np.allclose(expected[n], found[n], rtol=1e-6, atol=1e-6) for n in expected)


COUNTERS = {"n": np.asarray(1000), "small": np.asarray([7], np.uint8), "on": np.asarray([True])}


def _counted(steps: dict[str, Any], folder: Path) -> tuple[Model, dict[str, str]]:
    """The model of a round in which one site alone says what has changed, and who is left out."""
    save_file({**initial(), **COUNTERS}, folder / "custom" / "initial.safetensors")

    def step(model: FLModel, _: int) -> FLModel:
        params = {n: np.zeros_like(each) for n, each in initial().items()} | steps
        return FLModel(params_type=ParamsType.DIFF, params=params, meta=model.meta)

    scripts: dict[str, Answer] = {"site-1": Script("site-1", step)}
    LocalSites(scripts, folder, num_rounds=1, initial="initial.safetensors").run()
    return load_file(folder / "modelkin" / "all.safetensors"), last(folder)["weighted_down"]


@pytest.mark.parametrize(
    "steps",
    [
        {"n": np.asarray(7.6), "small": np.asarray([-3.4]), "on": np.asarray([-1.0])},
        {"n": np.asarray(8), "small": np.asarray([253], np.uint8), "on": np.asarray([-1], np.int8)},
    ],
    ids=["floats", "whole"],
)
def test_a_difference_of_a_counter_is_rounded(steps: dict[str, Any], folder: Path) -> None:
    """To the nearest whole number, as a mean is; a difference of bytes may have turned over."""
    model, left_out = _counted(steps, folder)
    assert {} == left_out
    found = {name: (model[name].dtype, model[name].tolist()) for name in COUNTERS}
    assert {"n": (np.int64, 1008), "small": (np.uint8, [4]), "on": (np.bool_, [False])} == found


@pytest.mark.parametrize(
    "steps",
    [{"n": np.asarray(1e300)}, {"small": np.asarray([250])}, {"on": np.asarray([True])}],
    ids=["float", "whole", "truth"],
)
def test_a_difference_beyond_a_counter_is_left_out(steps: dict[str, Any], folder: Path) -> None:
    """With the reason of a model that has such a value."""
    none = {name: np.zeros_like(values) for name, values in COUNTERS.items()}
    _, left_out = _counted({**none, **steps}, folder)
    assert "out of range" in left_out["site-1"]


def test_limits_of_updates_are_in_the_job(tmp_path: Path) -> None:
    """A ``KinRobust`` reaches the server, and is the one that ``robust`` names there."""
    limits = KinRobust(least=0.2, min_members=4)
    job = FedJob(name="robust", min_clients=1)
    job.to_server(ClusteredFedAvg(initial="initial.safetensors", robust=limits))
    job.export_job(str(tmp_path))
    (written,) = tmp_path.rglob("config_fed_server.json")
    (controller,) = json.loads(written.read_text())["workflows"]
    again = ClusteredFedAvg(**controller["args"])
    assert again.rules == ClusteredFedAvg(initial="initial.safetensors", robust=limits).rules
    assert limits == again.rules.robust


def _lies(model: FLModel) -> FLModel:
    model.meta["NUM_STEPS_CURRENT_ROUND"] = -1
    return model


def _difference(change: Callable[[Any], Any]) -> Callable[[FLModel], FLModel]:
    """A difference of which one array is changed."""
    return lambda model: FLModel(
        params_type=ParamsType.DIFF,
        params={**model.params, "head.b": change(model.params["head.b"])},
        meta=model.meta,
    )


def _in_the_second_round(
    change: Callable[[FLModel], FLModel | None],
) -> Callable[[FLModel, int], FLModel | None]:
    return lambda model, count: change(model) if count == 2 else model


ODD: dict[str, Callable[[FLModel], FLModel | None]] = {
    "it vanishes": lambda model: None,
    "another layout": lambda model: FLModel(params={"body.w": np.zeros(3)}, meta=model.meta),
    "no arrays": lambda model: FLModel(params=None, metrics={"a": 1}, meta=model.meta),
    "it lies about its samples": _lies,
    "no word of its samples": lambda model: FLModel(params=model.params),
    "a difference of texts": _difference(lambda values: values.astype(str)),
    "a difference that is NaN": _difference(lambda values: np.full_like(values, np.nan)),
    "a difference of complex numbers": _difference(lambda values: values * 1j),
    "lists of unequal lengths": _difference(lambda values: [[1.0], [2.0, 3.0]]),
}


@pytest.mark.parametrize("oddity", ODD)
def test_a_site_that_does_not_fit_is_left_out(folder: Path, oddity: str, tmp_path: Path) -> None:
    """The report says why, and the others' models are those of a round without it."""
    found = []
    for change in (ODD[oddity], ODD["it vanishes"]):
        scripts: dict[str, Answer] = sites(*NAMES)
        scripts["site-3"] = Script("site-3", _in_the_second_round(change))
        LocalSites(scripts, folder, num_rounds=2, initial="initial.safetensors").run()
        report = last(folder)
        found.append([bits(saved(folder, name, report)) for name in ("site-1", "site-2")])
        assert {"site-3"} == set(report["silent"]) | set(report["weighted_down"])
    assert found[0] == found[1]


def test_a_failure_is_no_silence(folder: Path) -> None:
    """With the code that NVFlare has of it; a round without a model is an error."""
    scripts, errors = sites(*NAMES[:2]), list[str]()
    scripts["site-1"] = lambda message: "EXECUTION_EXCEPTION"

    class Noting(LocalSites):
        def error(self, msg: str) -> None:
            errors.append(msg)

    rules: dict[str, Any] = {"initial": "initial.safetensors", "timeout": 25, "num_rounds": 1}
    Noting(scripts, folder, **rules).run()
    (why,) = last(folder)["silent"].values()
    assert why.startswith("its script failed (EXECUTION_EXCEPTION): log.txt of its workspace")
    assert [] == errors
    hung: dict[str, Answer] = {name: lambda message: None for name in NAMES}
    Noting(hung, folder, **rules).run()
    assert {"it did not answer within 25 s"} == set(last(folder)["silent"].values())
    assert ["round 1: no site sent a model, so that none has changed"] == errors


def test_of_two_answers_the_first_counts(folder: Path) -> None:
    """Should the engine ever bring another one."""

    class Repeating(LocalSites):
        def send_model(self, *, targets: list[str], data: FLModel, **named: Any) -> None:
            take = named.pop("callback")

            def twice(answer: FLModel) -> None:
                take(answer)
                take(FLModel(params=initial(), meta={**answer.meta}))

            super().send_model(targets=targets, data=data, callback=twice, **named)

    found = []
    for kind in (LocalSites, Repeating):
        kind(sites(*NAMES), folder, num_rounds=1, initial="initial.safetensors").run()
        found.append([bits(saved(folder, name, last(folder))) for name in ("site-1", "site-2")])
    assert found[0] == found[1]


def test_a_round_waits_for_its_timeout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine gets it with each training message; a question has ``patience`` for its own."""
    waits, send = list[int](), LocalSites.send_model

    def noted(self: LocalSites, **named: Any) -> None:
        waits.append(named["timeout"])
        send(self, **named)

    monkeypatch.setattr(LocalSites, "send_model", noted)
    rules: dict[str, Any] = {"by": "data", "timeout": 600, "patience": 7}
    LocalSites(
        described(*NAMES), folder, num_rounds=1, initial="initial.safetensors", **rules
    ).run()
    assert {7, 600} == set(waits)


@pytest.mark.parametrize("odd", [float("nan"), True, "high", [1.0]])
def test_an_odd_metric_ends_no_run(folder: Path, odd: Any) -> None:
    """Its site counts; what all have sent as numbers has a mean."""

    def measured(model: FLModel, _: int) -> FLModel:
        model.metrics = {"accuracy": 0.5, "loss": odd}
        return model

    scripts: dict[str, Answer] = {name: Script(name, measured) for name in NAMES}
    LocalSites(scripts, folder, num_rounds=1, initial="initial.safetensors").run()
    assert {"accuracy": 0.5} == last(folder)["metrics"]["all"]
    assert {} == last(folder)["weighted_down"]


def test_a_name_that_a_site_claims_counts_for_nothing(folder: Path) -> None:
    """NVFlare has authenticated who it is."""
    scripts = sites(*NAMES)

    def claim(model: FLModel, _: int) -> FLModel:
        model.meta["client_name"] = "site-1"
        return model

    scripts["site-2"] = Script("site-2", claim, tags=("north",))
    job = LocalSites(scripts, folder, num_rounds=1, initial="initial.safetensors")
    job.run()
    assert [list(NAMES[::2]), list(NAMES[1::2])] == groups(last(folder))


def test_a_site_that_comes_later_is_with_its_kin(folder: Path) -> None:
    """It gets the first weights, then its cluster's model; a returning one its old cluster."""
    scripts = sites(*NAMES[:7])
    job = LocalSites(scripts, folder, num_rounds=3, initial="initial.safetensors")

    def joins(model: FLModel, count: int) -> FLModel:
        if count == 1:
            scripts.update(sites("site-8"))
        return model

    scripts["site-1"] = Script("site-1", joins)
    job.run()
    assert "site-8" not in job.got[0]
    assert bits(initial()) == bits(job.got[1]["site-8"].params)
    assert bits(job.got[2]["site-2"].params) == bits(job.got[2]["site-8"].params)
    assert [list(NAMES[::2]), list(NAMES[1::2])] == groups(last(folder))


@pytest.mark.parametrize("make", [sites, described], ids=["supports", "data"])
def test_another_job_goes_on_with_a_newcomer(folder: Path, make: Any) -> None:
    """``before`` has the models, the clusters and what newcomers are compared by."""
    by = "data" if make is described else "supports"
    first = LocalSites(make(*NAMES[:7]), folder, num_rounds=1, by=by, initial="initial.safetensors")
    first.run()
    expected = saved(folder, "site-2", last(folder))
    before = str(folder / "modelkin")
    then = LocalSites(make(*NAMES), folder, num_rounds=2, by=by, before=before)
    then.run()
    assert 3 == last(folder)["round"]
    assert [list(NAMES[::2]), list(NAMES[1::2])] == groups(last(folder))
    trainings = [got for got in then.got if "site-2" in got]
    assert bits(expected) == bits(trainings[0]["site-2"].params)
    assert bits(trainings[1]["site-2"].params) == bits(trainings[1]["site-8"].params)


def test_only_shared_arrays_travel(folder: Path) -> None:
    """In both directions; a cluster of fewer than three answers keeps its learngene."""
    scripts = sites(*NAMES, private=("head.*",))
    rules: dict[str, Any] = {"initial": "initial.safetensors", "shared": ["body.*"]}
    job = LocalSites(scripts, folder, num_rounds=1, **rules)
    job.run()
    assert {"body.w"} == set(job.got[0]["site-1"].params)
    expected = saved(folder, "site-1", last(folder))
    assert {"body.w"} == set(expected)
    for name in ("site-1", "site-3"):
        scripts[name] = lambda message: None
    scripts |= sites("site-9", private=("head.*",))
    rules = {"before": str(folder / "modelkin"), "shared": ["body.*"]}
    LocalSites(scripts, folder, num_rounds=1, **rules).run()
    assert bits(expected) == bits(saved(folder, "site-5", last(folder)))
    assert [[*NAMES[::2], "site-9"], [*NAMES[1::2]]] == groups(last(folder))


def test_a_private_array_never_leaves(folder: Path) -> None:
    """Whatever the server asks for: such a site does not count, and the report says why."""
    scripts = {**sites(*NAMES), **sites("site-3", private=("head.*",))}
    LocalSites(scripts, folder, num_rounds=1, initial="initial.safetensors").run()
    assert "the model has 'head.b'" in last(folder)["weighted_down"]["site-3"]


def test_a_site_that_says_nothing_of_its_data_is_in_no_cluster(folder: Path) -> None:
    """The report has its reason, and the others are where they belong."""

    def broken() -> Any:
        raise ValueError("the disk is gone")

    scripts = {**described(*NAMES), **sites("site-4"), **sites("site-5", subspace=broken)}
    LocalSites(scripts, folder, num_rounds=1, by="data", initial="initial.safetensors").run()
    left_out = last(folder)["left_out"]
    assert {"site-4", "site-5"} == set(left_out)
    assert "give ClusterClient(subspace=...)" in left_out["site-4"]
    assert "the disk is gone" in left_out["site-5"]


@pytest.mark.parametrize("broken", ["initial", "before", "nothing"])
def test_a_missing_file_is_named(folder: Path, broken: str) -> None:
    """Of the weights, or of the run before."""
    rules = {
        "initial": {"initial": "gone.safetensors"},
        "before": {"before": str(folder)},
        "nothing": {"persistor_id": "persistor"},
    }
    job = LocalSites(sites(*NAMES), folder, **rules.get(broken, {}))
    job.load_model = lambda: FLModel(params={})
    with pytest.raises(
        InvalidParameter, match=r"cannot be read|no model to begin|not what a run has left"
    ):
        job.run()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds say who does not count, which here is on purpose."""
    caplog.set_level("ERROR", "modelkin.integrations")
