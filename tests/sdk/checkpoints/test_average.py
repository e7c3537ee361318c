"""average_checkpoints: Eq. 9 over files, in stretches, against numpy's average in float64."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file

from modelkin import checkpoints
from modelkin.checkpoints import Checkpoint, average_checkpoints, open_checkpoint
from modelkin.checkpoints.learngenes.cut import STRETCH
from modelkin.errors import InvalidCheckpoint, InvalidParameter, LearngeneMismatch

Array = npt.NDArray[Any]
Tensors = dict[str, torch.Tensor]
SHAPES = {"body.0.weight": (40, 30), "body.0.bias": (40,), "body.10.weight": (7, 40)}


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    drawn = {n: torch.randn(s, generator=generator, dtype=torch.float64) for n, s in SHAPES.items()}
    return {n: t.to(dtype) for n, t in drawn.items()}


def saved(folder: Path, members: dict[str, Tensors]) -> dict[str, Checkpoint]:
    found = {}
    for name, held in members.items():
        save_file(held, folder / f"{name}.safetensors")
        found[name] = open_checkpoint(folder / f"{name}.safetensors")
    return found


def exact(members: dict[str, Tensors], name: str, weights: dict[str, float]) -> torch.Tensor:
    """The mean over the members that have it, by numpy in float64."""
    senders = [member for member in sorted(members) if name in members[member]]
    stacked = np.stack([members[member][name].double().numpy() for member in senders])
    return torch.from_numpy(
        np.average(stacked, axis=0, weights=[weights[member] for member in senders])
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_mean_in_float64_rounded_once(
    tmp_path: Path, dtype: torch.dtype, weighted: bool
) -> None:
    """To the bit of torch's rounding, in the dtype of the checkpoints; float64 within 1e-15."""
    members = {name: tensors(seed, dtype) for seed, name in enumerate("abcd")}
    weights = {name: float(at + 1) if weighted else 1.0 for at, name in enumerate("abcd")}
    made = average_checkpoints(
        saved(tmp_path, members), tmp_path / "gene", examples=weights if weighted else None
    )
    found = load_file(tmp_path / "gene")
    assert {"body.0.bias", "body.0.weight", "body.10.weight"} == set(found)
    for name, tensor in found.items():
        expected = exact(members, name, weights)
        assert dtype == tensor.dtype
        if dtype == torch.float64:
            torch.testing.assert_close(tensor, expected, rtol=1e-15, atol=1e-15)
        elif dtype == torch.bfloat16:  # torch rounds twice, by way of float32
            assert (tensor.double() - expected).abs().max() <= expected.abs().max() * 2**-8
        else:
            assert torch.equal(tensor, expected.to(dtype))
            if dtype == torch.float32:
                torch.testing.assert_close(tensor.double(), expected, rtol=1e-7, atol=0)
    assert dict.fromkeys(SHAPES, 4) == made.members
    assert ((), ()) == (made.kept, made.left_out)
    data = (tmp_path / "gene").read_bytes()
    assert (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)) == (made.digest, made.size)


def test_bfloat16_is_rounded_once(tmp_path: Path) -> None:
    """A mean just above the middle of two values goes up, though in float32 it is the middle."""
    low, high = 1.0, 1.0 + 2**-7
    members = {
        "a": {"l.w": torch.tensor([low, high], dtype=torch.bfloat16)},
        "b": {"l.w": torch.tensor([high, low], dtype=torch.bfloat16)},
    }
    weights = {"a": 2.0**30 - 1, "b": 2.0**30 + 1}
    average_checkpoints(
        saved(tmp_path, members), tmp_path / "gene", examples=weights, min_members=2
    )
    assert [high, low] == load_file(tmp_path / "gene")["l.w"].tolist()


def test_the_order_of_members_changes_no_byte(tmp_path: Path) -> None:
    """They count in ascending names."""
    members = saved(tmp_path, {name: tensors(seed) for seed, name in enumerate("abcd")})
    examples = {name: 0.1 * (at + 1) for at, name in enumerate("abcd")}
    turned = dict(reversed(members.items()))
    digests = {
        average_checkpoints(given, tmp_path / "gene", examples=examples).digest
        for given in (members, turned)
    }
    assert 1 == len(digests)


