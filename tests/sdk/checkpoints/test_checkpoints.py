"""Checkpoints on disk: one file, shards, folders, and what of them is a parameter."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import modelkin
from modelkin.checkpoints import (
    CheckpointLimits,
    importance_chunks,
    open_checkpoint,
    select_from_checkpoint,
    write_support,
)
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidCheckpoint, InvalidParameter, SpaceMismatch
from tests.sdk.cli.files import entry, flattened, forge, random_tensors, save, save_sharded

INDEX = "model.safetensors.index.json"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of one file."""
    return save(tmp_path / "m.safetensors", random_tensors())


def refusal(path: Path, *exclude: str) -> str:
    """Why a checkpoint is not opened."""
    with pytest.raises(InvalidCheckpoint) as caught:
        open_checkpoint(path, exclude)
    return str(caught.value)


def test_the_layout_is_sorted_by_name(path: Path) -> None:
    """Parameters are in the order of names by code point, whatever the file's order."""
    names = [spec.name for spec in open_checkpoint(path).layout.tensors]
    assert sorted(random_tensors()) == names


@pytest.mark.parametrize(
    "way", [{}, {"k": 100}, {"fraction": 0.3}, {"coverage": 0.6, "k_max": 1.0}]
)
def test_the_support_is_that_of_the_magnitudes(
    path: Path, tmp_path: Path, way: dict[str, Any]
) -> None:
    """In memory or into a file, it is select_support of torch's |w|."""
    checkpoint = open_checkpoint(path)
    expected = modelkin.select_support(flattened(random_tensors()).abs().float().numpy(), **way)
    rule = SelectionRule.of(checkpoint.num_parameters, **way)
    written = write_support(tmp_path / "out.mksp", checkpoint, rule=rule)
    assert expected == select_from_checkpoint(checkpoint, rule=rule)
    assert expected == modelkin.Support.from_bytes((tmp_path / "out.mksp").read_bytes())
    assert (expected.k, expected.digest) == (written.k, written.digest)


def test_chunks_cross_tensors_and_stretches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the size of a chunk nor that of a read shows in the importance."""
    monkeypatch.setattr("modelkin.checkpoints.importance.CHUNK_SIZE", 100)
    monkeypatch.setattr("modelkin.checkpoints.tensors.STRETCH_SIZE", 77)
    checkpoint = open_checkpoint(save(tmp_path / "m.safetensors", random_tensors()))
    chunks = [chunk.copy() for chunk in importance_chunks(checkpoint)()]
    assert {100} == {chunk.size for chunk in chunks[:-1]}
    expected = flattened(random_tensors()).abs().float().numpy()
    np.testing.assert_array_equal(expected, np.concatenate(chunks))


@pytest.mark.parametrize("given", ["", INDEX])
def test_shards_are_one_checkpoint(path: Path, tmp_path: Path, given: str) -> None:
    """A folder of shards, or its index, has the layout and support of the one file."""
    whole = open_checkpoint(path)
    sharded = open_checkpoint(save_sharded(tmp_path / "shards", random_tensors()) / given)
    assert whole.layout == sharded.layout
    assert select_from_checkpoint(whole) == select_from_checkpoint(sharded)


def test_one_shard_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    """A shard's own name gives it away, and the error says what to give instead."""
    shards = save_sharded(tmp_path / "shards", random_tensors())
    message = refusal(shards / "model-00002-of-00003.safetensors")
    assert f"it is one of 3 shards: give their folder, or {INDEX}" in message


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """An index that names a file that is not there is an error."""
    shards = save_sharded(tmp_path / "shards", random_tensors())
    (shards / "model-00003-of-00003.safetensors").unlink()
    assert "lacks 1 of 3 shards that 'model.safetensors.index.json' names" in refusal(shards)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"body.bias": "../x.safetensors"}, "'../x.safetensors', which is not a .safetensors file"),
        ({"body.bias": 7}, "no weight_map of texts"),
        ({"\ud800": "model-00001-of-00003.safetensors"}, "is half a surrogate pair, and no text"),
        ({"body.bias": "\udfff.safetensors"}, "is half a surrogate pair, and no text"),
        ({"a\0": "model-00001-of-00003.safetensors"}, "has a control character"),
        ({"body.bias": "a\0.safetensors"}, "has a control character"),
    ],
)
def test_an_index_that_lies_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    """An index names tensors by texts, and only files beside it."""
    shards = save_sharded(tmp_path / "shards", random_tensors())
    index = json.loads((shards / INDEX).read_text())
    merged = {**index["weight_map"], **change}
    index["weight_map"] = {k: v for k, v in merged.items() if v is not None}
    (shards / INDEX).write_text(json.dumps(index))
    assert message in refusal(shards)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": [1]}'])
def test_what_is_no_index_is_refused(tmp_path: Path, text: str) -> None:
    """JSON of another kind, or no JSON, is named as such."""
    (tmp_path / INDEX).write_text(text)
    assert refusal(tmp_path).startswith(f"{INDEX}: it ")


