"""One reading of a file and its base answers what many do, and each byte of them comes once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from modelkin.checkpoints import (
    Checkpoint,
    Reading,
    fingerprint,
    open_checkpoint,
    select_from_checkpoint,
    weights_digest,
    weights_of,
)
from modelkin.core.selection.rule import SelectionRule
from modelkin.errors import InvalidCheckpoint, InvalidParameter
from tests.support.models.checkpoints import random_tensors, safetensors, sharded
from tests.support.models.counted_files import CountedFiles
from tests.support.models.gguf_files import as_llama_cpp, llama, write_gguf
from tests.support.models.quantised_checkpoints import write_quantised

SHAPES: dict[str, tuple[int, ...]] = {
    **{f"layer.{at}.weight": (128, 256) for at in range(20)},
    "layer.0.bias": (300,),
    "layer.1.experts": (3, 96, 128),
}
LARGEST = 4 * 128 * 256
"""Bytes of the largest tensor, as it is read."""
K = 5000


def one_file(folder: Path) -> Path:
    (folder / "m.safetensors").write_bytes(safetensors(random_tensors(1, SHAPES)))
    return folder / "m.safetensors"


def in_shards(folder: Path) -> Path:
    for name, data in sharded(random_tensors(1, SHAPES)).items():
        (folder / name).write_bytes(data)
    return folder


def in_gguf(folder: Path) -> Path:
    return write_gguf(folder / "m.gguf", as_llama_cpp(llama(1)), "Q8_0")


def quantised(folder: Path) -> Path:
    weights = {name: each for name, each in random_tensors(1, SHAPES).items() if each.ndim == 2}
    return write_quantised(folder / "q", weights, "AWQ")


FORMATS = [one_file, in_shards, in_gguf, quantised]


def bytes_of(*checkpoints: Checkpoint) -> int:
    return CountedFiles.most(*{t.path for checkpoint in checkpoints for t in checkpoint.stored})


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("written", FORMATS)
def test_support_digests_and_fingerprint_come_from_one_read(
    tmp_path: Path, written: Callable[[Path], Path], threads: int
) -> None:
    """Of every format, with threads that read lines beside the rest; they equal those of many."""
    path = written(tmp_path)
    plain = open_checkpoint(path)
    largest = max(tensor.size for tensor in plain.stored) / plain.num_parameters
    files = CountedFiles(round((2 * threads + 2) * largest * bytes_of(plain)))
    model = open_checkpoint(path, open_file=files.open)
    reading = Reading(model)
    reading.ask_weights(lambda _: K)
    reading.ask_lines()
    reading.read(threads=threads)
    assert files.came <= bytes_of(plain)
    assert select_from_checkpoint(plain, rule=SelectionRule(K, None)) == reading.weights_support()
    assert weights_of(plain) == reading.weights
    assert fingerprint(plain) == reading.fingerprint()


def test_a_disk_gives_a_file_again_for_each_pass(tmp_path: Path) -> None:
    """The count tells one read from several, as a support and a fingerprint by themselves take."""
    path = one_file(tmp_path)
    files = CountedFiles(3 * LARGEST)
    model = open_checkpoint(path, open_file=files.open)
    select_from_checkpoint(model)
    fingerprint(model, threads=1)
    assert files.came > 2.5 * bytes_of(model)


def test_a_base_is_read_beside_its_model(tmp_path: Path) -> None:
    """Once, for the differences and for its digest; the support has the origin of both."""
    tensors = random_tensors(1, SHAPES)
    base = {name: each + np.float32(0.01) * each**2 for name, each in tensors.items()}
    paths = [tmp_path / name for name in ("m.safetensors", "base.safetensors")]
    for path, held in zip(paths, (tensors, base), strict=True):
        path.write_bytes(safetensors(held))
    files = CountedFiles(4 * LARGEST)
    model, before = (open_checkpoint(path, open_file=files.open) for path in paths)
    reading = Reading(model)
    reading.ask_differences(before, lambda share: round(share * K))
    reading.ask_lines()
    reading.read(threads=1)
    assert files.came <= bytes_of(model, before)
    expected = select_from_checkpoint(model, before, SelectionRule(K, None))
    found = reading.difference_support()
    assert (expected, expected.origin) == (found, found and found.origin)
    assert (weights_digest(before), None) == (reading.base_digest, reading.base_error)
    assert None is reading.difference_support(lambda _: K + 1)


def test_there_is_no_answer_to_what_was_not_asked_or_read(tmp_path: Path) -> None:
    """It is refused, and never that of nothing."""
    reading = Reading(open_checkpoint(one_file(tmp_path)))
    reading.ask_lines()
    unread = (lambda: reading.weights, reading.fingerprint)
    for answer in unread:
        with pytest.raises(InvalidParameter, match="nothing has been read for it"):
            answer()
    reading.read()
    assert reading.weights
    unasked = (reading.weights_support, reading.difference_support, lambda: reading.base_digest)
    for question in unasked:
        with pytest.raises(InvalidParameter, match="nothing has been read for it"):
            question()


def test_a_base_that_cannot_be_read_has_its_error_as_answer(tmp_path: Path) -> None:
    """For its digest and the differences; the weights beside it have theirs."""
    paths = [tmp_path / name for name in ("m.safetensors", "base.safetensors")]
    for seed, path in enumerate(paths):
        path.write_bytes(safetensors(random_tensors(seed, SHAPES)))
    model, base = map(open_checkpoint, paths)
    reading = Reading(model)
    reading.ask_weights(lambda _: K)
    reading.ask_differences(base, lambda _: K)
    with paths[1].open("r+b") as file:
        file.truncate(paths[1].stat().st_size - 8)
    reading.read()
    assert select_from_checkpoint(model, rule=SelectionRule(K, None)) == reading.weights_support()
    for answer in (lambda: reading.base_digest, reading.difference_support):
        with pytest.raises(InvalidCheckpoint, match="truncated"):
            answer()


def test_an_error_of_a_thread_is_that_of_the_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that ends early while its lines are read is said to, and nothing waits for ever."""
    path = one_file(tmp_path)
    model = open_checkpoint(path)
    reading = Reading(model)
    reading.ask_lines(model.stored[-1:])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)
    with pytest.raises(InvalidCheckpoint, match="truncated"):
        reading.read(threads=4)
