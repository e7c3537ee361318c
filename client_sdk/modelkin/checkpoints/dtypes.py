"""The element types of safetensors, and the conversion of floats to numpy's types.

A conversion is exact: every half and 8-bit float is a float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.safetensors_header import BITS

__all__ = ["BITS", "FLOATS", "INTEGERS", "UNREADABLE", "decode"]

Bytes = npt.NDArray[np.uint8]

UNREADABLE: Final = {
    "F4": "packs values of 4 bits whose scales are elsewhere",
    "F6_E2M3": "packs values of 6 bits whose scales are elsewhere",
    "F6_E3M2": "packs values of 6 bits whose scales are elsewhere",
    "F8_E8M0": "holds scales, powers of two, of values that are elsewhere",
    "C64": "holds complex numbers",
}
"""The types that are not parameters by themselves, and why."""


def _table(exponent_bits: int, mantissa_bits: int, bias: int, nan: Callable[[int], bool]) -> Any:
    """The 256 values of an 8-bit float as float32."""
    table = np.empty(256, np.float32)
    for code in range(256):
        exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
        fraction = code & (1 << mantissa_bits) - 1
        significand = fraction + ((1 << mantissa_bits) if exponent else 0)
        magnitude = significand * 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
        table[code] = np.nan if nan(code) else -magnitude if code & 128 else magnitude
    return table


def _e5m2() -> Any:
    """Return the value of E5M2 bits, as in IEEE 754: the largest exponent is infinity and NaN."""
    table = _table(5, 2, 15, lambda code: code & 0x7F > 0x7C)
    table[[0x7C, 0xFC]] = np.inf, -np.inf
    return table


_TABLES: Final = {
    # Source: Micikevicius et al. 2022, arXiv:2209.05433, table 1.
    "F8_E4M3": _table(4, 3, 7, lambda code: code & 0x7F == 0x7F),
    "F8_E5M2": _e5m2(),
    # Source: Noune et al. 2022, arXiv:2206.02915: no infinity, NaN in place of -0, one more bias.
    "F8_E4M3FNUZ": _table(4, 3, 8, lambda code: code == 0x80),
    "F8_E5M2FNUZ": _table(5, 2, 16, lambda code: code == 0x80),
}


def _plain(dtype: str) -> Callable[[Bytes], npt.NDArray[Any]]:
    return lambda raw: raw.view(dtype)


def _half(raw: Bytes) -> npt.NDArray[Any]:
    return raw.view("<f2").astype(np.float32)


def _bfloat16(raw: Bytes) -> npt.NDArray[Any]:
    """The upper half of a float32."""
    return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _table_decoder(name: str) -> Callable[[Bytes], npt.NDArray[Any]]:
    return lambda raw: _TABLES[name].take(raw)


FLOATS: Final[dict[str, Callable[[Bytes], npt.NDArray[Any]]]] = {
    "F64": _plain("<f8"),
    "F32": _plain("<f4"),
    "F16": _half,
    "BF16": _bfloat16,
    **{name: _table_decoder(name) for name in _TABLES},
}
"""The types of parameters, and the functions that read their little-endian bytes."""


INTEGERS: Final[dict[str, Callable[[Bytes], npt.NDArray[Any]]]] = {
    f"{sign}{8 * size}": _plain(f"<{sign.lower()}{size}") for sign in "IU" for size in (1, 2, 4, 8)
}
"""The types of integers, which are no parameters by themselves."""


def decode(raw: Bytes, dtype: str) -> npt.NDArray[Any]:
    """The values of a stretch of a tensor, exactly.

    Args:
        raw: whole elements, uint8, shape ``(n * itemsize,)``.
        dtype: one of :data:`FLOATS` or :data:`INTEGERS`.

    Returns:
        Shape ``(n,)``: float64 for ``F64``, integers of their own type, else float32; it may share
        ``raw``'s memory.
    """
    return (FLOATS.get(dtype) or INTEGERS[dtype])(raw)
