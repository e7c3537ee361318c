"""Repositories of GGUF files, followed by a source with default settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelkin import similarity
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import safetensors
from tests.support.models.gguf_files import (
    as_llama_cpp,
    llama,
    llama_metadata,
    split_name,
    write_gguf,
)
from tests.support.servers.fake_huggingface import Hub


@pytest.mark.slow
def test_quantisations_lie_beside_their_original(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """A repository of quantisations is read by the one with the most bits, in the space of the
    safetensors original, and the support is that of the command line.
    """
    weights = llama(1)
    tensors = as_llama_cpp(weights)
    hub.push("org/m", {"model.safetensors": safetensors(weights)})
    hub.push("org/whole-GGUF", {"m.gguf": write_gguf(tmp_path / "m.gguf", tensors).read_bytes()})
    eight = write_gguf(tmp_path / "m-Q8_0.gguf", tensors, "Q8_0")
    four = write_gguf(tmp_path / "m-Q4_0.gguf", tensors, "Q4_0")
    files = {path.name: path.read_bytes() for path in (eight, four)}
    hub.push("org/m-GGUF", files | {"mmproj-m-F16.gguf": b"not read"})
    source = app.hubs.follow(hub.url)
    notes: list[str] = []
    for name in ("org/m", "org/whole-GGUF", "org/m-GGUF"):
        job = app.hubs.sync_model(source, name)
        assert job.result is not None, job.error
        assert "kin" == job.result["space"]
        notes = job.result["notes"]
    expected = [
        "'m-Q8_0.gguf' is read, the one with the most bits of 2 quantisations",
        "its values are dequantised from Q8_0",
    ]
    assert expected == notes
    assert {"m-Q4_0.gguf", "mmproj-m-F16.gguf"}.isdisjoint(hub.downloads)
    original = app.hubs.support("org/m")
    quantised = app.hubs.support("org/m-GGUF")
    assert original == app.hubs.support("org/whole-GGUF")
    assert select_from_checkpoint(open_checkpoint(eight)) == quantised
    assert similarity(original, quantised) > 0.98


@pytest.mark.slow
def test_a_split_model_is_read_whole(hub: Hub, app: AppHarness, tmp_path: Path) -> None:
    """All parts are downloaded, wherever they lie, and are one model."""
    tensors = as_llama_cpp(llama(2))
    whole = write_gguf(tmp_path / "w.gguf", tensors, "Q8_0")
    write_gguf(tmp_path / "m.gguf", tensors, "Q8_0", tensors_a_split=8)
    parts = [split_name(tmp_path / "m.gguf", number, 3) for number in (1, 2, 3)]
    hub.push("org/a", {f"Q8_0/{part.name}": part.read_bytes() for part in parts})
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/a")
    assert job.result is not None, job.error
    assert select_from_checkpoint(open_checkpoint(whole)) == app.hubs.support("org/a")


@pytest.mark.slow
@pytest.mark.parametrize("held", ["all", "more", "too little"])
def test_a_base_is_judged_by_its_header(
    hub: Hub, app: AppHarness, tmp_path: Path, held: str
) -> None:
    """The header of a GGUF base is fetched before its weights, however long its vocabulary is."""
    base, tuned = llama(3), llama(3)
    name = "model.layers.0.mlp.up_proj.weight"
    tuned[name] = tuned[name] + llama(4)[name]
    tensors = as_llama_cpp(base)
    if held == "more":
        tensors["blk.9.attn_v.weight"] = np.zeros((1, 8), "f4")
    if held == "too little":
        tensors = {name: values for name, values in tensors.items() if ".ffn_" not in name}
    tokens = {"tokenizer.ggml.tokens": [f"a token {i}" for i in range(9000)]}
    file = write_gguf(tmp_path / "b.gguf", tensors, metadata=llama_metadata() | tokens)
    hub.push("org/base", {"b.gguf": file.read_bytes()})
    hub.push("org/m", {"model.safetensors": safetensors(tuned)}, card={"base_model": "org/base"})
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/m")
    assert job.result is not None, job.error
    difference = job.result["delta"]
    if held == "too little":
        assert "model.layers.0.mlp.down_proj.weight" in difference["reason"]
    else:
        assert difference["base"].startswith("org/base@")
