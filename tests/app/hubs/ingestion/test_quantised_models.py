"""Quantised models of a hub, beside the original that they were made from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

from tests.sdk.adapters.folders import CONFIG, factors, random_factors
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import safetensors
from tests.support.models.quantised_checkpoints import quantised
from tests.support.servers.fake_huggingface import Hub

pytestmark = pytest.mark.slow

WEIGHTS = {
    f"h.{n}.weight": np.random.default_rng(n).normal(0, 0.02, (64, 256)).astype(np.float32)
    for n in range(4)
}


def files(scheme: str, **said: Any) -> dict[str, bytes]:
    """The files of a quantised copy."""
    tensors, config = quantised(WEIGHTS, scheme)
    return {"model.safetensors": save(tensors), "config.json": json.dumps(config | said).encode()}


def result(app: AppHarness, source: Any, model: str) -> dict[str, Any]:
    job = app.hubs.sync_model(source, model)
    assert job.result is not None, job.error
    return job.result


def test_copies_lie_beside_the_original(hub: Hub, app: AppHarness) -> None:
    """Copies by three schemes are in the space of the original, as kin, and their jobs say what
    they are dequantised from; MLX's needs its configuration, which is downloaded with it.
    """
    source = app.hubs.follow(hub.url)
    hub.push("org/original", {"model.safetensors": safetensors(WEIGHTS)})
    spaces = {result(app, source, "org/original")["space"]}
    for name, scheme in (("mlx", "MLX, 4 bits"), ("awq", "AWQ"), ("fp8", "FP8 of ComfyUI")):
        hub.push(f"org/{name}", files(scheme))
        made = result(app, source, f"org/{name}")
        spaces.add(made["space"])
        assert ["its values are dequantised from"] == [
            note.rpartition(" from ")[0] + " from" for note in made["notes"]
        ]
    (space,) = spaces
    answer = app.http.get(f"/v1/spaces/{space}/neighbors", params={"model": "org/original"})
    assert {"org/mlx", "org/awq", "org/fp8"} == {
        item["model"] for item in answer.json()["items"] if item["kappa"] > 0.85
    }


def test_a_new_configuration_is_read_again(hub: Hub, app: AppHarness) -> None:
    """Where the configuration alone changes, so do the values, and the support with them."""
    source = app.hubs.follow(hub.url)
    changed = files("GPTQ, 4 bits")
    hub.push("org/a", changed)
    assert "created" == result(app, source, "org/a")["status"]
    said = json.loads(changed["config.json"])
    said["quantization_config"]["checkpoint_format"] = "gptq_v2"
    hub.push("org/a", {**changed, "config.json": json.dumps(said).encode()})
    assert "replaced" == result(app, source, "org/a")["status"]


@pytest.mark.parametrize(
    ("scheme", "noted"), [("FP8, rows", False), ("MXFP4", False), ("nf4", True)]
)
def test_adapters_of_quantised_bases(hub: Hub, app: AppHarness, scheme: str, noted: bool) -> None:
    """The targets of an adapter are compared with the shapes before quantisation; where a header
    does not say these, as bitsandbytes' does not, the job notes it.
    """
    shapes = {"layers.0.q_proj": (24, 64), "layers.0.v_proj": (8, 64)}
    base = {f"{name}.weight": np.full(shape, 0.5, np.float32) for name, shape in shapes.items()}
    tensors, config = quantised(base, scheme)
    tensors["embed"] = torch.ones(1 << 15)
    hub.push(
        "org/base",
        {"model.safetensors": save(tensors), "config.json": json.dumps(config).encode()},
    )
    pairs = factors(random_factors(1, shapes))
    adapter = {
        "adapter_model.safetensors": safetensors(pairs),
        "adapter_config.json": json.dumps(CONFIG).encode(),
    }
    hub.push("org/lora", adapter, card={"base_model": "org/base"})
    notes = result(app, app.hubs.follow(hub.url), "org/lora")["notes"]
    assert noted == any("known by its header alone" in note for note in notes)
    assert noted == any("not compared" in note for note in notes)
