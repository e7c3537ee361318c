"""Indexes and shards that disagree: read as libraries read them, with a note, never in silence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from modelkin.checkpoints import Checkpoint, open_checkpoint, select_from_checkpoint
from modelkin.errors import InvalidCheckpoint
from tests.sdk.cli.files import Tensors, random_tensors, save, save_sharded

INDEX = "model.safetensors.index.json"
FIRST = "model-00001-of-00003.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards and their index."""
    return save_sharded(tmp_path / "shards", random_tensors())


def change(folder: Path, weight_map: dict[str, str | None]) -> None:
    """Change what an index says; None deletes an entry."""
    index = json.loads((folder / INDEX).read_text())
    merged = {**index["weight_map"], **weight_map}
    index["weight_map"] = {name: file for name, file in merged.items() if file is not None}
    (folder / INDEX).write_text(json.dumps(index))


def same(checkpoint: Checkpoint, tensors: Tensors, tmp_path: Path) -> bool:
    """Whether a checkpoint has the support of these tensors in one file."""
    whole = open_checkpoint(save(tmp_path / "whole.safetensors", tensors))
    return select_from_checkpoint(whole) == select_from_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("weight_map", "note"),
    [
        ({"mtp.fc.weight": FIRST}, "names 1 tensors that no shard holds, such as 'mtp.fc.weight'"),
        ({f"x.{i}": FIRST for i in range(9)}, "names 9 tensors that no shard holds"),
        (
            {"body.bias": None},
            "does not name 1 tensors of its shards, such as 'body.bias': they",
        ),
        ({"body.bias": FIRST, "head.weight": "model-00002-of-00003.safetensors"}, None),
    ],
)
def test_an_index_that_errs_about_a_whole_set(
    folder: Path, tmp_path: Path, weight_map: dict[str, str | None], note: str | None
) -> None:
    """A whole set is read whole, as transformers reads it, whatever the index adds or forgets."""
    change(folder, weight_map)
    checkpoint = open_checkpoint(folder)
    assert same(checkpoint, random_tensors(), tmp_path)
    assert [note is not None] == [note in text for text in checkpoint.notes if note] or not note
    assert bool(note) == bool(checkpoint.notes)


def test_an_overlay_counts_where_the_index_says_so(folder: Path, tmp_path: Path) -> None:
    """Of a tensor in two files the one that the index names counts; what it forgets is left out."""
    new = torch.full((32, 30), 0.5)
    save(folder / "model-overlay.safetensors", {"body.weight": new, "stray": torch.ones(4000)})
    change(folder, {"body.weight": "model-overlay.safetensors", "body.bias": None})
    checkpoint = open_checkpoint(folder)
    kept = {name: t for name, t in random_tensors().items() if name != "body.bias"}
    assert same(checkpoint, kept | {"body.weight": new}, tmp_path)
    assert [f"{INDEX} does not name 2 tensors of its shards, such as 'body.bias': they are left "
            "out"] == list(checkpoint.notes)  # fmt: skip


def test_reused_shards_of_other_names(tmp_path: Path) -> None:
    """Of shards of another model only the tensors that the index names count."""
    tensors = random_tensors()
    save(tmp_path / "ple.safetensors", {**tensors, "experts.weight": torch.ones(900)})
    index = {"weight_map": dict.fromkeys(tensors, "ple.safetensors")}
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert same(open_checkpoint(tmp_path), tensors, tmp_path)


def test_a_stale_index_beside_a_whole_set(folder: Path, tmp_path: Path) -> None:
    """The whole set is read, and a note says that the index is of files that are not there."""
    index = (folder / INDEX).read_text()
    (folder / INDEX).write_text(index.replace("of-00003", "of-00030"))
    checkpoint = open_checkpoint(folder)
    assert same(checkpoint, random_tensors(), tmp_path)
    assert "names 3 files that are not there" in checkpoint.notes[0]
    (folder / INDEX).unlink()
    assert same(open_checkpoint(folder), random_tensors(), tmp_path)