def test_integers_and_booleans_are_left_out_with_a_note(tmp_path: Path) -> None:
    """They carry no gradient, so they do not count as parameters, and a note says so."""
    buffers = {"ids": torch.arange(9), "mask": torch.ones(5000, dtype=torch.bool)}
    checkpoint = open_checkpoint(save(tmp_path / "m.safetensors", random_tensors() | buffers))
    assert 1316 == checkpoint.num_parameters
    assert ["ids", "mask"] == [tensor.name for tensor in checkpoint.skipped]
    assert ["2 tensors of integers or booleans are left out, such as 'ids' (I64)"] == list(
        checkpoint.notes
    )


def test_integers_that_nothing_explains_are_refused(tmp_path: Path) -> None:
    """Where no name and no configuration says what they are, the share of integers says no."""
    packed = {"w.words": torch.zeros(400, dtype=torch.int32), "w.sizes": torch.ones(40)}
    path = save(tmp_path / "m.safetensors", packed)
    assert "91% of its bytes are integers, most of them in 'w.words' (I32)" in refusal(path)


def test_lists_of_indices_are_no_codes(tmp_path: Path) -> None:
    """However many numbers map tokens to rows, they are left out, and make no file quantised."""
    stored = {"embeddings": torch.ones(40, 8), "mapping": torch.arange(9000)}
    checkpoint = open_checkpoint(save(tmp_path / "m.safetensors", stored))
    assert (320, ["mapping"]) == (
        checkpoint.num_parameters,
        [tensor.name for tensor in checkpoint.skipped],
    )


def test_excluded_tensors_are_no_parameters(path: Path) -> None:
    """Patterns leave out tensors, such as a classifier head; one without a match is refused."""
    checkpoint = open_checkpoint(path, ["head.*", "z*"])
    assert 1316 - 320 - 3 == checkpoint.num_parameters
    assert "no tensor name matches 'lm_head.*'" in refusal(path, "lm_head.*")


def test_no_floats_are_no_parameters(tmp_path: Path) -> None:
    """A checkpoint without any float is an error."""
    path = save(tmp_path / "m.safetensors", {"ids": torch.arange(9)})
    assert "it holds no tensor of floats" in refusal(path)


def test_a_base_of_other_tensors_is_refused_with_their_names(path: Path, tmp_path: Path) -> None:
    """The error lists what the base lacks, what it has more, and what has another shape."""
    others = random_tensors() | {f"extra.{i}": torch.ones(2) for i in range(5)}
    del others["head.weight"]
    others["body.bias"] = torch.ones(31)
    base = open_checkpoint(save(tmp_path / "b.safetensors", others))
    with pytest.raises(SpaceMismatch) as caught:
        importance_chunks(open_checkpoint(path), base)
    assert (
        "b.safetensors is not a base of m.safetensors, its tensors differ: tensor 'body.bias' has "
        "shape [31] in the base and [32] in the checkpoint; tensor 'head.weight' [10, 32] is only "
        "in the checkpoint; tensors 'extra.0' [2], 'extra.1' [2], 'extra.2' [2], 'extra.3' [2], "
        "'extra.4' [2] are only in the base"
    ) == str(caught.value)


def test_a_file_cut_short_while_open_is_refused(path: Path, tmp_path: Path) -> None:
    """What ends before its header said so is an error that leaves no output behind."""
    checkpoint = open_checkpoint(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InvalidCheckpoint, match=r"ends within tensor .* it is truncated"):
        write_support(tmp_path / "out.mksp", checkpoint)
    assert ["m.safetensors"] == [entry.name for entry in tmp_path.iterdir()]


def test_neither_the_checkpoint_nor_a_device_is_overwritten(path: Path) -> None:
    """A slip in the output's name costs nothing."""
    before = path.read_bytes()
    for target in (path, path.parent, Path("/dev/null")):
        with pytest.raises(InvalidParameter, match="give another name"):
            write_support(target, open_checkpoint(path))
    assert before == path.read_bytes()


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"header": 350}, "at most 350 are read here"),
        ({"tensors": 5}, "holds 6 tensors, at most 5"),
        ({"name": 10}, "weight' has 11 characters, at most 10"),
        ({"dimensions": 1}, "has 2 dimensions, at most 1"),
    ],
)
@pytest.mark.parametrize("shards", [1, 3])
def test_bounds_hold_for_all_files_together(
    tmp_path: Path, bounds: dict[str, int], why: str, shards: int
) -> None:
    """What a stranger's headers and index declare is refused beyond the bounds, and read below."""
    most = {"header": 1000, "tensors": 6, "name": 11, "dimensions": 2}
    folder = save_sharded(tmp_path / "m", random_tensors(), shards)
    if shards == 1:
        (folder / INDEX).unlink()
    assert 6 == len(open_checkpoint(folder, limits=CheckpointLimits(**most)).tensors)
    with pytest.raises(InvalidCheckpoint, match=why):
        open_checkpoint(folder, limits=CheckpointLimits(**(most | bounds)))


def test_a_header_beyond_the_bounds_is_never_parsed(tmp_path: Path) -> None:
    """A hundred thousand tensors of nothing cost no memory where they are too many bytes."""
    nothing = entry(shape=[0], data_offsets=[0, 0])
    path = tmp_path / "m.safetensors"
    path.write_bytes(forge({f"t{i}": nothing for i in range(100_000)}))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidCheckpoint, match="headers of the checkpoint have"):
            open_checkpoint(path, limits=CheckpointLimits(1_000_000, 100_000, 500, 16))
        assert 1_000_000 > tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
