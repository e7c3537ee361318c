"""The fingerprint of a model in memory is that of the file that it is saved in, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file, save_model
from torch import Tensor, nn

from modelkin import checkpoints
from modelkin.core.fingerprints.fingerprint import Fingerprint, NotComparable
from modelkin.errors import InvalidImportance, InvalidParameter
from modelkin.torch import fingerprint

EIGHT_BITS = torch.float8_e4m3fn
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 2}


class LanguageModel(nn.Module):
    """A layer of attention; the head is the embedding."""

    waves: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(300, 64)
        self.layer = nn.TransformerEncoderLayer(64, 2, 128)
        self.head = nn.Linear(64, 300, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.arange(100))
        self.register_buffer("waves", torch.sin(torch.arange(6400.0).reshape(100, 64) / 3))
        self.register_buffer("cache", torch.randn(64, 64), persistent=False)


class Experts(nn.Module):
    """Experts in one tensor each, of which one lies transposed in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(16, 64, 70))
        self.down = nn.Parameter(torch.randn(4, 70, 64).transpose(1, 2))
        self.gate = nn.Linear(64, 16)


def convolutional() -> nn.Module:
    """Kernels of one and two dimensions, one of which lies channels last."""
    model = nn.Sequential(
        nn.Conv2d(3, 96, 7),
        nn.BatchNorm2d(96),
        nn.Conv2d(96, 64, 3),
        nn.ConvTranspose2d(64, 80, 2),
        nn.Conv1d(80, 70, 5),
        nn.Conv2d(70, 70, 3, groups=70),
    )
    kernel = model[2].get_parameter("weight")
    kernel.data = kernel.data.contiguous(memory_format=torch.channels_last)
    return model


def recurrent() -> nn.Module:
    return nn.ModuleDict({"lstm": nn.LSTM(64, 64, bidirectional=True), "gru": nn.GRU(70, 64)})


def of_many_types() -> nn.Module:
    dtypes = (torch.float64, torch.float16, torch.bfloat16, torch.float32)
    return nn.ModuleList([nn.Linear(66, 90, dtype=dtype) for dtype in dtypes])


