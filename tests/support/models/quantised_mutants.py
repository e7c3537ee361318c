"""Damaged quantised checkpoints: shapes, types, names, contents and configurations.

A payload says what the files hold, so that a damaged one still is a file of the format, and its
tensors are read as far as they fit. Large tensors are holes in a file.
"""

from __future__ import annotations

import json
import random
import tempfile
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from modelkin.checkpoints import open_checkpoint
from modelkin.checkpoints.tensors import STRETCH_SIZE
from modelkin.core.safetensors_header import BITS
from tests.support.models.quantised_checkpoints import SCHEMES, quantised

__all__ = ["ORIGINALS", "damaged", "read_damaged"]

_DTYPES: Final = {
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.float8_e4m3fn: "F8_E4M3",
}
_EXTREMES: Final = (0, 1, 2, 3, 31, 1 << 20, 1 << 31, 1 << 40, (1 << 62) + 1, (1 << 63) - 1)
_VALUES: Final[tuple[Any, ...]] = (
    *(0, -1, 1, 3, 5, 16, 1 << 31, 1 << 63, 10**400, 1.5, True, None, "", "x" * 5_000),
    *([], {}, [0, 0], [1 << 63, 128], [[]], {"a": []}, "marlin", "gemv", "affine", "mxfp4"),
)
_MOST_BYTES: Final = 1 << 35
"""Of a file with holes; the header of a larger one is refused."""


def _original(scheme: str) -> bytes:
    weights = {"a.weight": np.ones((32, 256), np.float32), "b": np.ones(7, np.float32)}
    weights["a.weight"] += np.arange(256, dtype=np.float32) / 7
    tensors, config = quantised(weights, scheme)
    return _payload(tensors, {"config.json": config})


def _payload(tensors: dict[str, torch.Tensor], files: dict[str, Any]) -> bytes:
    described = {
        name: {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data": tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex(),
        }
        for name, tensor in tensors.items()
    }
    texts = {name: json.dumps(content) for name, content in files.items()}
    return json.dumps({"files": texts, "tensors": described}).encode()


def _gpt_oss() -> bytes:
    blocks = torch.ones((2, 12, 2, 16), dtype=torch.uint8)
    scales = torch.full((2, 12, 2), 127, dtype=torch.uint8)
    said = {"quantization_config": {"quant_method": "mxfp4"}}
    return _payload({"e.up_blocks": blocks, "e.up_scales": scales}, {"config.json": said})


def _experts() -> bytes:
    """A stack of experts as ModelOpt quantises it, packed along the inputs."""
    said = {"quantization_config": {"quant_method": "modelopt"}}
    tensors = {
        "e.up": torch.ones((2, 16, 12), dtype=torch.uint8),
        "e.up_weight_scale": torch.ones((2, 2, 12)).to(torch.float8_e4m3fn),
        "e.up_weight_scale_2": torch.ones(()),
    }
    return _payload(tensors, {"config.json": said})


ORIGINALS: Final = (*map(_original, SCHEMES), _gpt_oss(), _experts())


def damaged(draw: random.Random, original: bytes) -> bytes:
    """One to four damages."""
    payload = json.loads(original)
    for _ in range(draw.randint(1, 4)):
        if payload["tensors"]:
            draw.choice(_DAMAGES)(draw, payload)
    return json.dumps(payload).encode()


def read_damaged(data: bytes) -> object:
    """Open a payload as files, and read the ends of each of its tensors."""
    payload = json.loads(data)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in payload["files"].items():
            (Path(folder) / name).write_text(text)
        _write(Path(folder) / "model.safetensors", payload["tensors"])
        checkpoint = open_checkpoint(folder)
        for tensor in checkpoint.tensors:
            for stretch in tensor.stretches():
                assert stretch.size == min(STRETCH_SIZE, tensor.size)
                break
            last = tensor.part(max(0, tensor.size - 1_000), tensor.size)
            assert last.size == min(1_000, tensor.size)
        return checkpoint.num_parameters