def test_tensors_of_several_dtypes_become_the_widest(tmp_path: Path) -> None:
    """Halves of different kinds become float32, which has the values of both."""
    halves = (torch.float16, torch.bfloat16, torch.float16)
    members = {
        name: tensors(at, dtype) for at, (name, dtype) in enumerate(zip("abc", halves, strict=True))
    }
    average_checkpoints(saved(tmp_path, members), tmp_path / "gene")
    found = load_file(tmp_path / "gene")
    expected = exact(members, "body.0.weight", dict.fromkeys("abc", 1.0))
    assert torch.equal(expected.float(), found["body.0.weight"])
    members["c"] = tensors(2, torch.float64)
    average_checkpoints(saved(tmp_path, members), tmp_path / "gene")
    assert torch.float64 == load_file(tmp_path / "gene")["body.0.weight"].dtype


def test_layers_of_too_few_members_are_left_out(tmp_path: Path) -> None:
    """As a whole, although one of their tensors would have enough."""
    weight, bias = {"extra.weight": torch.ones(2)}, {"extra.bias": torch.ones(2)}
    members = {
        "a": tensors(0) | weight | bias,
        "b": tensors(1) | weight | bias,
        "c": tensors(2) | weight,
    }
    made = average_checkpoints(saved(tmp_path, members), tmp_path / "gene")
    assert set(SHAPES) == set(load_file(tmp_path / "gene"))
    assert (("extra",), ("body.0", "body.10")) == (made.left_out, made.layers)


def test_what_too_few_members_have_keeps_its_old_value(tmp_path: Path) -> None:
    """From the learngene before, to the bit, also what no member has."""
    old = {"extra.weight": torch.randn(2).half(), "extra.bias": torch.randn(2)}
    members = {
        "a": tensors(0) | {"extra.weight": torch.ones(2)},
        "b": tensors(1) | {"extra.weight": torch.ones(2)},
        "c": tensors(2),
    }
    [before] = saved(tmp_path, {"before": old}).values()
    made = average_checkpoints(saved(tmp_path, members), tmp_path / "gene", before=before)
    found = load_file(tmp_path / "gene")
    assert {"extra.weight", "extra.bias"} == set(made.kept)
    assert all(torch.equal(old[name], found[name]) for name in old)
    assert old["extra.weight"].dtype == found["extra.weight"].dtype
    assert ("body.0", "body.10", "extra") == made.layers


def test_statistics_of_batches_stay_private(tmp_path: Path) -> None:
    """Unless they are asked for; counters of batches, which are integers, always do."""
    norm = {
        "norm.weight": torch.ones(3),
        "norm.running_mean": torch.ones(3),
        "norm.running_var": torch.ones(3),
        "norm.num_batches_tracked": torch.tensor(7),
    }
    members = saved(tmp_path, {name: tensors(at) | norm for at, name in enumerate("abc")})
    average_checkpoints(members, tmp_path / "gene")
    assert {"norm.weight"} == {n for n in load_file(tmp_path / "gene") if n.startswith("norm.")}
    average_checkpoints(members, tmp_path / "gene", buffers=True)
    statistics = {"norm.weight", "norm.running_mean", "norm.running_var"}
    assert statistics == {n for n in load_file(tmp_path / "gene") if n.startswith("norm.")}


def test_a_choice_of_layers(tmp_path: Path) -> None:
    """The same as of a cut; heads of other shapes are left out by it."""
    members = {
        name: tensors(at) | {"head.weight": torch.ones(at + 2, 4)} for at, name in enumerate("abc")
    }
    opened = saved(tmp_path, members)
    with pytest.raises(LearngeneMismatch, match=r"'head\.weight' has the shape \[2, 4\] in a and"):
        average_checkpoints(opened, tmp_path / "gene")
    average_checkpoints(opened, tmp_path / "gene", exclude=["head.*"])
    assert set(SHAPES) == set(load_file(tmp_path / "gene"))
    average_checkpoints(opened, tmp_path / "gene", depth=1, order=["body.10", "*"])
    assert {"body.10.weight"} == set(load_file(tmp_path / "gene"))


