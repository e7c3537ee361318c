"""One pass over the files gives what several passes over each checkpoint give."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from modelkin.checkpoints import (
    Checkpoint,
    fingerprint,
    open_checkpoint,
    select_from_checkpoint,
    weights_digest,
    weights_of,
)
from modelkin.checkpoints.one_pass import OnePass
from modelkin.core.selection.largest import LargestEntries
from modelkin.core.selection.rule import SelectionRule
from modelkin.core.weights import WeightsDigest
from modelkin.errors import InvalidImportance
from tests.support.models.checkpoints import random_tensors, safetensors, sharded

SHAPES = {"z.weight": (300, 20), "a.weight": (70, 41), "m.bias": (500,), "b.weight": (64, 64)}
LINED: dict[str, tuple[int, ...]] = {
    "a.bias": (80,),
    "b.kernel": (80, 70, 3, 3),
    "c.short": (600, 20),
    "d.experts": (3, 80, 96),
    "e.weight": (200, 150),
}
K = 400
INDEX = "model.safetensors.index.json"


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
    return open_checkpoint(tmp_path / INDEX), open_checkpoint(tmp_path / "base.safetensors")


Asked = tuple[OnePass, WeightsDigest, LargestEntries, LargestEntries, WeightsDigest]


def asked(model: Checkpoint, base: Checkpoint, k: int = K) -> Asked:
    """All that a sync asks of a model and its base."""
    one = OnePass()
    own, of_base = one.digest(), one.digest()
    one.add_stored(own, model.stored)
    for mine, theirs in zip(model.tensors, base.tensors, strict=True):
        one.add_to(of_base, theirs.name, theirs.shape, [theirs], mine, of_base=True)
        one.compare(mine, theirs)
    weights = one.select(model.tensors, None, K)
    differences = one.select(model.tensors, base.tensors, k)
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
    found, ended, counts = asked(model, base), list[frozenset[Path]](), list[tuple[int, int]]()
    found[0].read(lambda done, total: counts.append((done, total)), ended.append)
    require_same(found, model, base)
    first, second = sorted({tensor.path for tensor in model.tensors})
    assert [{first}, {first, second, base.tensors[0].path}] == ended
    m = model.num_parameters
    assert (4 * m, 4 * m) == counts[-1]
    assert sorted(counts) == counts


def cut(one: OnePass) -> dict[str, Any]:
    """The state that a pass stores after its first file, where it is killed."""
    kept = io.BytesIO()

    def stop(ended: frozenset[Path]) -> None:
        np.savez(kept, **cast(Any, one.state()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one.read(after_file=stop)
    kept.seek(0)
    return dict(np.load(kept))


def test_a_pass_goes_on_after_its_last_file(pair: tuple[Checkpoint, Checkpoint]) -> None:
    """The state that was stored after a file leads to the same answers in another process."""
    model, base = pair
    state = cut(asked(model, base)[0])
    second, ended = asked(model, base), list[frozenset[Path]]()
    second[0].restore(state)
    assert {min(tensor.path for tensor in model.tensors)} == second[0].finished
    second[0].read(after_file=ended.append)
    require_same(second, model, base)
    assert 1 == len(ended)


def test_a_pass_that_asks_something_else_begins_again(
    pair: tuple[Checkpoint, Checkpoint],
) -> None:
    """A selection of fewer entries has dropped some that one of more wants."""
    model, base = pair
    state = cut(asked(model, base, K - 1)[0])
    second, ended = asked(model, base), list[frozenset[Path]]()
    with pytest.raises(ValueError, match="something else was asked"):
        second[0].restore(state)
    second[0].read(after_file=ended.append)
    require_same(second, model, base)
    assert 2 == len(ended)


def test_a_base_that_failed_before_the_cut_has_failed_after_it(
    pair: tuple[Checkpoint, Checkpoint],
) -> None:
    """Its digest lacks tensors, so nobody may use it."""
    model, base = pair
    [path] = {tensor.path for tensor in base.tensors}
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    first = asked(model, base)
    state = cut(first[0])
    assert first[0].base_error is not None
    path.write_bytes(data)
    second = asked(model, base)
    second[0].restore(state)
    second[0].read()
    assert str(first[0].base_error) == str(second[0].base_error)
    assert weights_of(model).digest == second[1].result()
    rule = SelectionRule(K, None)
    assert select_from_checkpoint(model, None, rule) == second[2].support()


def test_the_note_on_rounding_counts_tensors_of_before_the_cut(tmp_path: Path) -> None:
    """It is the same with and without a cut, and of all tensors."""
    tensors, drift = random_tensors(1, SHAPES), random_tensors(2, SHAPES)
    rounded = {name: (each + drift[name]).astype(np.float16) for name, each in tensors.items()}
    for name, data in sharded(rounded).items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "base.safetensors").write_bytes(safetensors(tensors))
    model = open_checkpoint(tmp_path / "model.safetensors.index.json")
    base = open_checkpoint(tmp_path / "base.safetensors")
    whole = asked(model, base)[0]
    whole.read()
    state = cut(asked(model, base)[0])
    second = asked(model, base)[0]
    second.restore(state)
    second.read()
    assert whole.rounding.state() == second.rounding.state()
    assert len(SHAPES) == len(whole.rounding.state()["changed"])


def test_copies_have_the_same_dtypes_and_values(tmp_path: Path) -> None:
    """In any shards; neither another dtype of the values nor the last digit of a double is one."""
    halves = {name: each.astype("f2") for name, each in random_tensors(1, SHAPES).items()}
    doubles = {name: each.astype("f8") for name, each in halves.items()}
    forms = [
        halves,
        {name: each.astype("f4") for name, each in halves.items()},
        doubles,
        doubles | {"m.bias": doubles["m.bias"] + 1e-15},
    ]
    digests = []
    for at, tensors in enumerate(forms):
        path = tmp_path / f"{at}.safetensors"
        path.write_bytes(safetensors(tensors))
        digests.append(weights_of(open_checkpoint(path)).digest)
    assert len(forms) == len(set(digests))
    for name, data in sharded(halves).items():
        (tmp_path / name).write_bytes(data)
    assert digests[0] == weights_of(open_checkpoint(tmp_path / INDEX)).digest


@pytest.fixture
def lined(tmp_path: Path) -> Checkpoint:
    """A model with a stack, a kernel, and tensors without lines, in shards."""
    for name, data in sharded(random_tensors(3, LINED)).items():
        (tmp_path / name).write_bytes(data)
    return open_checkpoint(tmp_path / INDEX)


def test_a_fingerprint_of_the_same_pass(lined: Checkpoint) -> None:
    """It equals that of two readings of each tensor; so do the others' answers, and the count."""
    one, counts = OnePass(), list[tuple[int, int]]()
    digest, lines = one.digest(), one.lines(lined.tensors)
    one.add_stored(digest, lined.stored)
    one.read(lambda done, total: counts.append((done, total)))
    assert fingerprint(lined) == lines.fingerprint()
    assert weights_of(lined).digest == digest.result()
    without = sum(tensor.size for tensor in lined.tensors if tensor.name in {"a.bias", "c.short"})
    total = 2 * lined.num_parameters - without
    assert (total, total) == counts[-1]
    assert sorted(counts) == counts


