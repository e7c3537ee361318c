"""Exact copies among the models of a hub, by the digests of all weights that a sync reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.models.weights.service import WeightsService
from modelkin.checkpoints import open_checkpoint, weights_of
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import (
    random_tensors,
    safetensors,
    sharded,
)
from tests.support.servers.fake_huggingface import Hub


def test_a_sync_states_the_weights_of_every_model(
    hub: Hub, app: AppHarness, tmp_path: Path
) -> None:
    """Whatever the shards of a copy, also where the space leaves tensors out; a model that differs
    in a tensor that is left out, or has the values in another dtype, is no copy.
    """
    tensors = {name: each.astype("f2").astype("f4") for name, each in random_tensors(1).items()}
    changed = tensors | {"encoder.bias": tensors["encoder.bias"] + 1}
    halves = {name: each.astype("f2") for name, each in tensors.items()}
    hub.push("org/a", {"model.safetensors": safetensors(tensors)})
    hub.push("org/b", sharded(tensors))
    hub.push("org/c", {"model.safetensors": safetensors(halves)}, card={"base_model": "org/a"})
    hub.push("org/d", {"model.safetensors": safetensors(changed)})
    source = app.hubs.follow(hub.url, exclude=["*.bias"])
    for name in ("org/a", "org/b", "org/c", "org/d"):
        job = app.hubs.sync_model(source, name)
        assert job.result is not None, job.error
    with app.database.reading() as session:
        [group] = app.services[WeightsService].duplicates(session, app.tenant, limit=10).items
    (tmp_path / "a.safetensors").write_bytes(safetensors(tensors))
    assert weights_of(open_checkpoint(tmp_path / "a.safetensors")).digest == group.digest
    assert ["org/a", "org/b"] == [item.model for item in group]
    assert {"hub"} == {item.stated_by for item in group}
    assert [
        None,
        "the same weights as org/a, in 2 shards instead of 1 file",
    ] == [item.says for item in group]


@pytest.mark.parametrize("other", [1, 2])
def test_adapters_are_copies_by_their_factors(hub: Hub, app: AppHarness, other: int) -> None:
    """Two uploads of one adapter have the same weights, and two adapters of one base have not."""
    config = b'{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "org/x"}'
    for name, seed in (("org/a", 1), ("org/b", other)):
        generator = np.random.default_rng(seed)
        factors = {
            f"base_model.model.l.lora_{side}.weight": generator.normal(size=shape).astype("f4")
            for side, shape in (("A", (2, 30)), ("B", (40, 2)))
        }
        hub.push(
            name,
            {"adapter_model.safetensors": safetensors(factors), "adapter_config.json": config},
        )
        job = app.hubs.sync_model(app.hubs.follow(hub.url), name)
        assert job.result is not None, job.error
    with app.database.reading() as session:
        found = app.services[WeightsService].duplicates(session, app.tenant, limit=10).items
    assert (1 if other == 1 else 0) == len(found)


@pytest.mark.parametrize(("alpha", "copies"), [(4, 1), (8, 0)])
def test_adapters_of_other_alphas_are_no_copies(
    hub: Hub, app: AppHarness, alpha: int, copies: int
) -> None:
    """A trainer may write the alpha of a module as an integer, and it scales the difference."""
    generator = np.random.default_rng(3)
    down, up = (generator.normal(size=s).astype("f4") for s in ((2, 320), (320, 2)))
    module = "lora_unet_down_blocks_0_attentions_0_transformer_blocks_0_attn1_to_q"
    for name, each in (("org/a", 4), ("org/b", alpha)):
        file = {
            f"{module}.lora_down.weight": down,
            f"{module}.lora_up.weight": up,
            f"{module}.alpha": np.array(each, np.int64),
        }
        hub.push(name, {"style.safetensors": safetensors(file)})
        job = app.hubs.sync_model(app.hubs.follow(hub.url), name)
        assert job.result is not None, job.error
    with app.database.reading() as session:
        found = app.services[WeightsService].duplicates(session, app.tenant, limit=10).items
    assert copies == len(found)
