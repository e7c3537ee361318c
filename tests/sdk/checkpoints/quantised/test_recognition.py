"""What is quantised, and how, by what the file says: names, types, configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from modelkin import similarity
from modelkin.checkpoints import (
    Checkpoint,
    cut_checkpoint,
    open_checkpoint,
    select_from_checkpoint,
    weights_of,
)
from modelkin.errors import InvalidCheckpoint
from tests.sdk.cli.files import Tensors, save, save_sharded
from tests.support.models.quantised_checkpoints import SCHEMES, quantised, write_quantised

E4M3 = torch.float8_e4m3fn


def matrix(seed: int, scale: float = 0.02, shape: tuple[int, int] = (64, 128)) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def opened(folder: Path, tensors: Tensors, *exclude: str, **files: Any) -> Checkpoint:
    """The checkpoint of these tensors, with JSON files beside it."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return open_checkpoint(save(folder / "model.safetensors", tensors), exclude)


def refusal(folder: Path, tensors: Tensors, *exclude: str, **files: Any) -> str:
    """Why a checkpoint is not opened."""
    with pytest.raises(InvalidCheckpoint) as caught:
        opened(folder, tensors, *exclude, **files)
    return str(caught.value)


def ints(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    "name",
    [
        "blk.scale_weight",
        "blk.weight_scale",
        "blk.weight_scale_inv",
        "blk.qscale_weight",
        "blk.scale",
        "blk.scale_inv",
    ],
)
def test_scales_by_any_name(tmp_path: Path, name: str) -> None:
    """Two tensors that were divided by unlike scales have the support of their originals."""
    small, large = matrix(1, 0.02), matrix(2, 0.04)
    packed: Tensors = {}
    for module, values in (("a", small), ("b", large)):
        scale = values.abs().max() / 448
        packed[f"{module}.blk.weight"] = (values / scale).to(E4M3)
        packed[f"{module}.{name}"] = scale
    (tmp_path / "first").mkdir()
    original = {"a.blk.weight": small, "b.blk.weight": large}
    before = select_from_checkpoint(opened(tmp_path / "first", original))
    after = select_from_checkpoint(opened(tmp_path, packed))
    assert similarity(before, after) > 0.9


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *[("weight_descale", 64), ("own_scale_8", 64), ("scales", 64)],
        *[("weight.scale", 64), ("weight.absmax", 64), ("weight_amax", 1), ("s", 1)],
    ],
)
def test_scales_by_an_unknown_name(tmp_path: Path, name: str, size: int) -> None:
    """A small tensor of floats in the module that is called some scale is not passed over, nor a
    single float by any name, or what is named as a part of the weight.
    """
    tensors = {"blk.weight": matrix(1).to(E4M3), f"blk.{name}": torch.ones(size)}
    assert f"whose scales are called {name!r}" in refusal(tmp_path, tensors)


def test_plain_casts(tmp_path: Path) -> None:
    """8-bit floats without scales are values; so are those beside scaled ones."""
    tensors = {"a.weight": matrix(1).to(E4M3), "a.bias": torch.ones(64), "n.weight": torch.ones(9)}
    assert ["F32", "F8_E4M3", "F32"] == [t.dtype for t in opened(tmp_path, tensors).tensors]
    more = {"a.e_score_correction_bias": torch.ones(1), "gamma": torch.ones(1)}
    assert 5 == len(opened(tmp_path, tensors | more).tensors)
    scaled = {"b.weight": matrix(2).to(E4M3), "b.scale_weight": torch.tensor(2.0)}
    mixed = opened(tmp_path, {**tensors, **scaled, "scaled_fp8": torch.zeros(2).to(E4M3)})
    assert {"a.weight": "F8_E4M3", "b.weight": "F8_E4M3 with scales"} == {
        t.name: t.dtype
        for t in mixed.tensors
        if t.name.endswith("b.weight") or t.name == "a.weight"
    }
    assert 4 == len(mixed.tensors)