def test_a_tensor_in_two_shards_that_no_index_settles(folder: Path) -> None:
    """It is refused, with both shards, where the index forgets it or there is none."""
    shutil.copy(folder / FIRST, folder / "model-00002-of-00003.safetensors")
    change(folder, {"head.weight": None})
    with pytest.raises(InvalidCheckpoint, match=r"is in model-00001-of-00003\.safetensors and in"):
        open_checkpoint(folder)
    (folder / INDEX).unlink()
    with pytest.raises(InvalidCheckpoint, match="no index says which counts"):
        open_checkpoint(folder)


def test_an_index_of_other_weights(tmp_path: Path) -> None:
    """An index that names nothing of what its files hold is refused."""
    save(tmp_path / "a.safetensors", random_tensors())
    (tmp_path / INDEX).write_text('{"weight_map": {"other": "a.safetensors"}}')
    with pytest.raises(InvalidCheckpoint, match="names no tensor that its shards hold"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("index", "shard"),
    [
        ("diffusion_pytorch_model.safetensors.index.fp16.json", "{}.fp16-0000{}-of-00003"),
        ("diffusion_pytorch_model.fp16.safetensors.index.json", "{}.fp16-0000{}-of-00003"),
        ("diffusion_pytorch_model.safetensors.index.fp16.json", "{}-0000{}-of-00003.fp16"),
    ],
)
def test_shards_of_a_variant(tmp_path: Path, index: str, shard: str) -> None:
    """The folder and the index of diffusers' variants are read; a shard names the index there."""
    folder = save_sharded(tmp_path / "v", random_tensors())
    text = (folder / INDEX).read_text()
    for number in (1, 2, 3):
        old = f"model-0000{number}-of-00003.safetensors"
        new = shard.format("diffusion_pytorch_model", number) + ".safetensors"
        (folder / old).rename(folder / new)
        text = text.replace(old, new)
    (folder / INDEX).unlink()
    (folder / index).write_text(text)
    for given in (folder, folder / index):
        assert same(open_checkpoint(given), random_tensors(), tmp_path)
    with pytest.raises(InvalidCheckpoint) as caught:
        open_checkpoint(folder / new)
    assert f"it is one of 3 shards: give their folder, or {index}" in str(caught.value)


def test_a_single_file_goes_first(folder: Path, tmp_path: Path) -> None:
    """A folder with one file and shards is the one file, as it is for transformers and a hub."""
    save(folder / "model.safetensors", random_tensors(1))
    checkpoint = open_checkpoint(folder)
    assert same(checkpoint, random_tensors(1), tmp_path)
    assert "'model.safetensors' is read" in checkpoint.notes[0]


@pytest.mark.parametrize("below", ["a/b", "snapshots/main", "a/.b/c/d"])
def test_a_checkpoint_in_a_subfolder(tmp_path: Path, below: str) -> None:
    """The checkpoint that lies nearest to the top is read, as that of a hub is."""
    (tmp_path / below).mkdir(parents=True)
    save(tmp_path / below / "model.safetensors", random_tensors())
    (tmp_path / below / "deeper").mkdir()
    save(tmp_path / below / "deeper" / "model.safetensors", random_tensors(2))
    assert same(open_checkpoint(tmp_path), random_tensors(), tmp_path)


def test_a_pipeline_names_its_components(tmp_path: Path) -> None:
    """A pipeline's folder is refused with the folders to give, and each of these is a model."""
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": "P", "unet": ["d", "U"], "vae": ["d", "V"], "safety": [null, null]}'
    )
    for seed, name in enumerate(("unet", "vae", "safety")):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "diffusion_pytorch_model.safetensors", random_tensors(seed))
    for given in (tmp_path, tmp_path / "model_index.json"):
        with pytest.raises(InvalidCheckpoint) as caught:
            open_checkpoint(given)
        assert f"give one of {tmp_path / 'unet'}, {tmp_path / 'vae'}" in str(caught.value)
    assert same(open_checkpoint(tmp_path / "vae"), random_tensors(1), tmp_path)
