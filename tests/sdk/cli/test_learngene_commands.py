"""``modelkin learngene cut`` and ``average``: files of layers from checkpoints on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from modelkin.checkpoints import cut_checkpoint, open_checkpoint
from modelkin.errors import InvalidCheckpoint, InvalidParameter
from modelkin.torch import cut_learngene, inherit
from tests.sdk.adapters.folders import adapter_folder, factors, random_factors
from tests.sdk.cli.conftest import Run, shown_on_a_terminal


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.Linear(5, 3))
    )


@pytest.fixture
def models(tmp_path: Path) -> list[nn.Sequential]:
    """The models of ``0.safetensors`` to ``3.safetensors``."""
    made = [network(seed) for seed in range(4)]
    for seed, model in enumerate(made):
        save_file(model.state_dict(), tmp_path / f"{seed}.safetensors")
    return made


FILES = [f"{seed}.safetensors" for seed in range(4)]


@pytest.mark.parametrize("buffers", [False, True])
def test_a_cut_on_disk_has_the_bytes_of_one_in_memory(
    tmp_path: Path, models: list[nn.Sequential], buffers: bool
) -> None:
    """So the digest of a learngene does not depend on who cut it."""
    one = cut_learngene(models[0], tmp_path / "a", depth=3, buffers=buffers)
    other = cut_checkpoint(
        open_checkpoint(tmp_path / FILES[0]),
        tmp_path / "b",
        depth=3,
        order=["0", "1", "3", "4"],
        buffers=buffers,
    )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (one.digest, one.layers, one.share) == (other.digest, other.layers, other.share)


def test_cut(tmp_path: Path, models: list[nn.Sequential], run_here: Run) -> None:
    """All but what is excluded, without statistics of batches; the digest is the file's."""
    done = run_here("learngene", "cut", FILES[0], "-o", "gene.safetensors", "--exclude", "4.*")
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("gene.safetensors: 3 layers with 88.1% of all weights, ")
    newcomer = network(9)
    digest = done.stdout.split()[-1]
    report = inherit(newcomer, tmp_path / "gene.safetensors", digest=digest)
    assert torch.equal(models[0].get_parameter("3.weight"), newcomer.get_parameter("3.weight"))
    assert ("1.running_mean", "1.running_var", "4.weight", "4.bias") == report.left


def test_average(tmp_path: Path, models: list[nn.Sequential], run_here: Run) -> None:
    """The mean of the models, by examples, as JSON."""
    done = run_here(
        *("learngene", "average", *FILES, "-o", "gene.safetensors", "--exclude", "4.*", "--json"),
        *(argument for count in (10, 20, 30, 40) for argument in ("--examples", str(count))),
    )
    assert (0, "") == (done.returncode, done.stderr)
    fields = json.loads(done.stdout)
    assert (["0", "1", "3"], {4}) == (fields["layers"], {*fields["members"].values()})
    found = load_file(tmp_path / "gene.safetensors")
    weights = [0.1, 0.2, 0.3, 0.4]
    for name, tensor in found.items():
        parts = [w * m.state_dict()[name].double() for w, m in zip(weights, models, strict=True)]
        torch.testing.assert_close(tensor.double(), sum(parts), rtol=0, atol=1e-7)


def test_average_notes_what_it_leaves_out(
    tmp_path: Path, models: list[nn.Sequential], run_here: Run
) -> None:
    """Layers of too few checkpoints, and with --before tensors that keep their old values."""
    for file in FILES[:2]:
        save_file({**load_file(tmp_path / file), "extra.weight": torch.ones(2)}, tmp_path / file)
    arguments = ["learngene", "average", *FILES, "-o", "gene.safetensors"]
    done = run_here(*arguments)
    assert "4 layers, the mean of 4 checkpoints" in done.stdout
    assert "1 layer of too few checkpoints are left out, such as extra" in done.stderr
    assert "2 to 4 checkpoints" in run_here(*arguments, "--min-members", "2").stdout
    save_file({"extra.weight": torch.zeros(2)}, tmp_path / "before.safetensors")
    done = run_here(*arguments, "--before", "before.safetensors")
    assert "1 tensor of too few checkpoints keep their old values" in done.stderr
    assert [0, 0] == load_file(tmp_path / "gene.safetensors")["extra.weight"].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cut", FILES[0]], "say which layers"),
        (["cut", FILES[0], "--depth", "2"], "depth needs order"),
        (["cut", FILES[0], "--tensor", "encoder.*"], "'encoder.*' matches no tensor"),
        (["cut", "missing.safetensors", "--tensor", "*"], "missing.safetensors: No such file"),
        (["average", FILES[0], FILES[0]], "0.safetensors is given twice"),
        (["average", *FILES, "--examples", "3"], "--examples is given 1 time for 4 checkpoints"),
        (["average", *FILES[:2]], "no layer is in 3 of the 2 checkpoints"),
    ],
)
def test_errors_are_one_line(
    models: list[nn.Sequential], run_here: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """They say what to do, and no file is written."""
    done = run_here("learngene", *arguments, "-o", "gene.safetensors")
    assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert message in done.stderr
    assert not (tmp_path / "gene.safetensors").exists()


def test_a_poisoned_checkpoint_is_not_cut(tmp_path: Path) -> None:
    """NaN is found before the file gets its name."""
    save_file({"a.w": torch.tensor([1.0, torch.nan])}, tmp_path / "x.safetensors")
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    with pytest.raises(InvalidCheckpoint, match=r"tensor 'a\.w' has a value that is NaN"):
        cut_checkpoint(checkpoint, tmp_path / "gene", tensors=["*"])
    with pytest.raises(InvalidParameter, match="is the checkpoint itself"):
        cut_checkpoint(checkpoint, tmp_path / "x.safetensors", tensors=["*"])
    assert [tmp_path / "x.safetensors"] == [*tmp_path.iterdir()]


def test_adapters_have_neither_parts_nor_means(tmp_path: Path) -> None:
    """The mean of factors is not the factors of the mean."""
    checkpoint = open_checkpoint(adapter_folder(tmp_path / "adapter", factors(random_factors(0))))
    with pytest.raises(InvalidCheckpoint, match=r"it is an adapter.*merge it into its base first"):
        cut_checkpoint(checkpoint, tmp_path / "gene", tensors=["*"])


@pytest.mark.slow
@pytest.mark.parametrize("command", [["cut", FILES[0]], ["average", *FILES]])
def test_progress_shows_on_a_terminal_alone(
    tmp_path: Path, models: list[nn.Sequential], command: list[str]
) -> None:
    """It is wiped away in the end."""
    arguments = [*command, "-o", "gene.safetensors", "--tensor", "*"]
    shown = shown_on_a_terminal(tmp_path, "learngene", *arguments)
    assert "ting 0.safetensors [" in shown or "averaging 4 checkpoints [" in shown
    assert "100%" in shown
    assert shown.endswith("\r\x1b[K")


def test_progress_is_the_share_of_values(tmp_path: Path, models: list[nn.Sequential]) -> None:
    """It rises to 1."""
    shares: list[float] = []
    checkpoint = open_checkpoint(tmp_path / FILES[0])
    cut_checkpoint(checkpoint, tmp_path / "gene", tensors=["*"], on_progress=shares.append)
    assert sorted(shares) == shares
    assert 1.0 == shares[-1]
