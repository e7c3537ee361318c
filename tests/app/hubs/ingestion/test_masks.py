"""Masks and one-hot tables of files: a space that a source makes is without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.hubs.ingestion.masks import tables_of_two_values
from modelkin.checkpoints import open_checkpoint
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import Tensors, random_tensors, safetensors, sister_of
from tests.support.models.planted_tables import TABLES
from tests.support.servers.fake_huggingface import Hub

MASK = np.tril(np.ones((64, 64), np.float32))


def test_two_values_in_order_are_a_table(tmp_path: Path) -> None:
    """In any dtype and of any two values; what is trained to two, or holds one or more, is none."""
    rng = np.random.default_rng(1)
    tables: Tensors = {
        "mask": MASK,
        "half": (MASK * -1e4).astype(np.float16),
        "batched": np.broadcast_to(MASK, (40, 64, 64)).copy(),
        "one-hot": TABLES["one-hot"]().astype(np.float32),
    }
    broken = np.broadcast_to(MASK, (80, 64, 64)).copy()
    broken[-1, -1, -1] = 0.5
    others: Tensors = {
        "binary": np.where(rng.random((64, 64)) < 0.5, 0.1, -0.1).astype(np.float32),
        "ternary": rng.integers(-1, 2, (64, 64)).astype(np.float32),
        "ones": np.ones(2048, np.float32),
        "small": np.tril(np.ones((8, 8), np.float32)),
        "broken": broken,
        "sinusoids": TABLES["sinusoids"]().astype(np.float32),
    }
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({**tables, **others, **random_tensors(2)}))
    assert set(tables) == set(tables_of_two_values(open_checkpoint(path).tensors))


@pytest.mark.slow
def test_a_space_is_made_without_them(hub: Hub, app: AppHarness) -> None:
    """For weights and differences; a note names the table, and the space excludes it."""
    base = random_tensors(1)
    child = {name: values + np.float32(0.1) * values[::-1] for name, values in base.items()}
    hub.push("acme/base", {"model.safetensors": safetensors({**base, "mask": MASK})})
    card = {"base_model": "acme/base"}
    hub.push("acme/child", {"model.safetensors": safetensors({**child, "mask": MASK})}, card=card)
    source = app.hubs.follow(hub.url)
    for name in ("acme/base", "acme/child"):
        outcome = app.hubs.sync_model(source, name).result
        assert outcome is not None
        assert any("'mask'" in note for note in outcome["notes"]) == (name == "acme/base")
    spaces = app.http.get("/v1/spaces").json()["items"]
    assert {3050} == {space["num_parameters"] for space in spaces}
    assert sister_of("kin", "acme/base") in {space["name"] for space in spaces}


@pytest.mark.slow
def test_a_space_that_has_them_keeps_them(hub: Hub, app: AppHarness) -> None:
    """Its supports were selected beside them, so that a new model's is selected likewise."""
    tensors = {**random_tensors(1), "mask": MASK}
    layout = [{"name": name, "shape": list(tensors[name].shape)} for name in sorted(tensors)]
    made = app.http.post("/v1/spaces", json={"name": "kin", "layout": layout})
    assert 201 == made.status_code
    hub.push("acme/base", {"model.safetensors": safetensors(tensors)})
    source = app.hubs.follow(hub.url, importance="weight")
    outcome = app.hubs.sync_model(source, "acme/base").result
    assert outcome is not None
    assert ("kin", []) == (outcome["space"], outcome["notes"])