def test_tensors_longer_than_a_stretch(tmp_path: Path) -> None:
    """The mean is written in stretches, with little memory, and is the same."""
    size = 2 * STRETCH + 7
    members = {
        name: {"l.w": torch.randn(size, generator=torch.Generator().manual_seed(at))}
        for at, name in enumerate("abc")
    }
    opened = saved(tmp_path, members)
    tracemalloc.start()
    average_checkpoints(opened, tmp_path / "gene")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = exact(members, "l.w", dict.fromkeys("abc", 1.0)).float()
    assert torch.equal(expected, load_file(tmp_path / "gene")["l.w"])
    assert peak < 5 * 8 * STRETCH


def broken(folder: Path, **change: torch.Tensor) -> dict[str, Checkpoint]:
    return saved(folder, {"a": tensors(0), "b": tensors(1), "c": tensors(2) | change})


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_poisoned_member_leaves_no_file(tmp_path: Path, value: float) -> None:
    """It is named, and what was written under the name before is still there."""
    (tmp_path / "gene").write_bytes(b"the last one")
    poisoned = torch.ones(7, 40)
    poisoned[6, 39] = value
    members = broken(tmp_path, **{"body.10.weight": poisoned})
    with pytest.raises(InvalidCheckpoint, match=r"c\.safetensors: tensor 'body\.10\.weight'"):
        average_checkpoints(members, tmp_path / "gene")
    assert b"the last one" == (tmp_path / "gene").read_bytes()
    assert {"a", "b", "c", "gene"} == {path.stem for path in tmp_path.iterdir()}


def test_a_member_that_ends_early(tmp_path: Path) -> None:
    """Cut short after its header was read."""
    members = broken(tmp_path)
    path = tmp_path / "c.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InvalidCheckpoint, match="it ends within tensor"):
        average_checkpoints(members, tmp_path / "gene")
    assert not (tmp_path / "gene").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_members": 4}, "no layer is in 4 of the 3 checkpoints"),
        ({"min_members": 0}, "min_members must be a whole number"),
        ({"examples": {"a": 1, "b": 2}}, "examples of member 'c' must be a positive number"),
        ({"examples": {"a": 1, "b": 2, "c": -1}}, "examples of member 'c'"),
        ({"depth": 1}, "depth needs order"),
        ({"share": 0.5}, "share needs order"),
        ({"tensors": ["*.bias"]}, "and not 'body.0.weight' of the same layer"),
    ],
)
def test_arguments_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """The error names the argument, and no file is written."""
    with pytest.raises((InvalidParameter, LearngeneMismatch), match=message):
        average_checkpoints(broken(tmp_path), tmp_path / "gene", **options)
    assert not (tmp_path / "gene").exists()


def test_a_member_is_not_written_over(tmp_path: Path) -> None:
    """Nor is the learngene before, nor a folder."""
    members = broken(tmp_path)
    with pytest.raises(InvalidParameter, match="is the checkpoint itself"):
        average_checkpoints(members, tmp_path / "b.safetensors")
    with pytest.raises(InvalidParameter, match="is the checkpoint itself"):
        average_checkpoints(members, tmp_path / "b.safetensors", before=members["b"])
    with pytest.raises(InvalidParameter, match="not an ordinary file"):
        average_checkpoints(members, tmp_path)


def test_floats_of_8_bits_are_too_coarse(tmp_path: Path) -> None:
    """A mean of them would be rounded away."""
    eight = {name: tensors(at, torch.float8_e4m3fn) for at, name in enumerate("abc")}
    with pytest.raises(InvalidCheckpoint, match="too coarse for an average"):
        average_checkpoints(saved(tmp_path, eight), tmp_path / "gene")


def test_the_names_are_exported() -> None:
    """Beside what opens checkpoints."""
    assert {"AveragedLearngene", "average_checkpoints", "cut_checkpoint"} <= {*checkpoints.__all__}
