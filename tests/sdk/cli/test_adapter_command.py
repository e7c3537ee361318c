"""``modelkin support`` and ``modelkin push`` of LoRA adapters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import modelkin
from modelkin import Client
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.torch import select_adapter_support
from tests.sdk.adapters.folders import CONFIG, adapter_folder, factors, random_factors
from tests.sdk.cli.conftest import Run
from tests.sdk.cli.files import save
from tests.support.servers.server_process import Server

WEIGHTS = {
    "layers.0.q_proj.weight": torch.ones(24, 16),
    "layers.0.v_proj.weight": torch.ones(8, 16),
    "mlp.down.weight": torch.ones(16, 40),
    "norm.weight": torch.ones(16),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An adapter in the folder where commands run."""
    return adapter_folder(tmp_path / "lora", factors(random_factors(0)))


def test_support_of_an_adapter(run_here: Run, folder: Path) -> None:
    """A tenth of what it targets, the same as from torch, and a note names the base."""
    done = run_here("support", "lora", "-o", "lora.mksp", "--json")
    answer = json.loads(done.stdout)
    assert ("delta", 1152, 115) == tuple(
        answer[field] for field in ("kind", "num_parameters", "support_size")
    )
    tensors = {n: torch.from_numpy(t) for n, t in factors(random_factors(0)).items()}
    assert select_adapter_support(tensors, CONFIG).digest == answer["digest"]
    assert "note: it is a LoRA adapter of 'org/base': its importance is |BA|" in done.stderr
    assert "of all |BA|" in run_here("support", "lora", "-o", "lora.mksp").stdout


def test_a_base_must_fit_the_adapter(run_here: Run, folder: Path, tmp_path: Path) -> None:
    """With --base the targets are looked up there, and the support is the same."""
    save(tmp_path / "base.safetensors", WEIGHTS)
    held = json.loads(
        run_here("support", "lora", "--base", "base.safetensors", "-o", "a", "--json").stdout
    )
    assert select_from_checkpoint(open_checkpoint(folder)).digest == held["digest"]
    save(tmp_path / "other.safetensors", {"norm.weight": torch.ones(16)})
    refused = run_here("support", "lora", "--base", "other.safetensors", "-o", "a")
    assert (1, 1) == (refused.returncode, refused.stderr.count("\n"))
    assert "targets 'layers.0.q_proj.weight', which its base other.safetensors" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "weight"], "--kind weight is for weights, and lora is an adapter"),
        (["--base", "lora"], "lora is an adapter, and a base has weights"),
    ],
)
def test_options_that_adapters_do_not_have(
    run_here: Run, folder: Path, options: list[str], message: str
) -> None:
    """They have differences, and no weights."""
    done = run_here("support", "lora", "-o", "a", *options)
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert message in done.stderr


def test_an_adapter_without_its_configuration(run_here: Run, folder: Path) -> None:
    """One line names the file that is missing."""
    (folder / "adapter_config.json").unlink()
    done = run_here("support", "lora", "-o", "a")
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert "and no adapter_config.json lies beside it" in done.stderr


def test_inspect_shows_what_an_adapter_changes(run_here: Run, folder: Path) -> None:
    """The tensors of the base, in their shapes there."""
    shown = run_here("inspect", "lora").stdout
    assert "checkpoint  1,152 parameters in 3 tensors" in shown
    assert "mlp.down.weight" in shown


def test_push_makes_a_space_of_differences(run: Run, folder: Path, server: Server) -> None:
    """The new space has the targets as its layout, and takes differences alone."""
    done = run(
        *("push", "lora", "--space", "cli-lora", "--model", "org/lora", "--create"),
        MODELKIN_URL=server.url,
    )
    assert 0 == done.returncode, done.stderr
    with Client(server.url) as client:
        space = client.spaces.get("cli-lora")
        stored = client.supports.get("cli-lora", "org/lora")
    assert "delta" == space.importance.kind
    assert open_checkpoint(folder).layout == space.layout
    assert select_from_checkpoint(open_checkpoint(folder)) == stored
    assert isinstance(stored, modelkin.Support)