@pytest.mark.parametrize("scheme", ["GPTQ, 4 bits", "AWQ", "MLX, 4 bits", "nf4"])
def test_quantised_where_embeddings_are_most(tmp_path: Path, scheme: str) -> None:
    """The share of integers decides nothing: six small layers are read beside large embeddings."""
    layers = {f"h.{n}.weight": matrix(n).numpy() for n in range(6)}
    packed, config = quantised(layers, scheme)
    tables = {name: matrix(9, 1, (4000, 64)).half() for name in ("in.weight", "out.weight")}
    found = opened(tmp_path, packed | tables, config=config)
    assert sorted([*layers, *tables]) == [tensor.name for tensor in found.tensors]
    assert not found.skipped


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_layout_is_that_of_the_original(tmp_path: Path, scheme: str) -> None:
    """A quantised copy has the names and shapes before quantisation, whatever its configuration
    lies in, and says in its notes what it is dequantised from.
    """
    weights = {
        "a.weight": matrix(1).numpy(),
        "b.weight": matrix(2).numpy(),
        "n.weight": np.ones(64),
    }
    weights = {name: values.astype(np.float32) for name, values in weights.items()}
    found = open_checkpoint(write_quantised(tmp_path / "q", weights, scheme))
    assert {name: values.shape for name, values in weights.items()} == {
        tensor.name: tensor.shape for tensor in found.tensors
    }
    kind = found.tensors[0].dtype
    assert (f"its values are dequantised from {kind}",) == found.notes
    origin = select_from_checkpoint(found).origin
    assert origin is not None
    assert origin.importance is not None
    assert f"dequantised from {kind}" == origin.importance.note


def test_shards(tmp_path: Path) -> None:
    """Codes and scales may lie in different shards."""
    packed, config = quantised({f"{n}.weight": matrix(n).numpy() for n in range(4)}, "AWQ")
    folder = save_sharded(tmp_path / "s", packed)
    (folder / "config.json").write_text(json.dumps(config))
    assert {"int4 AWQ": 4 * 64 * 128} == open_checkpoint(folder).dtypes


@pytest.mark.parametrize(
    ("files", "plus"),
    [
        ({}, 1),
        ({"config": {"quantization_config": {"quant_method": "gptq"}}}, 1),
        ({"quantize_config": {"bits": 4, "checkpoint_format": "gptq_v2"}}, 0),
        ({"config": {"text_config": {"quantization_config": {"checkpoint_format": "gptq_v2"}}}}, 0),
    ],
)
def test_the_zeros_of_both_versions_of_gptq(
    tmp_path: Path, files: dict[str, Any], plus: int
) -> None:
    """A stored zero is one too small in the first version, which is that of files that say none."""
    packed = {
        "m.qweight": torch.zeros(4, 32, dtype=torch.int32),
        "m.qzeros": torch.full((1, 4), 0x33333333, dtype=torch.int32),
        "m.scales": torch.full((1, 32), 0.5),
    }
    (tensor,) = opened(tmp_path, packed, **files).tensors
    assert {-0.5 * (3 + plus)} == set(tensor.part(0, tensor.size).tolist())


def test_layers_with_the_inputs_first(tmp_path: Path) -> None:
    """GPT-2's linear layers are stored transposed, and are not transposed again."""
    packed, config = quantised({"h.weight": matrix(1).numpy()}, "GPTQ, 4 bits")
    (linear,) = opened(tmp_path, packed, config=config).tensors
    (conv1d,) = opened(tmp_path, packed, config=config | {"model_type": "gpt2"}).tensors
    turned = linear.part(0, linear.size).reshape(64, 128).T
    assert np.array_equal(turned, conv1d.part(0, conv1d.size).reshape(128, 64))


