"""Quantised copies of weights, packed by the published layouts without the code that reads them.

Rounding is to the nearest, and nothing is calibrated. Matrices are quantised; what has another
number of dimensions stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

__all__ = ["BITS", "SCHEMES", "quantised", "write_quantised"]

Floats = npt.NDArray[np.float32]
Tensors = dict[str, torch.Tensor]

_NF4: Final = (
    *(-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0),
)
"""The quantiles of a normal distribution. Source: Dettmers et al. 2023, appendix E."""
_E2M1: Final = (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6)
_MOST_E4M3: Final = 448.0


def write_quantised(folder: Path, weights: Mapping[str, Floats], scheme: str) -> Path:
    """A folder with a quantised copy of weights, and the configuration that says so."""
    tensors, config = quantised(weights, scheme)
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def quantised(weights: Mapping[str, Floats], scheme: str) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the configuration of a quantised copy; names end in ``.weight``."""
    pack, config = SCHEMES[scheme]
    tensors: Tensors = {}
    for name, values in weights.items():
        if values.ndim == 2:
            parts = pack(name.removesuffix(".weight"), values)
            tensors |= {part: tensor.contiguous() for part, tensor in parts.items()}
        else:
            tensors[name] = torch.from_numpy(values)
    return tensors, config


def _words(codes: npt.NDArray[Any], bits: int) -> torch.Tensor:
    """Codes along the last dimension as one stream of bits, lowest first, in 32-bit words."""
    stream = (codes[..., None].astype(np.uint8) >> np.arange(bits, dtype=np.uint8)) & 1
    flat = stream.reshape(*codes.shape[:-1], -1)
    packed = np.packbits(flat, axis=-1, bitorder="little")
    return torch.from_numpy(np.ascontiguousarray(packed).view(np.int32))


def _groups(values: Floats, size: int) -> Floats:
    return values.reshape(len(values), -1, size)


def _symmetric(values: Floats, size: int, bits: int) -> tuple[npt.NDArray[Any], Floats]:
    """Signed codes of the shape of the values, and a scale a group."""
    most = 2 ** (bits - 1) - 1
    groups = _groups(values, size)
    scales = (np.abs(groups).max(2) / (most + 0.5)).astype(np.float16).astype(np.float32)
    codes = np.clip(np.rint(groups / scales[:, :, None]), -most - 1, most)
    return codes.reshape(values.shape).astype(np.int8), scales


def _asymmetric(
    values: Floats, size: int, bits: int
) -> tuple[npt.NDArray[Any], Floats, npt.NDArray[Any]]:
    """Codes, and a scale and a zero a group."""
    most, groups = 2**bits - 1, _groups(values, size)
    low, high = np.minimum(groups.min(2), 0), np.maximum(groups.max(2), 0)
    scales = ((high - low) / most).astype(np.float16).astype(np.float32)
    zeros = np.clip(np.rint(-low / scales), 0, most)
    codes = np.clip(np.rint(groups / scales[:, :, None]) + zeros[:, :, None], 0, most)
    return codes.reshape(values.shape).astype(np.uint8), scales, zeros.astype(np.uint8)


def _half(values: Floats) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).half()


def _f8(values: Floats) -> torch.Tensor:
    kept = np.clip(values, -_MOST_E4M3, _MOST_E4M3)
    return torch.from_numpy(np.ascontiguousarray(kept)).to(torch.float8_e4m3fn)


