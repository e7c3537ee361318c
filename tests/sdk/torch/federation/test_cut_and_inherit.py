"""cut_learngene and inherit: some layers to a file and back, all of them or nothing."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from modelkin.errors import InvalidParameter, LearngeneMismatch, ModelkinError
from modelkin.torch import cut_learngene, inherit


def network(seed: int = 0, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, classes)),
    )
    model(torch.randn(8, 1, 4, 4))  # statistics of batches that are not the initial ones
    return model


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def train(model: nn.Module, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            model(torch.randn(8, 1, 4, 4)), torch.randint(3, (8,))
        ).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("choice", "shared"),
    [
        ({}, ["0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias"]),
        ({"depth": 1}, ["0.weight", "0.bias"]),
        ({"share": 0.5}, ["0.weight", "0.bias", "1.weight", "1.bias"]),
        ({"tensors": ["6.*"]}, ["6.weight", "6.bias"]),
        ({"depth": 2, "buffers": True}, [*("0.weight", "0.bias", "1.weight", "1.bias")]),
    ],
)
def test_cut_then_inherit_is_the_identity(
    tmp_path: Path, choice: dict[str, Any], shared: list[str]
) -> None:
    """Shared layers are the donor's to the bit, all others the newcomer's own to the bit."""
    donor, newcomer = network(1), network(2)
    if choice.get("buffers"):
        shared = [*shared, "1.running_mean", "1.running_var"]
    before, donated = state(newcomer), state(donor)
    cut = cut_learngene(donor, tmp_path / "gene.safetensors", **choice)
    report = inherit(newcomer, cut.path, digest=cut.digest)
    after = state(newcomer)
    for name in before:
        assert torch.equal(after[name], (donated if name in shared else before)[name])
    assert all(torch.equal(donated[name], tensor) for name, tensor in state(donor).items())
    assert shared == [*cut.tensors] == [*report.loaded]
    floats = {name for name, tensor in before.items() if tensor.is_floating_point()}
    assert floats - set(shared) == set(report.left)
    assert all(p.requires_grad for p in newcomer.parameters())


def test_the_file_is_what_the_report_says(tmp_path: Path) -> None:
    """Plain safetensors with the tensors alone; the same model gives the same bytes."""
    path = tmp_path / "gene.safetensors"
    cut = cut_learngene(network(), path, depth=1)
    data = path.read_bytes()
    assert {"0.weight", "0.bias"} == set(load_file(path))
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == cut.digest
    assert (len(data), ("0",)) == (cut.size, cut.layers)
    assert pytest.approx(40 / (40 + 8 + 85 + 18)) == cut.share
    cut_learngene(network(), path, depth=1)
    assert data == path.read_bytes()
    assert [path] == [*tmp_path.iterdir()]


def test_kept_layers_do_not_move(tmp_path: Path) -> None:
    """Momentum and weight decay move neither frozen weights nor statistics, and the rest moves."""
    cut = cut_learngene(network(1), tmp_path / "gene.safetensors", depth=2, buffers=True)
    newcomer = network(2)
    for parameter in newcomer.parameters():  # left over from an earlier training
        parameter.grad = torch.ones_like(parameter)
    report = inherit(newcomer, cut.path, keep=True)
    before = state(newcomer)
    train(newcomer)
    after = state(newcomer)
    assert report.kept
    for name in before:
        assert torch.equal(before[name], after[name]) == name.startswith(("0.", "1."))


def test_a_model_with_kept_layers_can_be_copied_and_saved(tmp_path: Path) -> None:
    """What keeps its buffers is part of the copy, which moves no more than the original."""
    cut = cut_learngene(network(1), tmp_path / "gene.safetensors", depth=2, buffers=True)
    newcomer = network(2)
    inherit(newcomer, cut.path, keep=True)
    torch.save(newcomer, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (copy.deepcopy(newcomer), loaded):
        train(other)
        assert torch.equal(
            newcomer.state_dict()["1.running_var"], other.state_dict()["1.running_var"]
        )


def test_a_learngene_is_rounded_to_the_model_s_dtype(tmp_path: Path) -> None:
    """Wider and narrower ones are loaded by value; what overflows is refused."""
    cut = cut_learngene(network(1), tmp_path / "gene.safetensors", depth=1)
    half = network(2).half()
    inherit(half, cut.path)
    assert torch.equal(network(1).get_parameter("0.weight").half(), half.get_parameter("0.weight"))
    inherit(double := network(2).double(), cut.path)
    assert torch.equal(
        network(1).get_parameter("0.weight").double(), double.get_parameter("0.weight")
    )
    large = network(1)
    large.get_parameter("0.weight").data[0] = 1e6
    cut_learngene(large, cut.path, depth=1)
    with pytest.raises(LearngeneMismatch, match=r"'0\.weight' has a value beyond torch\.float16"):
        inherit(half, cut.path)


class Tied(nn.Module):
    """Its head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 5, bias=False)
        self.embed = nn.Embedding(5, 3)
        self.body = nn.Linear(3, 3)
        self.embed.weight = self.head.weight