MODELS = [LanguageModel, Experts, convolutional, recurrent, of_many_types]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where the models lie."""
    found: str = request.param
    return found


def parts(made: Fingerprint) -> tuple[object, ...]:
    keys = made.keys.tolist(), made.owners.tolist(), made.lengths.tolist()
    return (made.scale, made.tensors, made.lines, *keys)


def saved(tensors: dict[str, Tensor], path: Path) -> Path:
    """A file of a state dict, in which tied tensors are stored twice."""
    save_file(
        {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path
    )
    return path


@pytest.mark.parametrize("make", MODELS)
def test_a_model_has_the_fingerprint_of_its_file(
    device: str, tmp_path: Path, make: Callable[[], nn.Module]
) -> None:
    """Names, their order, shapes, why some are left out, signatures, keys and their tensors."""
    model = make()
    path = saved(model.state_dict(), tmp_path / "model.safetensors")
    for scale in (None, 1, 8):
        expected = parts(checkpoints.fingerprint(path, scale=scale))
        assert expected == parts(fingerprint(model.to(device), scale=scale))
    assert parts(fingerprint(model)) == parts(fingerprint(model.state_dict()))
    assert 100 < fingerprint(model, scale=1).keys.size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 2}),
        ("LlamaForCausalLM", {"hidden_size": 64, "intermediate_size": 128, **LAYERS}),
        ("T5ForConditionalGeneration", {"d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 1}),
    ],
)
def test_networks_of_transformers_have_the_keys_of_their_files(
    tmp_path: Path, name: str, sizes: dict[str, Any]
) -> None:
    """A file has tied parameters once, so they have fewer names there; all else is equal."""
    network = getattr(pytest.importorskip("transformers"), name)
    special = {"bos_token_id": 0, "eos_token_id": 0}
    model = network(network.config_class(vocab_size=300, **sizes, **special))
    model.save_pretrained(tmp_path)
    of_file, made = checkpoints.fingerprint(tmp_path), fingerprint(model)
    assert of_file.keys.tolist() == made.keys.tolist()
    named = {name: replace(each, names=()) for each in made.tensors for name in each.names}
    in_file = {name: replace(each, names=()) for each in of_file.tensors for name in each.names}
    assert in_file == {name: named[name] for name in in_file}


def test_floats_of_8_bits_have_the_lines_of_their_values(device: str, tmp_path: Path) -> None:
    """As the reader of files decodes them."""
    tensors = {
        str(dtype): torch.randn(80, 130).to(dtype)
        for dtype in (EIGHT_BITS, torch.float8_e5m2, torch.bfloat16)
    }
    tensors["other.scale"] = torch.ones(3)
    path = saved(tensors, tmp_path / "model.safetensors")
    there = {name: tensor.to(device) for name, tensor in tensors.items()}
    assert parts(checkpoints.fingerprint(path)) == parts(fingerprint(there))


def test_tied_parameters_are_one_tensor(device: str, tmp_path: Path) -> None:
    """It is read once and has both names; a file that has it once has one of them."""
    model, counts = LanguageModel().to(device), list[tuple[int, int]]()
    made = fingerprint(model, count=lambda *counted: counts.append(counted))
    assert ("embed.weight", "head.weight") == made.tensors[0].names
    floats = [*model.parameters(), model.waves]
    assert (sum(each.numel() for each in floats),) * 2 == counts[-1]
    save_model(model, str(tmp_path / "model.safetensors"))
    of_file = checkpoints.fingerprint(tmp_path / "model.safetensors")
    kept = of_file.tensors[0].names
    assert kept < ("embed.weight", "head.weight") or kept == ("head.weight",)
    assert made.keys.tolist() == of_file.keys.tolist()
    assert replace(made.tensors[0], names=kept) in of_file.tensors


def test_what_counts(device: str) -> None:
    """Frozen parameters and saved buffers of floats; tables say why they have no lines."""
    model = LanguageModel().to(device)
    model.embed.requires_grad_(False)
    made = {each.name: each.reason for each in fingerprint(model).tensors}
    assert "head.weight" not in made
    assert {"positions", "cache"}.isdisjoint(made)
    assert made["embed.weight"] is None
    assert NotComparable.STRUCTURED == made["waves"]
    assert NotComparable.SHORT == made["layer.norm1.weight"]


def test_names_lack_the_marks_of_wrappers() -> None:
    """A model in DataParallel, and what is saved of a compiled one."""
    model = Experts()
    expected = parts(fingerprint(model))
    assert expected == parts(fingerprint(nn.DataParallel(model)))
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in model.state_dict().items()}
    assert expected == parts(fingerprint(compiled))


def test_some_tensors_are_left_out() -> None:
    """By patterns of names, which must match; and pairs do for a model."""
    model = LanguageModel()
    made = fingerprint(model.named_parameters(), exclude=["layer.*", "*.bias"])
    assert [("embed.weight",)] == [each.names for each in made.tensors]
    for exclude, message in (
        (["lm_head"], "'lm_head' matches none"),
        ("layer.*", "give a list of patterns"),
        (["*"], "no parameter"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            fingerprint(model, exclude=exclude)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_names_its_tensor(device: str, value: float) -> None:
    """In a matrix of any kind."""
    model = Experts().to(device)
    with torch.no_grad():
        model.down[3, 60, 2] = value
    with pytest.raises(InvalidImportance, match="'down' has values that are NaN or infinite"):
        fingerprint(model)


def test_the_caller_ends_it() -> None:
    """By what the function that counts raises; before, it is told of all values."""

    def stop(done: int, total: int) -> None:
        assert 0 <= done <= total == 16 * 64 * 70 + 4 * 70 * 64 + 65 * 16
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fingerprint(Experts(), count=stop)


class Packed(Tensor):
    """As packages of quantised tensors have them."""


def with_codes(dtype: torch.dtype) -> dict[str, Tensor]:
    codes = torch.zeros(64, 128, dtype=dtype)
    return {"up.weight": codes, "up.absmax": torch.ones(128), "norm": torch.ones(64)}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.LazyLinear(64), "'weight' is without a shape yet: run one batch"),
        (nn.Linear(64, 64, device="meta"), "'weight' is without data .meta.: load the weights"),
        ({"w": torch.eye(64).to_sparse()}, "'w' is of layout torch.sparse_coo: make it dense"),
        ({"w": torch.ones(64, 64, dtype=torch.complex64)}, "'w' is torch.complex64, which"),
        (
            {"w": torch.ones(64, 64, dtype=torch.uint8).as_subclass(Packed)},
            "'w' is a Packed of torch.uint8: dequantise it first",
        ),
        (with_codes(torch.uint8), "'up.weight' is torch.uint8, .* it looks quantised"),
        (with_codes(torch.int64), "'up.weight' is torch.int64, .* it looks quantised"),
        (
            {"a.w": torch.ones(64, 64).to(EIGHT_BITS), "a.w_scale": torch.ones(1)},
            "'a.w' is torch.float8_e4m3fn with scales beside it",
        ),
        ({"steps": torch.ones(3, dtype=torch.int64)}, "no tensor of floats"),
        (nn.ReLU(), "no tensor of floats"),
        ("model.safetensors", "not a str"),
        (3, "not a int"),
    ],
)
def test_models_without_weights_of_their_own_are_refused(model: Any, message: str) -> None:
    """By the name of the tensor, with what to do."""
    with pytest.raises(InvalidParameter, match=message):
        fingerprint(model)


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[nn.Linear]:
    """A model whose weight is a DTensor, over the one process that there is."""
    # They import half a second's worth, which no other test needs.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    rendezvous = f"file://{tmp_path}/rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
    model = nn.Linear(64, 64, bias=False)
    mesh = init_device_mesh("cpu", (1,))
    model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), mesh))
    yield model
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:DTensor random operators:UserWarning")
def test_sharded_models_are_refused(monkeypatch: pytest.MonkeyPatch, sharded: nn.Linear) -> None:
    """With how to gather them, and before a state dict gathers anything."""
    monkeypatch.setattr(sharded, "state_dict", lambda: pytest.fail("it was gathered"))
    with pytest.raises(InvalidParameter, match=r"'weight' is sharded .DTensor.: gather the model"):
        fingerprint(sharded)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"scale": 3}, "power of two"), ({"scale": 0}, "power of two"), ({"threads": 0}, "1 or more")],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    """Before any tensor is read."""
    with pytest.raises(InvalidParameter, match=message):
        fingerprint({"w": torch.full((64, 64), math.nan)}, **arguments)