def _fp8_blocks(name: str, values: Floats) -> Tensors:
    rows, columns = values.shape
    wide = np.zeros((-(-rows // 128) * 128, -(-columns // 128) * 128), np.float32)
    wide[:rows, :columns] = values
    blocks = wide.reshape(len(wide) // 128, 128, -1, 128)
    scales = np.abs(blocks).max((1, 3)) / _MOST_E4M3
    codes = (blocks / scales[:, None, :, None]).reshape(wide.shape)[:rows, :columns]
    return {f"{name}.weight": _f8(codes), f"{name}.weight_scale_inv": torch.from_numpy(scales)}


def _fp8_rows(name: str, values: Floats) -> Tensors:
    scales = np.abs(values).max(1, keepdims=True) / _MOST_E4M3
    return {
        f"{name}.weight": _f8(values / scales),
        f"{name}.weight_scale": torch.from_numpy(scales),
        f"{name}.input_scale": torch.ones(1),
    }


def _fp8_comfy(name: str, values: Floats) -> Tensors:
    scale = np.float32(np.abs(values).max() / _MOST_E4M3)
    return {
        f"{name}.weight": _f8(values / scale),
        f"{name}.scale_weight": torch.tensor(scale),
        "scaled_fp8": torch.zeros(2).to(torch.float8_e4m3fn),
    }


def _int8_rows(name: str, values: Floats) -> Tensors:
    codes, scales = _symmetric(values, values.shape[1], 8)
    return {f"{name}.weight": torch.from_numpy(codes), f"{name}.weight_scale": _half(scales)}


def _scb(name: str, values: Floats) -> Tensors:
    most = np.abs(values).max(1)
    codes = np.rint(values / most[:, None] * 127).astype(np.int8)
    return {f"{name}.weight": torch.from_numpy(codes), f"{name}.SCB": torch.from_numpy(most)}


def _gptq(bits: int, *, shuffled: bool = False) -> Callable[[str, Floats], Tensors]:
    """GPTQ of the first version, in groups of 128; shuffled as where activations give the order."""

    def pack(name: str, values: Floats) -> Tensors:
        inputs = values.shape[1]
        order = np.random.default_rng(5).permutation(inputs) if shuffled else np.arange(inputs)
        codes, scales, zeros = _asymmetric(values[:, order], 128, bits)
        groups = np.empty(inputs, np.int32)
        groups[order] = np.arange(inputs) // 128
        stored = np.empty_like(codes)
        stored[:, order] = codes
        less = (zeros.astype(int) - 1) % 2**bits
        return {
            f"{name}.qweight": _words(stored, bits).T,
            f"{name}.qzeros": _words(less.T, bits),
            f"{name}.scales": _half(scales.T),
            f"{name}.g_idx": torch.from_numpy(groups),
        }

    return pack


def _awq(name: str, values: Floats) -> Tensors:
    codes, scales, zeros = _asymmetric(values, 128, 4)
    order = (0, 2, 4, 6, 1, 3, 5, 7)

    def interleaved(matrix: npt.NDArray[Any]) -> torch.Tensor:
        return _words(matrix.reshape(len(matrix), -1, 8)[:, :, order].reshape(matrix.shape), 4)

    return {
        f"{name}.qweight": interleaved(codes.T),
        f"{name}.qzeros": interleaved(zeros.T),
        f"{name}.scales": _half(scales.T),
    }


def _four_bits(
    values: Floats, size: int, table: tuple[float, ...], scales: Floats
) -> npt.NDArray[Any]:
    """The nearest codes of blocks along the last dimension."""
    exact = np.array(table, np.float32)
    edges_of = np.argsort(exact, kind="stable")
    middles = (exact[edges_of][1:] + exact[edges_of][:-1]) / 2
    ratios = values.reshape(*scales.shape, size) / np.where(scales, scales, 1)[..., None]
    return edges_of[np.searchsorted(middles, ratios)].reshape(values.shape).astype(np.uint8)


def _nf4(*, nested: bool) -> Callable[[str, Floats], Tensors]:
    """bitsandbytes' blocks of 64; nested scales in blocks of 256."""

    def pack(name: str, values: Floats) -> Tensors:
        flat = values.ravel()
        scales = np.abs(flat.reshape(-1, 64)).max(1)
        said: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32"}
        own: dict[str, Any] = {"absmax": scales}
        if nested:
            offset = scales.mean()
            table = np.linspace(-1, 1, 256, dtype=np.float32)
            wide = np.zeros(-(-scales.size // 256) * 256, np.float32)
            wide[: scales.size] = scales - offset
            of_blocks = np.abs(wide.reshape(-1, 256)).max(1)
            ratios = wide.reshape(-1, 256) / of_blocks[:, None]
            codes = np.rint((ratios + 1) * 127.5).astype(np.uint8).ravel()[: scales.size]
            own = {"absmax": codes, "nested_absmax": of_blocks, "nested_quant_map": table}
            said |= {"nested_blocksize": 256, "nested_offset": float(offset)}
        codes = _four_bits(flat, 64, _NF4, scales)
        said["shape"] = list(values.shape)
        text = np.frombuffer(json.dumps(said).encode(), np.uint8).copy()
        own |= {"quant_map": np.array(_NF4, np.float32), "quant_state.bitsandbytes__nf4": text}
        packed = torch.from_numpy(codes[0::2] << 4 | codes[1::2]).reshape(-1, 1)
        parts = {f"{name}.weight.{part}": torch.from_numpy(each) for part, each in own.items()}
        return {f"{name}.weight": packed, **parts}

    return pack


def _bytes(codes: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(codes[:, 0::2] | codes[:, 1::2] << 4))


def _mxfp4(name: str, values: Floats) -> Tensors:
    most = np.abs(_groups(values, 32)).max(2)
    powers = np.clip(np.floor(np.log2(np.where(most, most, 1))) - 2 + 127, 0, 254)
    codes = _four_bits(values, 32, _E2M1, np.exp2(powers - 127).astype(np.float32))
    scales = torch.from_numpy(powers.astype(np.uint8))
    return {f"{name}.weight_packed": _bytes(codes), f"{name}.weight_scale": scales}


def _nvfp4(name: str, values: Floats) -> Tensors:
    overall = np.float32(np.abs(values).max() / 6 / _MOST_E4M3)
    scales = _f8(np.abs(_groups(values, 16)).max(2) / 6 / overall)
    codes = _four_bits(values, 16, _E2M1, scales.float().numpy() * overall)
    return {
        f"{name}.weight": _bytes(codes),
        f"{name}.weight_scale": scales,
        f"{name}.weight_scale_2": torch.tensor(overall),
    }


def _compressed(name: str, values: Floats) -> Tensors:
    codes, scales, zeros = _asymmetric(values, 128, 4)
    return {
        f"{name}.weight_packed": _words(codes, 4),
        f"{name}.weight_scale": _half(scales),
        f"{name}.weight_zero_point": _words(zeros.T, 4).T,
        f"{name}.weight_shape": torch.tensor(values.shape),
    }


def _mlx(bits: int) -> Callable[[str, Floats], Tensors]:
    def pack(name: str, values: Floats) -> Tensors:
        groups = _groups(values, 64)
        low = groups.min(2)
        scales = ((groups.max(2) - low) / (2**bits - 1)).astype(np.float16).astype(np.float32)
        low = low.astype(np.float16).astype(np.float32)
        codes = np.clip(np.rint((groups - low[:, :, None]) / scales[:, :, None]), 0, 2**bits - 1)
        return {
            f"{name}.weight": _words(codes.reshape(values.shape), bits).view(torch.uint32),
            f"{name}.scales": _half(scales),
            f"{name}.biases": _half(low),
        }

    return pack


def _said(method: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **fields}}


SCHEMES: Final[dict[str, tuple[Callable[[str, Floats], Tensors], dict[str, Any]]]] = {
    "FP8, blocks of 128 by 128": (_fp8_blocks, _said("fp8", weight_block_size=[128, 128])),
    "FP8, rows": (_fp8_rows, _said("fbgemm_fp8")),
    "FP8 of ComfyUI": (_fp8_comfy, {}),
    "int8, rows": (_int8_rows, _said("compressed-tensors", format="int-quantized")),
    "int8 of bitsandbytes": (_scb, _said("bitsandbytes", load_in_8bit=True)),
    "GPTQ, 8 bits": (_gptq(8), _said("gptq", bits=8, group_size=128)),
    "MLX, 8 bits": (_mlx(8), {"quantization": {"group_size": 64, "bits": 8}}),
    "GPTQ, 4 bits": (_gptq(4), _said("gptq", bits=4, group_size=128)),
    "GPTQ, 4 bits, in the order of activations": (
        _gptq(4, shuffled=True),
        _said("gptq", bits=4, group_size=128, desc_act=True),
    ),
    "AWQ": (_awq, _said("awq", bits=4, group_size=128, version="gemm")),
    "compressed-tensors, 4 bits": (_compressed, _said("compressed-tensors")),
    "MLX, 4 bits": (_mlx(4), {"quantization": {"group_size": 64, "bits": 4}}),
    "NVFP4": (_nvfp4, _said("modelopt", quant_algo="NVFP4")),
    "MXFP4": (_mxfp4, _said("compressed-tensors", format="mxfp4-pack-quantized")),
    "nf4": (_nf4(nested=False), _said("bitsandbytes", load_in_4bit=True)),
    "nf4, scales nested": (_nf4(nested=True), _said("bitsandbytes", load_in_4bit=True)),
    "GPTQ, 3 bits": (_gptq(3), _said("gptq", bits=3, group_size=128)),
}
"""How a matrix is packed, and what a configuration says of it, by the name of the scheme."""

BITS: Final = {
    name: 8 if "8" in name.split(",")[0] or "8 bits" in name else 3 if "3 bits" in name else 4
    for name in SCHEMES
}
"""The bits of a code."""
