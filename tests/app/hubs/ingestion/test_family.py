"""One family, one space: children whose files name tensors in another way, or have others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors
from tests.support.servers.fake_huggingface import Hub

SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (60, 32),
    "norm.weight": (32,),
    "norm.bias": (32,),
    "body.weight": (32, 64),
    "head.weight": (10, 32),
}
BASE = random_tensors(1, SHAPES)


def same(name: str) -> str:
    """The name."""
    return name


def tuned(seed: int) -> Tensors:
    """A fine-tune of the base."""
    drift = np.random.default_rng(seed)
    return {n: w + drift.normal(0, 0.1, w.shape).astype("f4") for n, w in BASE.items()}


SPELLINGS: dict[str, Callable[[str], str]] = {
    "model.": lambda name: f"model.{name}",
    "_orig_mod.module.": lambda name: f"_orig_mod.module.{name}",
    "base_model.model.": lambda name: f"base_model.model.{name}",
    "gamma": lambda name: name.replace("norm.weight", "norm.gamma").replace("bias", "beta"),
}


def test_spellings_of_one_network_share_a_space(hub: Hub, app: AppHarness) -> None:
    """Each child has its base's space, names the map in its notes, and is its own equal."""
    hub.push("acme/base", {"model.safetensors": safetensors(BASE)})
    source = app.hubs.follow(hub.url, importance="weight")
    app.hubs.sync_model(source, "acme/base")
    plain = tuned(2)
    hub.push("acme/plain", {"model.safetensors": safetensors(plain)})
    app.hubs.sync_model(source, "acme/plain")
    for number, spell in enumerate(SPELLINGS.values()):
        renamed = {spell(name): values for name, values in plain.items()}
        hub.push(f"acme/{number}", {"model.safetensors": safetensors(renamed)})
        outcome = app.hubs.sync_model(source, f"acme/{number}").result
        assert outcome is not None
        assert "kin" == outcome["space"]
        assert "another name in the space: " in outcome["notes"][0]
        assert app.hubs.support("acme/plain") == app.hubs.support(f"acme/{number}")


@pytest.mark.slow
def test_a_difference_is_taken_under_other_names(hub: Hub, app: AppHarness) -> None:
    """The base's tensors are found for the child's, and the sister space is that of the base."""
    hub.push("acme/base", {"model.safetensors": safetensors(BASE)})
    source = app.hubs.follow(hub.url)
    spaces = set()
    for number, spell in enumerate((same, *SPELLINGS.values())):
        child = {spell(name): values for name, values in tuned(3).items()}
        name, card = f"acme/{number}", {"base_model": "acme/base"}
        hub.push(name, {"model.safetensors": safetensors(child)}, card=card)
        outcome = app.hubs.sync_model(source, name).result
        assert outcome is not None
        spaces.add((outcome["space"], outcome["delta"]["space"]))
    [(_, sister)] = spaces
    supports = [app.hubs.support(f"acme/{number}", sister) for number in range(5)]
    assert supports[:1] * 5 == supports