def test_tied_tensors_are_one(tmp_path: Path) -> None:
    """They are cut once, loaded under either name, and refused under both."""
    path = tmp_path / "gene.safetensors"
    donor, newcomer = Tied(), Tied()
    assert ("head.weight", "body.weight", "body.bias") == cut_learngene(
        donor, path, tensors=["*"]
    ).tensors
    save_file({"embed.weight": donor.embed.weight.detach().clone()}, path)
    assert ("head.weight",) == inherit(newcomer, path).loaded
    assert torch.equal(donor.head.weight, newcomer.head.weight)
    same = {name: torch.ones(5, 3) for name in ("head.weight", "embed.weight")}
    save_file(same, path)
    with pytest.raises(LearngeneMismatch, match="which are one tensor of the model"):
        inherit(newcomer, path)


def other_digest(path: Path) -> dict[str, Any]:
    return {"digest": f"sha256:{hashlib.sha256(b'').hexdigest()}"}


def of_other_classes(path: Path) -> dict[str, Any]:
    cut_learngene(network(1, classes=4), path, tensors=["*"])
    return {}


def of_another_model(path: Path) -> dict[str, Any]:
    save_file({"0.weight": torch.zeros(4, 1, 3, 3), "encoder.w": torch.ones(2)}, path)
    return {}


def of_no_common_layer(path: Path) -> dict[str, Any]:
    cut_learngene(nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 2)), path)
    return {}


def everything_excluded(path: Path) -> dict[str, Any]:
    return {"exclude": ["*"]}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (other_digest, "has the digest sha256:.* get it again"),
        (of_other_classes, r"'6\.weight \(4, 5\) instead of \(3, 5\)'.*exclude them"),
        (of_another_model, "no tensor 'encoder.w': exclude"),
        (
            of_no_common_layer,
            r"none of its 2 tensors by name and shape .*'0\.bias'.*share no layer",
        ),
        (everything_excluded, "nothing is left to load of its 6 tensors"),
    ],
)
def test_what_does_not_fit_changes_nothing(
    tmp_path: Path, spoil: Callable[[Path], dict[str, Any]], message: str
) -> None:
    """The error names the file and what differs; no tensor has moved, and none is frozen."""
    path = tmp_path / "gene.safetensors"
    cut_learngene(network(1), path)
    options, newcomer = spoil(path), network(2)
    before = state(newcomer)
    with pytest.raises(LearngeneMismatch, match=f"^gene.safetensors.*{message}"):
        inherit(newcomer, path, keep=True, **options)
    assert all(torch.equal(before[n], t) for n, t in state(newcomer).items())
    assert all(p.requires_grad for p in newcomer.parameters())


def other_architectures() -> dict[str, nn.Sequential]:
    """Networks with the first two layers of :func:`network`, and others behind them."""
    first = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
    return {
        "wider": nn.Sequential(*first, nn.Linear(16, 9), nn.ReLU(), nn.Linear(9, 3)),
        "shallower": nn.Sequential(*first, nn.Linear(16, 3)),
        "deeper": nn.Sequential(*first, nn.Linear(16, 8), nn.Linear(8, 8), nn.Linear(8, 3)),
    }


@pytest.mark.parametrize("name", other_architectures())
def test_another_architecture_inherits_the_layers_that_it_has(tmp_path: Path, name: str) -> None:
    """From a file of the first layers, or from one of all without those that differ."""
    shared = ("0.weight", "0.bias", "1.weight", "1.bias")
    donor = network(1)
    first = cut_learngene(donor, tmp_path / "first.safetensors", depth=2).path
    whole = cut_learngene(donor, tmp_path / "whole.safetensors", tensors=["*"]).path
    for path, exclude in ((first, ()), (whole, ("4.*", "6.*"))):
        newcomer = copy.deepcopy(other_architectures()[name])
        before = state(newcomer)
        assert inherit(newcomer, path, exclude=exclude).loaded == shared
        for tensor, values in state(newcomer).items():
            assert torch.equal(values, (state(donor) if tensor in shared else before)[tensor])
    with pytest.raises(LearngeneMismatch, match="exclude"):
        inherit(newcomer, whole)


def test_excluded_tensors_stay(tmp_path: Path) -> None:
    """So the body of a whole model of other classes is inherited."""
    cut = cut_learngene(network(1, classes=4), tmp_path / "gene.safetensors", tensors=["*"])
    newcomer = network(2)
    report = inherit(newcomer, cut.path, exclude=["6.*"])
    assert torch.equal(
        network(1, classes=4).get_parameter("0.weight"), newcomer.get_parameter("0.weight")
    )
    assert torch.equal(network(2).get_parameter("6.weight"), newcomer.get_parameter("6.weight"))
    assert {"6.weight", "6.bias"} < set(report.left)


