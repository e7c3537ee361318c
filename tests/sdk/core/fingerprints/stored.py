"""The planted transformer as files hold it: rounded, cut, split, laundered, averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tests.sdk.core.fingerprints.planted import HIDDEN, LAYERS, WIDTH, Tensors, model

Change = Callable[[Tensors], Tensors]

_WRITES: Final = ("o", "down")
"""The matrices whose rows are the residual stream; it is the columns of all others."""
_NF4: Final = np.array(
    [
        *(-1, -0.696, -0.525, -0.395, -0.284, -0.185, -0.091, 0),
        *(0.08, 0.161, 0.246, 0.338, 0.441, 0.563, 0.723, 1),
    ],
    np.float32,
)


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _matrices(change: Callable[[Any], Any]) -> Change:
    return lambda base: {k: change(v) if v.ndim == 2 else v for k, v in base.items()}


def _symmetric(bits: int, block: int) -> Change:
    """Blocks with a step each, as Q8_0, Q6_K, Q5_0, Q4_0 and Q3_K have."""

    def rounded(values: Any) -> Any:
        blocks = values.reshape(-1, block)
        step = np.abs(blocks).max(1, keepdims=True) / (2 ** (bits - 1) - 1)
        return (np.round(blocks / step) * step).reshape(values.shape)

    return _matrices(rounded)


def _from_least(bits: int, block: int) -> Change:
    """Blocks with a least value and a step each, as Q4_K, Q2_K and GPTQ have."""

    def rounded(values: Any) -> Any:
        blocks = values.reshape(-1, block)
        least = blocks.min(1, keepdims=True)
        step = (blocks.max(1, keepdims=True) - least) / (2**bits - 1)
        return (np.round((blocks - least) / step) * step + least).reshape(values.shape)

    return _matrices(rounded)


def _nf4(values: Any) -> Any:
    blocks = values.reshape(-1, 64)
    greatest = np.abs(blocks).max(1, keepdims=True)
    nearest = np.abs((blocks / greatest)[:, :, None] - _NF4).argmin(2)
    return (_NF4[nearest] * greatest).reshape(values.shape)


def _fp8(values: Any) -> Any:
    """Three bits of mantissa, the greatest magnitude at 448, and denormals below 2^-6."""
    scale = np.float32(448 / np.abs(values).max())
    exponents = np.maximum(np.floor(np.log2(np.abs(values * scale) + 1e-30)), -6)
    step = np.exp2(exponents - 3).astype(np.float32)
    return np.round(values * scale / step) * step / scale


def _bfloat16(values: Any) -> Any:
    return (values.view(np.uint32) + 0x8000 & np.uint32(0xFFFF0000)).view(np.float32)


def _part(number: int, parts: int) -> Change:
    """What one of some devices holds: hidden units and heads are divided, the stream is not."""

    def part(base: Tensors) -> Tensors:
        halves = {}
        for name, values in base.items():
            axis = 1 if _kind(name) in _WRITES else 0
            halves[name] = np.split(values, parts, axis)[number] if values.ndim == 2 else values
        return halves

    return part


def _new_head(base: Tensors) -> Tensors:
    head = np.random.default_rng(11).standard_normal((70, WIDTH), np.float32)
    return {f"model.{name}": values for name, values in base.items()} | {"score": head}


def _fewer_layers(base: Tensors) -> Tensors:
    return {k: v for k, v in base.items() if not k.startswith(("layers.1", "layers.2"))}


def _narrow_units(base: Tensors) -> Tensors:
    tensors = dict(base)
    for i in range(LAYERS):
        kept = np.sort(np.random.default_rng(i).permutation(HIDDEN)[:240])
        tensors[f"layers.{i}.up"] = base[f"layers.{i}.up"][kept]
        tensors[f"layers.{i}.down"] = base[f"layers.{i}.down"][:, kept]
    return tensors


def _of_stream(base: Tensors, change: Callable[[Any], Any]) -> Tensors:
    """Change the residual stream: the last axis, in what reads it."""
    return {
        name: change(values.T).T if _kind(name) in _WRITES else change(values)
        for name, values in base.items()
        if values.ndim == 2
    }


def _narrow_stream(base: Tensors) -> Tensors:
    kept = np.sort(np.random.default_rng(12).permutation(WIDTH)[:96])
    return _of_stream(base, lambda values: values[:, kept])


def _rotated(base: Tensors) -> Tensors:
    normal = np.random.default_rng(13).standard_normal((WIDTH, WIDTH))
    rotation = np.linalg.qr(normal)[0].astype(np.float32)
    return _of_stream(base, lambda values: values @ rotation)


def _rescaled(base: Tensors) -> Tensors:
    """Gains go into what reads them, and each unit's scale from one matrix into the other."""
    draw, tensors = np.random.default_rng(14), dict(base)
    for i in range(LAYERS):
        gains = draw.lognormal(0, 1, WIDTH).astype(np.float32)
        units = draw.lognormal(0, 1, (HIDDEN, 1)).astype(np.float32)
        for kind in "qkv":
            tensors[f"layers.{i}.{kind}"] = base[f"layers.{i}.{kind}"] * gains
        tensors[f"layers.{i}.up"] = base[f"layers.{i}.up"] * gains * units
        tensors[f"layers.{i}.down"] = base[f"layers.{i}.down"] / units.T
    return tensors


def _permuted_values(base: Tensors) -> Tensors:
    tensors = dict(base)
    for i in range(LAYERS):
        order = np.random.default_rng(i).permutation(WIDTH)
        tensors[f"layers.{i}.v"] = base[f"layers.{i}.v"][order]
        tensors[f"layers.{i}.o"] = base[f"layers.{i}.o"][:, order]
    return tensors


def _averaged(share: float) -> Change:
    """With a stranger."""
    own, others = np.float32(share), np.float32(1 - share)

    def averaged(base: Tensors) -> Tensors:
        stranger = model(5)
        return {name: own * base[name] + others * stranger[name] for name in base}

    return averaged


STORED: Final[dict[str, Change]] = {
    "Q8_0": _symmetric(8, 32),
    "Q6_K": _symmetric(6, 16),
    "Q5_0": _symmetric(5, 32),
    "Q4_K": _from_least(4, 32),
    "Q4_0": _symmetric(4, 32),
    "Q3_K": _symmetric(3, 16),
    "Q2_K": _from_least(2, 16),
    "int4 of 128": _from_least(4, 128),
    "nf4": _matrices(_nf4),
    "fp8": _matrices(_fp8),
    "bf16": _matrices(_bfloat16),
    "half": _part(0, 2),
    "quarter": _part(1, 4),
    "new head": _new_head,
    "fewer layers": _fewer_layers,
    "narrow units": _narrow_units,
    "narrow stream": _narrow_stream,
    "rescaled": _rescaled,
    "permuted values": _permuted_values,
    "average .9": _averaged(0.9),
    "average .8": _averaged(0.8),
    "average .7": _averaged(0.7),
    "average .5": _averaged(0.5),
    "rotated": _rotated,
}
"""What the files of a hub hold of a base, by name."""