REFUSED: dict[str, tuple[Tensors, dict[str, Any]]] = {
    "HQQ": ({"m.W_q": ints(64, 64, dtype=torch.uint8), "m.meta": torch.ones(4)}, {}),
    "AQLM": ({"m.codes": ints(64, 8, 2, dtype=torch.int16), "m.codebooks": torch.ones(2, 9)}, {}),
    "QuIP#": ({"m.Qidxs": ints(64, 8, dtype=torch.int16)}, {}),
    "EXL2": ({"m.q_weight": ints(64, 8), "m.q_scale": ints(2, 8)}, {}),
    "EXL3": ({"m.trellis": ints(4, 4, 48, dtype=torch.int16), "m.suh": torch.ones(64)}, {}),
    "EETQ": ({"m.qweight": ints(64, 8, dtype=torch.int8), "m.weight_scales": torch.ones(8)}, {}),
    "VPTQ": ({"m.indices": ints(64, 8), "m.centroids": torch.ones(1, 9)}, {}),
    "Marlin": ({"m.B": ints(64, 8), "m.s": torch.ones(4, 8)}, {}),
    "torchao": ({"m._weight_qdata": ints(64, 8, dtype=torch.int8)}, {}),
    "quanto": ({"m.weight._data": ints(64, 8, dtype=torch.int8)}, {}),
    "after smoothing": (
        {"m.weight": ints(8, 16, dtype=torch.int8), "m.pre_quant_scale": torch.ones(16)},
        {},
    ),
    "'bitnet', as config.json says": (
        {"m.weight": ints(16, 64, dtype=torch.uint8), "n.w": torch.ones(999)},
        {"config": {"quantization_config": {"quant_method": "bitnet"}}},
    ),
    "AWQ's 'gemv'": (
        quantised({"m.weight": matrix(1).numpy()}, "AWQ")[0],
        {"config": {"quantization_config": {"quant_method": "awq", "version": "gemv"}}},
    ),
    "checkpoint_format is 'marlin'": (
        quantised({"m.weight": matrix(1).numpy()}, "GPTQ, 4 bits")[0],
        {"quantize_config": {"checkpoint_format": "marlin"}},
    ),
    "packed as GPTQ packs, and config.json says 'awq'": (
        quantised({"m.weight": matrix(1).numpy()}, "GPTQ, 4 bits")[0],
        {"config": {"quantization_config": {"quant_method": "awq"}}},
    ),
    "ComfyUI as 'nvfp4'": (
        quantised({"m.weight": matrix(1).numpy()}, "NVFP4")[0]
        | {"m.comfy_quant": torch.tensor(list(b'{"format": "nvfp4"}'), dtype=torch.uint8)},
        {},
    ),
    "'bitnet', as config": (
        {"m.weight": ints(16, 64, dtype=torch.uint8), "m.weight_scale": torch.ones(1)},
        {"config": {"quantization_config": {"quant_method": "bitnet"}}},
    ),
    "compressed-tensors after rotations": (
        quantised({"m.weight": matrix(1).numpy()}, "compressed-tensors, 4 bits")[0],
        {"config": {"quantization_config": {"transform_config": {"config_groups": {"R1": {}}}}}},
    ),
    "SVDQuant": ({"m.qweight": ints(64, 8, dtype=torch.int8), "m.wscales": torch.ones(8)}, {}),
    "bitmasks of sparse weights": (
        {"m.weight.compressed": torch.ones(99), "m.weight.bitmask": ints(64, dtype=torch.uint8)},
        {},
    ),
    "bitsandbytes without its description": (
        {"m.weight": ints(64, 1, dtype=torch.uint8), "m.weight.quant_map": torch.ones(16)},
        {},
    ),
    "'fp8', as config.json says, and has no scales": (
        {"m.weight": matrix(1).to(E4M3)},
        {"config": {"quantization_config": {"quant_method": "fp8"}}},
    ),
    "no scales beside its codes": (
        {"m.weight": ints(64, 64, dtype=torch.int8), "n.w": torch.ones(9999, 9)},
        {},
    ),
    "without its scales and zeros": ({"m.qweight": ints(64, 8)}, {}),
    "put the config.json of the model there": (
        quantised({"m.weight": matrix(1).numpy()}, "MLX, 4 bits")[0],
        {},
    ),
    "is there a second time": (
        quantised({"m.weight": matrix(1).numpy()}, "AWQ")[0] | {"m.weight": torch.ones(4)},
        {},
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_not_read_is_named(tmp_path: Path, words: str) -> None:
    """A scheme that is not read, or a form of one that is, is refused by its name; a model whose
    quantised tensors are all excluded is read.
    """
    tensors, files = REFUSED[words]
    assert words in refusal(tmp_path, tensors, **files)
    left = opened(tmp_path, tensors | {"z.weight": torch.ones(3)}, "m.*", **files)
    assert "z.weight" in [tensor.name for tensor in left.tensors]


def test_what_metadata_says(tmp_path: Path) -> None:
    """ComfyUI's NVFP4 has its scales in another order, which the file's metadata may say alone."""
    tensors, _ = quantised({"m.weight": matrix(1).numpy()}, "NVFP4")
    assert ["NVFP4"] == [t.dtype for t in opened(tmp_path, tensors).tensors]
    layers = {"format_version": "1.0", "layers": {"m": {"format": "nvfp4"}}}
    path = tmp_path / "comfy.safetensors"
    save_file(tensors, path, {"_quantization_metadata": json.dumps(layers)})
    with pytest.raises(InvalidCheckpoint, match="ComfyUI as 'nvfp4'"):
        open_checkpoint(path)


def test_stacks_of_experts_with_the_inputs_first(tmp_path: Path) -> None:
    """ModelOpt packs them along their inputs, and their scales have a name of their own."""
    packed, _ = quantised({"m.weight": matrix(1).numpy()}, "NVFP4")
    (single,) = opened(tmp_path, packed).tensors
    expected = single.part(0, single.size).reshape(64, 128).T
    codes, scale = packed["m.weight"], packed["m.weight_scale"]
    stack = {
        "e.up_proj": torch.stack([codes.T, codes.T.flip(1)]),
        "e.up_proj_weight_scale": torch.stack(
            [scale.view(torch.uint8).T, scale.view(torch.uint8).T.flip(1)]
        ).view(E4M3),
        "e.up_proj_weight_scale_2": packed["m.weight_scale_2"],
    }
    (experts,) = opened(tmp_path, stack).tensors
    assert ("e.up_proj", (2, 128, 64)) == (experts.name, experts.shape)
    values = experts.part(0, experts.size).reshape(2, 128, 64)
    assert np.array_equal(np.stack([expected, expected[:, ::-1]]), values)
    floats = {"e.up_proj": matrix(1).to(E4M3), "e.up_proj_weight_scale": torch.tensor(2.0)}
    (scaled,) = opened(tmp_path, floats).tensors
    assert np.array_equal(2 * floats["e.up_proj"].float().numpy().ravel(), scaled.part(0, 8192))


def test_what_mlx_says_comes_first(tmp_path: Path) -> None:
    """A model that was converted by MLX keeps beside that how its original was quantised."""
    packed, config = quantised({"m.weight": matrix(1).numpy()}, "MLX, 4 bits")
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert {"int4 MLX": 64 * 128} == opened(tmp_path, packed, config=config).dtypes


@pytest.mark.parametrize("shape", [(3,), (128,), (64, 128, 1), (7, 128)])
def test_scales_that_do_not_fit(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Scales of another shape than of a tensor, its rows or its blocks are refused."""
    tensors = {"m.weight": matrix(1).to(E4M3), "m.weight_scale": torch.ones(shape)}
    assert "does not fit that of 'm.weight'" in refusal(tmp_path, tensors)


def test_excluded_by_either_name(tmp_path: Path) -> None:
    """A pattern of the name before quantisation, or of a part, leaves out the whole tensor."""
    packed, config = quantised(
        {"a.weight": matrix(1).numpy(), "b.weight": matrix(2).numpy()}, "AWQ"
    )
    for pattern in ("b.weight", "b.*", "*b.qzeros"):
        found = opened(tmp_path, packed, pattern, config=config)
        assert (["a.weight"], ("b.weight",)) == ([t.name for t in found.tensors], found.excluded)


@pytest.mark.parametrize("scheme", ["AWQ", "HQQ"])
def test_copies_are_exact_with_what_is_left_out(tmp_path: Path, scheme: str) -> None:
    """Quantised tensors that are left out, readable or not, count for whether a model is a copy."""
    packed: Tensors = {"m.W_q": ints(64, 64, dtype=torch.uint8)}
    config: dict[str, Any] = {}
    if scheme == "AWQ":
        packed, config = quantised({"m.weight": matrix(1).numpy()}, "AWQ")
    tensors = packed | {"z.weight": torch.ones(3)}
    digests = [weights_of(opened(tmp_path, tensors, "m.*", config=config)).digest]
    first = next(iter(packed.values()))
    first[0, 0] += 1
    digests.append(weights_of(opened(tmp_path, tensors, "m.*", config=config)).digest)
    first[0, 0] -= 1
    digests.append(weights_of(opened(tmp_path, tensors, "m.*", config=config)).digest)
    assert [0, 1, 0] == [digests.index(digest) for digest in digests]


def test_no_average_goes_into_codes(tmp_path: Path) -> None:
    """A learngene is no part of a quantised checkpoint."""
    packed, config = quantised({"a.weight": matrix(1).numpy()}, "nf4")
    found = opened(tmp_path, packed, config=config)
    with pytest.raises(InvalidCheckpoint, match="nf4 bitsandbytes, too coarse"):
        cut_checkpoint(found, tmp_path / "cut.safetensors", tensors=["*"])
