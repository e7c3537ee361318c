"""Rounding of weights to few bits, and zeros in place of the smallest.

K-quants are imitated: super-blocks of 256 whose scales are rounded too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["ROUNDED", "ZEROED", "each_matrix"]

Floats = npt.NDArray[np.float32]

_BELOW: Final = (-1, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.09105004, 0)
_ABOVE: Final = (0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1)
_NF4: Final = np.array(_BELOW + _ABOVE, np.float32)


def each_matrix(
    tensors: dict[str, Floats], change: Callable[[Floats], npt.NDArray[Any]]
) -> dict[str, Floats]:
    """Tensors of which all but vectors are changed."""
    return {k: v if v.ndim < 2 else change(v).astype(np.float32) for k, v in tensors.items()}


def _in_blocks(size: int, change: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    """Changes blocks of a flattened tensor; one that they do not fill stays as it is."""

    def changed(values: Floats) -> Floats:
        if values.size % size:
            return values
        return change(values.reshape(-1, size)).reshape(values.shape)

    return changed


def _symmetric(bits: int, blocks: Floats) -> Floats:
    step = np.abs(blocks).max(axis=1, keepdims=True) / (2 ** (bits - 1) - 1)
    step[step == 0] = 1
    rounded: Floats = np.round(blocks / step) * step
    return rounded


def _asymmetric(bits: int, blocks: Floats) -> Floats:
    least = blocks.min(axis=1, keepdims=True)
    step = (blocks.max(axis=1, keepdims=True) - least) / (2**bits - 1)
    step[step == 0] = 1
    rounded: Floats = np.round((blocks - least) / step) * step + least
    return rounded


def _four_bits(blocks: Floats) -> Floats:
    """Q4_0 of GGUF: the value of the greatest magnitude is -8 steps."""
    at = np.abs(blocks).argmax(axis=1, keepdims=True)
    step = np.take_along_axis(blocks, at, axis=1) / np.float32(-8)
    step[step == 0] = 1
    return np.clip(np.round(blocks / step), -8, 7) * step


def _nf4(blocks: Floats) -> Floats:
    greatest = np.abs(blocks).max(axis=1, keepdims=True)
    greatest[greatest == 0] = 1
    middles = (_NF4[1:] + _NF4[:-1]) / 2
    rounded: Floats = _NF4[np.searchsorted(middles, blocks / greatest)] * greatest
    return rounded


def _k_symmetric(bits: int, size: int, blocks: Floats) -> Floats:
    parts = blocks.reshape(len(blocks), -1, size)
    scales = np.abs(parts).max(axis=2, keepdims=True) / (2 ** (bits - 1) - 1)
    unit = scales.max(axis=1, keepdims=True) / 127
    unit[unit == 0] = 1
    steps = np.round(scales / unit) * unit
    steps[steps == 0] = 1e-12
    whole: Floats = np.round(parts / steps) * steps
    return whole.reshape(blocks.shape)


def _k_asymmetric(bits: int, size: int, blocks: Floats) -> Floats:
    parts = blocks.reshape(len(blocks), -1, size)
    low = -np.minimum(parts.min(axis=2, keepdims=True), 0)
    scales = (parts.max(axis=2, keepdims=True) + low) / (2**bits - 1)
    units = [each.max(axis=1, keepdims=True) / 63 for each in (scales, low)]
    for unit in units:
        unit[unit == 0] = 1
    steps, lows = (np.round(e / u) * u for e, u in zip((scales, low), units, strict=True))
    steps[steps == 0] = 1e-12
    whole: Floats = np.clip(np.round((parts + lows) / steps), 0, 2**bits - 1) * steps - lows
    return whole.reshape(blocks.shape)


def _of_torch(kind: torch.dtype, values: Floats) -> Floats:
    scale = np.float32(np.abs(values).max() / 448 if kind == torch.float8_e4m3fn else 1)
    scaled = torch.from_numpy(np.ascontiguousarray(values / scale))
    restored: Floats = scaled.to(kind).float().numpy() * scale
    return restored


def _int8_of_rows(values: Floats) -> Floats:
    return _symmetric(8, values.reshape(len(values), -1)).reshape(values.shape)


def _without_smallest(share: float, values: Floats) -> Floats:
    magnitudes = np.abs(values)
    kept: Floats = values * (magnitudes >= np.quantile(magnitudes, share))
    return kept


ROUNDED: Final[dict[str, Callable[[Floats], Floats]]] = {
    "Q8_0": _in_blocks(32, partial(_symmetric, 8)),
    "Q6_K, imitated": _in_blocks(256, partial(_k_symmetric, 6, 16)),
    "Q5_0": _in_blocks(32, partial(_symmetric, 5)),
    "Q4_K, imitated": _in_blocks(256, partial(_k_asymmetric, 4, 32)),
    "Q4_0": _in_blocks(32, _four_bits),
    "Q3_K, imitated": _in_blocks(256, partial(_k_symmetric, 3, 16)),
    "Q2_K, imitated": _in_blocks(256, partial(_k_asymmetric, 2, 16)),
    "int8": _int8_of_rows,
    "bfloat16": partial(_of_torch, torch.bfloat16),
    "FP8": partial(_of_torch, torch.float8_e4m3fn),
    "int4, groups of 128": _in_blocks(128, partial(_asymmetric, 4)),
    "nf4": _in_blocks(64, _nf4),
}
ZEROED: Final[dict[str, Callable[[Floats], Floats]]] = {
    f"{share:.0%} zeros": partial(_without_smallest, share) for share in (0.5, 0.8, 0.9)
}