def _write(path: Path, tensors: dict[str, Any]) -> None:
    header, at = {}, 0
    for name, tensor in tensors.items():
        size = prod(tensor["shape"]) * BITS[tensor["dtype"]] // 8
        tensor["begin"], at = at, at + size
        header[name] = {
            "dtype": tensor["dtype"],
            "shape": tensor["shape"],
            "data_offsets": [tensor["begin"], at],
        }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + min(at, _MOST_BYTES))
        for tensor in tensors.values():
            size = prod(tensor["shape"]) * BITS[tensor["dtype"]] // 8
            if tensor["begin"] < _MOST_BYTES:
                file.seek(8 + len(text) + tensor["begin"])
                file.write(bytes.fromhex(tensor["data"])[:size])


def _shape(draw: random.Random, payload: dict[str, Any]) -> None:
    shape = draw.choice([*payload["tensors"].values()])["shape"]
    if not shape or draw.random() < 0.2:
        shape.insert(draw.randint(0, len(shape)), draw.choice(_EXTREMES[:4]))
        return
    at = draw.randrange(len(shape))
    new = (shape[at] + 1, shape[at] - 1, shape[at] * 2, shape[at] // 2, draw.choice(_EXTREMES))
    way = draw.randrange(4)
    if way == 0:
        del shape[at]
    elif way == 1:
        shape.reverse()
    else:
        shape[at] = max(0, draw.choice(new))


def _all_shapes(draw: random.Random, payload: dict[str, Any]) -> None:
    """The same factor for all, so that large tensors fit each other."""
    factor, first = draw.choice((2, 3, 1 << 10, 1 << 16)), draw.random() < 0.5
    for tensor in payload["tensors"].values():
        if tensor["shape"]:
            tensor["shape"][0 if first else -1] *= factor


def _dtype(draw: random.Random, payload: dict[str, Any]) -> None:
    draw.choice([*payload["tensors"].values()])["dtype"] = draw.choice([*BITS])


def _drop(draw: random.Random, payload: dict[str, Any]) -> None:
    del payload["tensors"][draw.choice([*payload["tensors"]])]


def _rename(draw: random.Random, payload: dict[str, Any]) -> None:
    tensors = payload["tensors"]
    old, other = draw.choice([*tensors]), draw.choice([*tensors])
    ends = (*_ENDS, *(name.partition(".")[2] for name in tensors))
    new = f"{other.partition('.')[0]}.{draw.choice(ends)}"
    held = tensors[old] if draw.random() < 0.5 else tensors.pop(old)
    tensors[new] = json.loads(json.dumps(held))


def _content(draw: random.Random, payload: dict[str, Any]) -> None:
    tensor = draw.choice([*payload["tensors"].values()])
    data = bytearray.fromhex(tensor["data"])
    for _ in range(draw.randint(1, 8)):
        if data:
            data[draw.randrange(len(data))] = draw.choice((0, 1, 57, 127, 128, 255))
    tensor["data"] = data.hex()


def _statement(draw: random.Random, payload: dict[str, Any]) -> None:
    name = draw.choice([*payload["files"]])
    text = payload["files"][name]
    if draw.random() < 0.2:
        at = draw.randrange(len(text) + 1)
        payload["files"][name] = text[:at] + draw.choice(("", "[" * 5_000, '"', "NaN", "}"))
        return
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return
    inner = fields
    while isinstance(inner, dict) and inner:
        key = draw.choice([*inner, "bits", "group_size", "mode", "weight_block_size", "a"])
        if not isinstance(inner.get(key), dict) or draw.random() < 0.2:
            inner[key] = draw.choice(_VALUES)
            break
        inner = inner[key]
    moved = draw.choice((name, name, "quantize_config.json", "hf_quant_config.json"))
    payload["files"][moved] = json.dumps(fields)


_ENDS: Final = (
    *("weight", "weight_scale", "weight_scale_inv", "scale_weight", "scale", "scales", "biases"),
    *("qweight", "qzeros", "g_idx", "SCB", "weight_packed", "weight_shape", "weight_zero_point"),
    *("weight_g_idx", "weight_scale_2", "weight_global_scale", "comfy_quant", "up_blocks"),
    *("weight.absmax", "weight.quant_map", "weight.quant_state.bitsandbytes__fp4", "codes"),
    *("weight.nested_absmax", "weight.nested_quant_map", "up_scales", "W_q", "pre_quant_scale"),
)
_DAMAGES: Final = (
    *(_shape, _shape, _all_shapes, _dtype, _drop, _rename, _content, _statement, _statement),
)