def diverged() -> nn.Module:
    model = network()
    model.get_parameter("4.bias").data[1] = torch.nan
    return model


def quantised() -> nn.Module:
    model = network()
    weight = torch.ones(5, 16, dtype=torch.int8)
    model[4].weight = nn.Parameter(weight, requires_grad=False)
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (diverged(), r"'4\.bias' has a value that is NaN"),
        (quantised(), r"'4\.weight' of the model is torch\.int8"),
        (network().to("meta"), r"'0\.weight' of the model is on the meta device"),
    ],
)
def test_models_that_are_not_cut(tmp_path: Path, model: nn.Module, message: str) -> None:
    """The error names the tensor, and no file is left."""
    with pytest.raises(InvalidParameter, match=message):
        cut_learngene(model, tmp_path / "gene.safetensors")
    assert [] == [*tmp_path.iterdir()]


def test_a_model_without_values_inherits_nothing(tmp_path: Path) -> None:
    """On the meta device a copy would be lost without an error."""
    cut = cut_learngene(network(), tmp_path / "gene.safetensors")
    with pytest.raises(InvalidParameter, match="materialise the model first"):
        inherit(network().to("meta"), cut.path)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    """A folder is neither written nor read; a file that is missing is the system's error."""
    with pytest.raises(InvalidParameter, match="not an ordinary file"):
        cut_learngene(network(), tmp_path)
    with pytest.raises(InvalidParameter, match="not an ordinary file"):
        inherit(network(), tmp_path)
    with pytest.raises(FileNotFoundError):
        inherit(network(), tmp_path / "missing.safetensors")
    with pytest.raises(FileNotFoundError):
        cut_learngene(network(), tmp_path / "no folder" / "gene.safetensors")


@pytest.mark.parametrize("argument", ["exclude", "tensors", "order"])
def test_patterns_are_lists(tmp_path: Path, argument: str) -> None:
    """One string would be read letter by letter."""
    path, wrong = tmp_path / "gene.safetensors", dict[str, Any]({argument: "6.*"})
    with pytest.raises(InvalidParameter, match=f"{argument} is one string"):
        cut_learngene(network(), path, **wrong)
    cut_learngene(network(), path)
    with pytest.raises(ModelkinError, match="exclude is one string"):
        inherit(network(), path, exclude="6.*")


class Odd(nn.Module):
    """Scalars, an empty parameter, and tensors of several widths in odd numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(()))
        self.empty = nn.Parameter(torch.empty(0, 3))
        self.narrow = nn.Linear(3, 1).half()
        self.wide = nn.Linear(3, 1).double()
        self.head = nn.Linear(1, 1)


def test_tensors_of_any_shape_and_width(tmp_path: Path) -> None:
    """Other programs read the file, and it comes back to the bit."""
    donor, newcomer = Odd(), Odd()
    cut = cut_learngene(donor, tmp_path / "gene.safetensors")
    assert set(cut.tensors) == set(load_file(cut.path))
    inherit(newcomer, cut.path)
    for name in cut.tensors:
        assert torch.equal(donor.get_parameter(name), newcomer.get_parameter(name))


def test_tensors_that_another_program_did_not_align(tmp_path: Path) -> None:
    """A float32 may begin at any byte."""
    bias = torch.tensor([3.0, -1.0])
    entries = {
        "0.weight": {"dtype": "F8_E4M3", "shape": [5], "data_offsets": [0, 5]},
        "0.bias": {"dtype": "F32", "shape": [2], "data_offsets": [5, 13]},
    }
    header = json.dumps(entries).encode()
    data = len(header).to_bytes(8, "little") + header + b"\0" * 5 + bias.numpy().tobytes()
    (tmp_path / "gene.safetensors").write_bytes(data)
    model = nn.Sequential(nn.Linear(3, 2))
    inherit(model, tmp_path / "gene.safetensors", exclude=["*.weight"])
    assert torch.equal(bias, model.get_parameter("0.bias"))


def test_an_error_of_torch_changes_nothing_either(tmp_path: Path) -> None:
    """What was written before it gets its old values back."""
    cut = cut_learngene(network(1), tmp_path / "gene.safetensors", tensors=["*"])
    newcomer = network(2)
    shared = torch.zeros(1).expand(3)  # torch refuses to write where one value is three
    newcomer[6].bias = nn.Parameter(shared, requires_grad=False)
    before = state(newcomer)
    with pytest.raises(RuntimeError, match="single memory location"):
        inherit(newcomer, cut.path)
    assert all(torch.equal(before[n], t) for n, t in state(newcomer).items())
