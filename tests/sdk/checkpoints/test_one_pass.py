"""One pass over the files gives what several passes over each checkpoint give."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from modelkin.checkpoints import (
    Checkpoint,
    open_checkpoint,
    select_from_checkpoint,
    weights_digest,
    weights_of,
)
from modelkin.checkpoints.one_pass import OnePass
from modelkin.core.selection.largest import LargestEntries
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.weights import WeightsDigest
from tests.support.models.checkpoints import random_tensors, safetensors, sharded

SHAPES = {"z.weight": (300, 20), "a.weight": (70, 41), "m.bias": (500,), "b.weight": (64, 64)}
K = 400


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that large tensors have several of."""
    monkeypatch.setattr("modelkin.checkpoints.one_pass.PART_SIZE", 1000)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Checkpoint, Checkpoint]:
    """A model in shards, whose files do not follow the names, and its base."""
    tensors = random_tensors(1, SHAPES)
    base = {name: each + np.float32(0.01) * each**2 for name, each in tensors.items()}
    for name, data in sharded(tensors).items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "base.safetensors").write_bytes(safetensors(base))
    index = tmp_path / "model.safetensors.index.json"
    return open_checkpoint(index), open_checkpoint(tmp_path / "base.safetensors")


Asked = tuple[OnePass, WeightsDigest, LargestEntries, LargestEntries, WeightsDigest]


def asked(model: Checkpoint, base: Checkpoint) -> Asked:
    """All that a sync asks of a model and its base."""
    one = OnePass()
    own, of_base = one.digest(), one.digest()
    for tensor in model.stored:
        one.add_to(own, tensor.name, tensor.shape, [tensor])
    for mine, theirs in zip(model.tensors, base.tensors, strict=True):
        one.add_to(of_base, theirs.name, theirs.shape, [theirs], mine)
    weights = one.select(model.tensors, None, K)
    differences = one.select(model.tensors, base.tensors, K)
    return one, own, weights, differences, of_base


def require_same(found: Asked, model: Checkpoint, base: Checkpoint) -> None:
    """Compare with the functions that read each checkpoint again and again."""
    _, own, weights, differences, of_base = found
    rule = SelectionRule(K, None)
    assert weights_of(model).digest == own.result()
    assert weights_digest(base) == of_base.result()
    assert select_from_checkpoint(model, None, rule) == weights.support()
    assert select_from_checkpoint(model, base, rule) == differences.support()


def test_one_pass_answers_all_that_several_do(pair: tuple[Checkpoint, Checkpoint]) -> None:
    """Digests and supports are equal, each file is read front to back, and all is counted."""
    model, base = pair
    found, files, counts = asked(model, base), list[Path](), list[tuple[int, int]]()
    found[0].read(lambda done, total: counts.append((done, total)), files.append)
    require_same(found, model, base)
    assert sorted({tensor.path for tensor in model.tensors}) == files
    m = model.num_parameters
    assert (4 * m, 4 * m) == counts[-1]
    assert sorted(counts) == counts


def test_a_pass_goes_on_after_its_last_file(pair: tuple[Checkpoint, Checkpoint]) -> None:
    """The state that was stored after a file leads to the same answers in another process."""
    model, base = pair
    first, kept = asked(model, base), io.BytesIO()

    def stop(path: Path) -> None:
        np.savez(kept, **cast(Any, first[0].state()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first[0].read(after_file=stop)
    kept.seek(0)
    second, files = asked(model, base), list[Path]()
    second[0].restore(dict(np.load(kept)))
    second[0].read(after_file=files.append)
    require_same(second, model, base)
    assert 1 == len(files)