def test_bytes_that_are_read_twice_are_held(lined: Checkpoint) -> None:
    """From the first byte of a matrix on, until its lines are known; a stack's one by one."""
    tensors, held = {tensor.name: tensor for tensor in lined.tensors}, list[tuple[Path, Any]]()
    one = OnePass()
    one.lines(lined.tensors)
    one.add_stored(one.digest(), lined.stored)
    one.read(hold=lambda path, begin: held.append((path, begin)))
    stack = tensors["d.experts"]
    expected = [(stack.path, stack.begin + at * 80 * 96 * 4) for at in range(3)]
    assert expected == [each for each in held if each[1] is not None and each in expected]
    assert tensors["b.kernel"].size * 4 == one.most_twice
    assert {tensor.path for tensor in lined.tensors} == {path for path, _ in held}


def test_a_pass_with_lines_goes_on_after_its_last_file(lined: Checkpoint) -> None:
    """What was found of the tensors of a file that is read is kept."""

    def ask() -> tuple[OnePass, Any]:
        one = OnePass()
        return one, one.lines(lined.tensors)

    state = cut(ask()[0])
    second, lines = ask()
    second.restore(state)
    second.read()
    assert fingerprint(lined) == lines.fingerprint()


def test_values_that_are_no_numbers_have_no_fingerprint(tmp_path: Path) -> None:
    """The error names the tensor; the pass goes on, and answers what else was asked."""
    tensors = random_tensors(3, LINED)
    tensors["d.experts"][1, 3, 4] = np.nan
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
    model = open_checkpoint(tmp_path)
    one = OnePass()
    digest, lines = one.digest(), one.lines(model.tensors)
    one.add_stored(digest, model.stored)
    one.read()
    with pytest.raises(InvalidImportance, match=r"'d\.experts' has values that are NaN"):
        lines.fingerprint()
    assert weights_of(model).digest == digest.result()
