"""Files of all forms read by ranges: the supports and the digests of whole files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save

from app.hubs.ingestion.files import checkpoint_fetcher, ranged_files
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint, weights_of
from tests.support.app.harness import AppHarness
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.models.gguf_files import as_llama_cpp, llama, write_gguf
from tests.support.models.quantised_checkpoints import quantised
from tests.support.servers.fake_huggingface import Handler, Hub

BLOCK = 16 << 10
WEIGHTS = {
    f"h.{n}.weight": np.random.default_rng(n).normal(0, 0.02, (256, 256)).astype(np.float32)
    for n in range(4)
}

Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """All files are read by ranges, in a window of a few blocks."""
    monkeypatch.setattr(ranged_files, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(ranged_files, "WINDOW_BYTES", 4 * BLOCK)
    monkeypatch.setattr(ranged_files, "LOOK_BYTES", 512)
    monkeypatch.setattr(checkpoint_fetcher, "WHOLE_BYTES", 0)
    monkeypatch.setattr("modelkin.checkpoints.one_pass.PART_SIZE", 10_000)


def in_shards(tensors: dict[str, Any], second: Callable[[str], bool]) -> Files:
    """Two shards, and their index: some tensors are in the second."""
    held = {name: f"model-0000{1 + second(name)}-of-00002.safetensors" for name in tensors}
    files = {
        file: save({name: tensors[name] for name in tensors if held[name] == file})
        for file in sorted(set(held.values()))
    }
    return files | {"model.safetensors.index.json": json.dumps({"weight_map": held}).encode()}


def of_scheme(scheme: str, second: Callable[[str], bool]) -> Callable[[Path], Files]:
    """A quantised model in two shards."""

    def made(_: Path) -> Files:
        tensors, config = quantised(WEIGHTS, scheme)
        return in_shards(tensors, second) | {"config.json": json.dumps(config).encode()}

    return made


def of_gguf(kind: str) -> Callable[[Path], Files]:
    """A GGUF file."""

    def made(folder: Path) -> Files:
        path = write_gguf(folder / "m.gguf", as_llama_cpp(llama(1)), kind)
        return {path.name: path.read_bytes()}

    return made


def adapter(_: Path) -> Files:
    """An adapter, each factor of which is read several times."""
    config = b'{"peft_type": "LORA", "r": 8, "lora_alpha": 4, "base_model_name_or_path": "org/x"}'
    factors = random_tensors(
        3,
        {
            "base_model.model.l.lora_A.weight": (8, 3000),
            "base_model.model.l.lora_B.weight": (4000, 8),
        },
    )
    return {"adapter_model.safetensors": safetensors(factors), "adapter_config.json": config}


FORMS = {
    "FP8, scales in another shard": of_scheme(
        "FP8, blocks of 128 by 128", lambda name: "scale" in name
    ),
    "GPTQ": of_scheme("GPTQ, 4 bits", lambda name: name.startswith("h.3")),
    "nf4": of_scheme("nf4", lambda name: name.startswith("h.3")),
    "Q4_0": of_gguf("Q4_0"),
    "adapter": adapter,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_any_form(hub: Hub, app: AppHarness, tmp_path: Path, form: str) -> None:
    """Its support and its digests are those that the command line computes."""
    files = FORMS[form](tmp_path)
    folder = tmp_path / "clone"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    local = open_checkpoint(folder)
    ranges: list[str | None] = []

    def note(request: Handler) -> bool:
        ranges.append(request.headers.get("Range"))
        return False

    hub.on_cdn = note
    hub.push("org/m", files)
    job = app.hubs.sync_model(app.hubs.follow(hub.url), "org/m")
    assert job.result is not None, job.error
    expected = select_from_checkpoint(local)
    found = app.hubs.support("org/m", job.result["space"])
    assert expected == found
    stated = app.http.get(f"/v1/spaces/{job.result['space']}/weights/org/m").json()
    assert weights_of(local).digest == stated["digest"]
    assert (form == "adapter") == (None in ranges)  # which is downloaded whole
