"""A run that goes on from another one's files: what was learned of sites, and the same rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="NVFlare has an environment of its own: `make nvflare`")

from nvflare.client import FLModel
from safetensors.numpy import save_file

from modelkin.errors import InvalidParameter
from modelkin.integrations.nvflare import KinRobust
from tests.sdk.integrations.nvflare.controllers import Answer, LocalSites
from tests.sdk.integrations.nvflare.scripts import Script
from tests.support.federations.plain_kinds import initial

NAMES = tuple(f"site-{number}" for number in range(1, 9))
LIMITS = KinRobust(share=0.5, min_members=4)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds say who does not count, which here is on purpose."""
    caplog.set_level("ERROR", "modelkin.integrations")


class Turning:
    """A site that sends its first three updates the wrong way round."""

    def __init__(self, name: str) -> None:
        self._script = Script(name, self._turned)

    def __call__(self, message: FLModel) -> FLModel | None:
        self._start = message.params
        return self._script(message)

    def _turned(self, model: FLModel, count: int) -> FLModel:
        if count < 4:
            params = {n: 2 * self._start[n] - values for n, values in model.params.items()}
            return FLModel(params=params, meta=model.meta)
        return model


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """New folders of runs, with the weights in their app."""

    def made() -> Iterator[Path]:
        for number in range(2):
            folder = tmp_path / str(number)
            (folder / "custom").mkdir(parents=True)
            save_file(initial(), folder / "custom" / "initial.safetensors")
            yield folder

    return made()


def run(folder: Path, sites: Mapping[str, Answer], rounds: int, **rules: Any) -> None:
    """These rounds, after those that the folder has."""
    has_run = (folder / "modelkin").exists()
    first = {"before": str(folder / "modelkin")} if has_run else {"initial": "initial.safetensors"}
    LocalSites(dict(sites), folder, num_rounds=rounds, **first, **rules).run()


def verdicts(folder: Path) -> dict[str, Any]:
    """Who counted in the last round, and why others did not."""
    report = json.loads((folder / "modelkin" / "rounds.json").read_text())[-1]
    return {name: report[name] for name in ("round", "weights", "weighted_down")}


def test_sites_are_judged_by_all_rounds_of_both_runs(folders: Iterator[Path]) -> None:
    """As in one run, to the bit: an attacker of the first one is out while it behaves."""
    found = []
    for folder, parts in zip(folders, ([5], [3, 2]), strict=True):
        sites: dict[str, Answer] = {
            **{n: Script(n, lambda model, _: model) for n in NAMES},
            "site-2": Turning("site-2"),
        }
        for rounds in parts:
            run(folder, sites, rounds, robust=LIMITS)
        found.append(verdicts(folder))
    assert found[0] == found[1]
    assert "over 5 rounds" in found[1]["weighted_down"]["site-2"]


@pytest.mark.parametrize(
    ("rules", "field"), [({"weights": "equal"}, "weights"), ({"robust": LIMITS}, "robust")]
)
def test_other_rules_than_before_are_refused(
    folders: Iterator[Path], rules: dict[str, Any], field: str
) -> None:
    """With both values: the first run has left its own beside its models."""
    folder, sites = next(folders), {n: Script(n, lambda model, _: model) for n in NAMES}
    run(folder, sites, 1)
    with pytest.raises(InvalidParameter, match=f"had {field}=.* give the same") as refused:
        run(folder, sites, 1, **rules)
    assert field == refused.value.field
