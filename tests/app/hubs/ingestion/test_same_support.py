"""One repository, one support: by a source and by the command line, of the same files and size."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save

from app.settings import Settings
from modelkin.cli import main
from modelkin.core.selection import rule
from tests.support.app.harness import AppHarness, open_hub_app
from tests.support.models.checkpoints import random_tensors, safetensors, sharded
from tests.support.models.quantised_checkpoints import quantised
from tests.support.servers.fake_huggingface import Hub

INDEX = "model.safetensors.index.json"
OTHER = safetensors(random_tensors(7))


def overlaid() -> dict[str, bytes]:
    """Shards with a file over them that the index prefers, and a tensor that it does not name."""
    files = sharded(random_tensors(1))
    index = json.loads(files[INDEX])
    index["weight_map"]["encoder.bias"] = "overlay.safetensors"
    new = {"encoder.bias": np.ones(50, "f4"), "stray": np.ones(900, "f4")}
    return {**files, "overlay.safetensors": safetensors(new), INDEX: json.dumps(index).encode()}


def stale() -> dict[str, bytes]:
    """Whole shards, and an index of files that are not there."""
    files = sharded(random_tensors(1))
    return {**files, INDEX: files[INDEX].replace(b"of-00002", b"of-00007")}


def unindexed() -> dict[str, bytes]:
    """Whole shards in a folder, without an index, numbered by other digits."""
    files = sharded(random_tensors(1))
    del files[INDEX]
    return {f"weights/{name.replace('-0000', '-')}": data for name, data in files.items()}


def four_bits() -> dict[str, bytes]:
    """Shards in full precision, and a copy in four bits under the default name beside them."""
    draw = np.random.default_rng(5)
    weights = {f"h.{n}.weight": draw.normal(0, 0.02, (64, 256)).astype("f4") for n in range(2)}
    tensors, config = quantised(weights, "MLX, 4 bits")
    stray = {"model.safetensors": save(tensors), "config.json": json.dumps(config).encode()}
    return {**sharded(weights), **stray}


REPOSITORIES = {
    "one file": {"model.safetensors": safetensors(random_tensors(1))},
    "a stray file beside shards": {**sharded(random_tensors(1)), "model.safetensors": OTHER},
    "a stray file in four bits beside shards": four_bits(),
    "a stray file and an index alone": {
        "model.safetensors": OTHER,
        INDEX: sharded(random_tensors(1))[INDEX],
    },
    "other forms beside shards": {
        **sharded(random_tensors(1)),
        "consolidated.safetensors": OTHER,
        "model.fp16.safetensors": OTHER,
        "original/model.safetensors": OTHER,
    },
    "an overlay": overlaid(),
    "a stale index": stale(),
    "no index": unindexed(),
    "far below": {f"{'a/' * 20}model.safetensors": OTHER},
    "one of one": {"model-00001-of-000001.safetensors": OTHER},
    "half precision": {
        "x.safetensors": safetensors({n: t.astype("f2") for n, t in random_tensors(3).items()})
    },
}


def digest_by_shell(folder: Path, files: dict[str, bytes]) -> str:
    """The digest that ``modelkin support`` prints for a folder of these files."""
    digest: str = answer_by_shell(folder, files)["digest"]
    return digest


def answer_by_shell(folder: Path, files: dict[str, bytes]) -> dict[str, Any]:
    """What ``modelkin support --json`` prints for a folder of these files."""
    for name, data in files.items():
        path = folder / "clone" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        output = str(folder / "x.mksp")
        assert not main(("support", str(folder / "clone"), "-o", output, "--json"))
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


QUICK = ("an overlay", "a stray file beside shards")


@pytest.mark.parametrize(
    "repository",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in REPOSITORIES],
)
def test_a_source_and_the_command_line_agree(
    hub: Hub, app: AppHarness, tmp_path: Path, repository: str
) -> None:
    """The same files give the same support, and the same notes on how they were chosen."""
    hub.push("org/a", REPOSITORIES[repository])
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert "succeeded" == job.state, job.error
    expected = answer_by_shell(tmp_path, REPOSITORIES[repository])
    assert expected["digest"] == app.hubs.support("org/a").digest
    model = app.hubs.model("org/a")
    assert model is not None
    assert expected["notes"] == (job.result or {})["notes"] == model.attributes["hub"]["notes"]


def test_a_large_model_has_one_size(
    hub: Hub, app: AppHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where 5% of a model would be more than a support has by default, both take as many."""
    assert rule.MAX_DEFAULT_K == Settings.model_fields["max_ingested_indices"].default == 1 << 25
    monkeypatch.setattr(rule, "MAX_DEFAULT_K", 77)
    hub.push("org/a", REPOSITORIES["one file"])
    app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert 77 == app.hubs.support("org/a").k
    expected = digest_by_shell(tmp_path, REPOSITORIES["one file"])
    assert expected == app.hubs.support("org/a").digest


@pytest.mark.slow
def test_a_service_that_selects_less_says_so(hub: Hub, tmp_path: Path) -> None:
    """Its spaces fix the size, which clients are then asked for, and a note names the setting."""
    hub.push("org/base", {"model.safetensors": OTHER})
    hub.push("org/a", REPOSITORIES["one file"], card={"base_model": "org/base"})
    with open_hub_app(tmp_path, max_ingested_indices=50) as app:
        result = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a").result or {}
        spaces = [result["space"], result["delta"]["space"]]
        sizes = [app.http.get(f"/v1/spaces/{s}").json()["support_size"] for s in spaces]
    assert [{"policy": "fixed", "k": 50}] * 2 == [
        {name: size[name] for name in ("policy", "k")} for size in sizes
    ]
    assert "50 indices at most (MODELKIN_MAX_INGESTED_INDICES)" in result["notes"][-1]
