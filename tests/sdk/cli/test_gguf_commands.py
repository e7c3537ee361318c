"""GGUF files on the command line: read as the SDK reads them, and said to be dequantised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelkin import Client
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from tests.sdk.cli.conftest import Run
from tests.support.models.checkpoints import safetensors
from tests.support.models.gguf_files import as_llama_cpp, llama, write_gguf
from tests.support.servers.server_process import Server

NOTE = "its values are dequantised from Q4_1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A quantised model in the folder where commands run."""
    return write_gguf(tmp_path / "m.gguf", as_llama_cpp(llama(1)), "Q4_1")


def test_support_and_inspect_read_it(run_here: Run, file: Path) -> None:
    """The support is the SDK's; its origin and a note say what the values come from."""
    done = run_here("support", "m.gguf", "-o", "m.mksp", "--json")
    answer = json.loads(done.stdout)
    expected = select_from_checkpoint(open_checkpoint(file))
    assert (expected.digest, [NOTE]) == (answer["digest"], answer["notes"])
    shown = json.loads(run_here("inspect", "m.mksp", "--json").stdout)
    assert ("weight", "dequantised from Q4_1") == (shown["importance"], shown["note"])
    shown = json.loads(run_here("inspect", "m.gguf", "--json").stdout)
    assert {"Q4_1": 1_228_800, "F32": 1_280} == shown["dtypes"]
    assert "model.embed_tokens.weight" == shown["tensors"][1]["name"]


@pytest.mark.slow
def test_push_puts_it_beside_its_original(run: Run, server: Server, file: Path) -> None:
    """A space that one of them made takes the other, and does not call itself dequantised."""
    (file.parent / "m.safetensors").write_bytes(safetensors(llama(1)))
    settings = {"MODELKIN_URL": server.url}
    for name, model in (("m.gguf", "a/quantised"), ("m.safetensors", "a/original")):
        done = run(
            *("push", name, "--space", "gguf-push", "--model", model, "--create"), **settings
        )
        assert 0 == done.returncode, done.stderr
    with Client(server.url) as client:
        assert client.spaces.get("gguf-push").importance.note is None
        [near] = client.neighbors("gguf-push", "a/quantised", k=1).items
    assert "a/original" == near.model
    assert near.similarity > 0.9
