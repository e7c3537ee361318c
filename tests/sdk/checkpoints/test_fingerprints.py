"""The fingerprint of a checkpoint on disk is that of its values, and is made in little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from modelkin.checkpoints import fingerprint, open_checkpoint
from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker
from modelkin.errors import InvalidCheckpoint, InvalidImportance, InvalidParameter
from tests.support.models.checkpoints import random_tensors, safetensors, sharded

Tensors = dict[str, npt.NDArray[np.float32]]

SHAPES = {
    "z.weight": (300, 100),
    "embed": (1000, 64),
    "experts": (16, 80, 70),
    "kernel": (70, 96, 3, 3),
    "norm": (100,),
    "patches": (192, 3, 8, 8),
    "constant": (64, 100),
}
INDEX = "model.safetensors.index.json"


@pytest.fixture
def tensors() -> Tensors:
    found = random_tensors(1, SHAPES)
    found["constant"][:] = 1
    return found


@pytest.fixture
def path(tmp_path: Path, tensors: Tensors) -> Path:
    """A checkpoint of one file."""
    found = tmp_path / "model.safetensors"
    found.write_bytes(safetensors(tensors))
    return found


def parts(made: Fingerprint) -> tuple[object, ...]:
    keys = made.keys.tolist(), made.owners.tolist(), made.lengths.tolist()
    return (made.scale, made.tensors, made.lines, *keys)


def of_arrays(tensors: Tensors) -> Fingerprint:
    maker = FingerprintMaker()
    for name in sorted(tensors):
        maker.add(name, tensors[name])
    return maker.finish()


@pytest.mark.parametrize("threads", [1, 3, None])
def test_a_file_has_the_fingerprint_of_its_values(
    path: Path, tensors: Tensors, threads: int | None
) -> None:
    """Whatever the threads; its tensors are in the order of their names."""
    expected = of_arrays(tensors)
    assert parts(expected) == parts(fingerprint(path, threads=threads))
    assert parts(expected) == parts(fingerprint(open_checkpoint(path), threads=threads))
    assert expected.keys.size > 2048


def test_small_stretches_change_nothing(
    monkeypatch: pytest.MonkeyPatch, path: Path, tensors: Tensors
) -> None:
    """Also where kernels are too large to be read whole, and columns are read in groups."""
    monkeypatch.setattr("modelkin.checkpoints.tensors.STRETCH_SIZE", 1)
    monkeypatch.setattr("modelkin.core.fingerprints.matrices.WHOLE", 1)
    monkeypatch.setattr("modelkin.core.fingerprints.columns.MOST_KEPT", 1000)
    made = fingerprint(path)
    monkeypatch.undo()
    assert parts(of_arrays(tensors)) == parts(made)


def test_shards_are_one_checkpoint(tmp_path: Path, tensors: Tensors) -> None:
    """Each tensor is read from its file."""
    for name, data in sharded(tensors).items():
        (tmp_path / name).write_bytes(data)
    assert parts(of_arrays(tensors)) == parts(fingerprint(tmp_path / INDEX))


def test_little_of_a_tensor_is_in_memory(tmp_path: Path) -> None:
    """A third of 48 MB: a few stretches, and the largest entries of its columns."""
    path = tmp_path / "large.safetensors"
    path.write_bytes(safetensors(random_tensors(1, {"embed": (12_000, 1000)})))
    checkpoint = open_checkpoint(path)
    fingerprint(checkpoint)  # what is kept for good is kept by now
    tracemalloc.start()
    fingerprint(checkpoint)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000


def test_progress_is_that_of_the_values(path: Path, tensors: Tensors) -> None:
    """Never less than before, and all of them at the end."""
    seen = list[tuple[int, int]]()
    fingerprint(path, count=lambda done, of: seen.append((done, of)))
    total = sum(each.size for each in tensors.values())
    assert sorted(seen) == seen
    assert (total, total) == seen[-1]


def test_the_caller_ends_it(path: Path) -> None:
    """By what its function raises; no thread goes on."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fingerprint(path, count=stop)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_names_its_tensor(
    tmp_path: Path, tensors: Tensors, value: float
) -> None:
    """And says what to do."""
    tensors["kernel"][3, 2, 1, 1] = value
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(tensors))
    with pytest.raises(InvalidImportance, match="'kernel' has values that are NaN or infinite"):
        fingerprint(path)
    assert "kernel" not in {each.name for each in fingerprint(path, exclude=["kernel"]).tensors}


def test_what_cannot_be_asked_is_refused(path: Path) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidParameter, match=r"power of two .* at most 2\^63, not 12"):
        fingerprint(path, scale=12)
    with pytest.raises(InvalidParameter, match="threads must be 1 or more, not 0"):
        fingerprint(path, threads=0)


def test_an_adapter_is_refused_by_name(tmp_path: Path) -> None:
    """Its factors are no lines of a model."""
    names: dict[str, tuple[int, ...]] = {
        "base.layer.0.q.lora_A.weight": (8, 100),
        "base.layer.0.q.lora_B.weight": (100, 8),
    }
    path = tmp_path / "adapter_model.safetensors"
    path.write_bytes(safetensors(random_tensors(1, names)))
    (tmp_path / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q"]}'
    )
    with pytest.raises(InvalidCheckpoint, match=r"it is an adapter, .* merge it into its base"):
        fingerprint(tmp_path)
