"""Adapters whose base is a pipeline: they are compared with the components that they change."""

from __future__ import annotations

import json

import pytest

from modelkin.core.adapters import CONFIG_NAME
from tests.app.hubs.test_adapters import CARD, DOTTED, kohya
from tests.sdk.adapters.folders import CONFIG, random_factors
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub


def named_by(module: str) -> dict[str, bytes]:
    """The files of an adapter: PEFT's if its name is, else kohya's."""
    if "." not in module:
        return {"a.safetensors": kohya(0, module=module)}
    [(a, b)] = random_factors(0, {"x": (24, 16)}).values()
    tensors = {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    config = json.dumps({**CONFIG, "target_modules": None})
    return {"adapter_model.safetensors": safetensors(tensors), CONFIG_NAME: config.encode()}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(24, 16), (24, 17)])
def test_a_pipeline_is_a_base_by_its_components(
    hub: Hub, app: AppHarness, shape: tuple[int, int]
) -> None:
    """Those that the adapter changes have its targets, or the job says which one does not fit."""
    inner = DOTTED.removeprefix("unet.")
    pipeline = {
        "model_index.json": b'{"unet": ["diffusers", "UNet2DConditionModel"]}',
        "unet/diffusion_pytorch_model.safetensors": safetensors(
            random_tensors(1, {f"{inner}.weight": shape})
        ),
        "vae/diffusion_pytorch_model.safetensors": safetensors(random_tensors(2)),
    }
    hub.push("org/base", pipeline)
    hub.push("org/lora", {"a.safetensors": kohya(0)}, card=CARD)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/lora")
    assert job.result is not None, job.error
    refused = [note for note in job.result["notes"] if "not compared with a base" in note]
    assert (shape == (24, 16)) == (refused == [])
    assert all("to_q.weight' with shape [24, 16], its base" in note for note in refused)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factors_of", "layer", "reason"),
    [
        ("base_model.model.fc", "fc", ""),
        ("base_model.model.fc", "fc2", "no component of it has all targets"),
        ("base_model.model.transformer_blocks.0.x", "transformer_blocks.0.x", ""),
        ("lora_unet_blocks_0_x", "blocks.0.x", "has no 'unet', which the adapter changes"),
    ],
)
def test_the_component_that_an_adapter_changes(
    hub: Hub, app: AppHarness, factors_of: str, layer: str, reason: str
) -> None:
    """Where its names tell none, it is one that has all targets; where it lacks, a note says so."""
    pipeline = {
        "model_index.json": b'{"transformer": ["diffusers", "FluxTransformer2DModel"]}',
        "transformer/diffusion_pytorch_model.safetensors": safetensors(
            random_tensors(1, {f"{layer}.weight": (24, 16)})
        ),
        "vae/diffusion_pytorch_model.safetensors": safetensors(random_tensors(2)),
    }
    hub.push("org/base", pipeline)
    hub.push("org/lora", named_by(factors_of), card=CARD)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/lora")
    assert job.result is not None, job.error
    told = [note for note in job.result["notes"] if "not compared with a base" in note]
    assert (reason == "") == (told == [])
    assert all(reason in note for note in told)
