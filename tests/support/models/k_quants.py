"""Blocks of Q4_K and Q6_K, rounded to nearest: the package ``gguf`` reads them and writes none.

llama.cpp searches for better scales, so that its files are a little nearer to their originals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["q4_k", "q6_k"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.floating[Any]]


def q6_k(values: Floats) -> Bytes:
    """Blocks of 256 values: 16 scales of 8 bits, values of 6 bits; shape ``(blocks, 210)``."""
    parts = values.reshape(-1, 16, 16).astype(np.float32)
    scales = np.abs(parts).max(2) / 31
    factor = _half(scales.max(1, keepdims=True) / 127)
    small = np.clip(np.round(scales / factor), 0, 127).astype(np.int8)
    step = _no_zero(factor * small)
    codes = (np.clip(np.round(parts / step[..., None]), -32, 31) + 32).astype(np.uint8)
    codes = codes.reshape(-1, 2, 4, 32)
    count = len(codes)
    low = np.empty((count, 2, 2, 32), np.uint8)
    low[:, :, 0] = (codes[:, :, 0] & 15) | (codes[:, :, 2] << 4)
    low[:, :, 1] = (codes[:, :, 1] & 15) | (codes[:, :, 3] << 4)
    top = codes >> 4
    high = top[:, :, 0] | top[:, :, 1] << 2 | top[:, :, 2] << 4 | top[:, :, 3] << 6
    both = (low.reshape(count, 128), high.reshape(count, 64), small.view(np.uint8), _raw(factor))
    return np.concatenate(both, axis=1)


def q4_k(values: Floats) -> Bytes:
    """Blocks of 256 values: 8 scales and minima of 6 bits, values of 4; shape ``(blocks, 144)``."""
    parts = values.reshape(-1, 8, 32).astype(np.float32)
    lowest = np.minimum(parts.min(2), 0)
    scales = (parts.max(2) - lowest) / 15
    factor = _half(scales.max(1, keepdims=True) / 63)
    least = _half((-lowest).max(1, keepdims=True) / 63)
    s = np.clip(np.round(scales / factor), 0, 63).astype(np.uint8)
    m = np.clip(np.round(-lowest / least), 0, 63).astype(np.uint8)
    above = (parts + (least * m)[..., None]) / _no_zero(factor * s)[..., None]
    codes = np.clip(np.round(above), 0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    count = len(codes)
    packed = np.empty((count, 12), np.uint8)
    packed[:, 0:4] = (s[:, :4] & 63) | ((s[:, 4:] >> 4) << 6)
    packed[:, 4:8] = (m[:, :4] & 63) | ((m[:, 4:] >> 4) << 6)
    packed[:, 8:12] = (s[:, 4:] & 15) | ((m[:, 4:] & 15) << 4)
    pairs = (codes[:, :, 0] | (codes[:, :, 1] << 4)).reshape(count, 128)
    return np.concatenate((_raw(factor), _raw(least), packed, pairs), axis=1)


def _half(values: Floats) -> Floats:
    """As they are stored, in half precision."""
    return _no_zero(values.astype(np.float16).astype(np.float32))


def _no_zero(values: Floats) -> Floats:
    return np.where(values == 0, np.float32(1), values)


def _raw(values: Floats) -> Bytes:
    return values.astype(np.float16).view(np.uint8)
