"""Errors name a checkpoint as it was given, and say what to do with tensors that are no weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from modelkin.errors import InvalidCheckpoint, SpaceMismatch

WEIGHTS = {"a.weight": torch.randn(8, 8)}


def cached(folder: Path, name: str, tensors: dict[str, torch.Tensor]) -> Path:
    """A file as it lies in the Hub's cache: a link to a blob, which is named by its digest."""
    (folder / "blobs").mkdir(exist_ok=True)
    (folder / "snapshots").mkdir(exist_ok=True)
    blob = folder / "blobs" / f"0123abcd{len(list(folder.iterdir()))}{name[:2]}"
    save_file(tensors, blob)
    (folder / "snapshots" / name).symlink_to(blob)
    return folder / "snapshots" / name


def test_a_link_is_named_by_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file, of a folder that is a link, and of the present folder."""
    model = cached(tmp_path, "model.safetensors", WEIGHTS)
    base = cached(tmp_path, "base.safetensors", {"b.weight": torch.randn(8, 8)})
    message = r"^base\.safetensors is not a base of model\.safetensors"
    with pytest.raises(SpaceMismatch, match=message):
        select_from_checkpoint(open_checkpoint(model), open_checkpoint(base))
    folder = tmp_path / "mine"
    folder.mkdir()
    save_file(WEIGHTS, folder / "model.safetensors")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    named = [open_checkpoint(path).name for path in (tmp_path / "link", Path(), Path("../mine"))]
    assert ["link", "mine", "mine"] == named


@pytest.mark.parametrize("name", ["freqs_cis", "model.rotary.freqs_cis", "rope.cache"])
def test_complex_tables_are_to_be_excluded(tmp_path: Path, name: str) -> None:
    """The refusal says to exclude it, which works; quantisation is not its reason."""
    path = tmp_path / "m.safetensors"
    save_file(WEIGHTS | {name: torch.ones(4, dtype=torch.complex64)}, path)
    with pytest.raises(InvalidCheckpoint, match=rf"'?{name}'? is C64, .*complex.*: exclude it"):
        open_checkpoint(path)
    assert 64 == open_checkpoint(path, [name]).num_parameters


def test_tensors_that_were_not_gathered_are_told(tmp_path: Path) -> None:
    """Empty tensors, as ZeRO-3 leaves them: a file of nothing else is refused, and others noted."""
    path = tmp_path / "m.safetensors"
    empty = {"b.weight": torch.zeros(0), "c.weight": torch.zeros(0, 8)}
    save_file(empty, path)
    says = r"no parameters: 2 tensors are empty, such as 'b.weight' of shape \[0\], .* ZeRO-3"
    with pytest.raises(InvalidCheckpoint, match=says):
        open_checkpoint(path)
    save_file(WEIGHTS | empty, path)
    assert ["1 tensors are empty"] == [n[:19] for n in open_checkpoint(path).notes]
