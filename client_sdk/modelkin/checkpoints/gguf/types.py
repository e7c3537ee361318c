"""The types of GGUF's values, from the package ``gguf``: their blocks, and the values of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from types import ModuleType
from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.checkpoints.dtypes import FLOATS, decode
from modelkin.checkpoints.header import bad_checkpoint
from modelkin.core.quoting import quote
from modelkin.errors import MissingExtra

__all__ = ["QuantType", "load_gguf", "quant_type", "quant_types"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

_VALUES_A_CALL: Final = 1 << 15
"""Values that the package has in memory at a time: their temporaries stay in the cache."""
_GROUP: Final = 16
"""Rows that ``gguf.dequantize`` takes at a time."""
_REMOVED: Final = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}
"""The types that ggml once had (ggml.h, ``enum ggml_type``)."""


@dataclass(frozen=True, slots=True)
class QuantType:
    """A type of values in blocks.

    Attributes:
        name: such as ``Q4_K`` or ``F16``.
        block_size: the values of a block; 1 for plain numbers.
        block_bytes: its bytes.
        values: a function of whole blocks that gives their values; None for integers.
    """

    name: str
    block_size: int
    block_bytes: int
    values: Callable[[Bytes], npt.NDArray[np.floating]] | None

    @property
    def is_quantised(self) -> bool:
        """Whether its values are approximations of others."""
        return self.block_size > 1

    @property
    def bits(self) -> float:
        """The bits of a value."""
        return 8 * self.block_bytes / self.block_size

    def size_of(self, shape: tuple[int, ...]) -> int:
        """The bytes of a tensor of this type."""
        return prod(shape) // self.block_size * self.block_bytes


def load_gguf() -> ModuleType:
    """The package ``gguf``.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import gguf
    except ImportError:
        raise MissingExtra("gguf", "gguf") from None
    return gguf


def quant_type(number: int, tensor: str, where: str) -> QuantType:
    """The type of a number in a header.

    Args:
        number: as GGUF numbers types.
        tensor: the tensor of this type, and ``where`` its file, for errors.

    Raises:
        InvalidCheckpoint: there is no such type, or the package does not read it.
        MissingExtra: the package ``gguf`` is not installed.
    """
    found = quant_types().get(number)
    if found is None:
        name = _REMOVED.get(number)
        what = f"type {number}" if name is None else f"{name}, which ggml has taken out"
        raise bad_checkpoint(
            where,
            f"tensor {quote(tensor)} is of {what}: quantise the model again, as Q8_0 or Q4_K_M",
        )
    if isinstance(found, str):
        raise bad_checkpoint(
            where,
            f"tensor {quote(tensor)} is {found}, which the package gguf does not read: give the "
            f"model in another type, such as Q8_0",
        )
    return found


@cache
def quant_types() -> dict[int, QuantType | str]:
    """All types by number; those that the package cannot read by their names alone."""
    package = load_gguf()
    types: dict[int, QuantType | str] = {}
    for kind, (block_size, block_bytes) in package.GGML_QUANT_SIZES.items():
        values = _reader(kind.name, block_size, block_bytes)
        readable = values is not None or block_size == 1  # integers are no parameters
        found = QuantType(kind.name, block_size, block_bytes, values)
        types[int(kind)] = found if readable else kind.name
    return types


def _reader(
    name: str, block_size: int, block_bytes: int
) -> Callable[[Bytes], npt.NDArray[np.floating]] | None:
    """The function that reads blocks of a type; None if there is none."""
    if name in FLOATS:
        return lambda raw: decode(raw, name)
    package = load_gguf()
    kind = package.GGMLQuantizationType[name]
    try:
        package.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
    except (NotImplementedError, KeyError):
        return None
    wide = max(_VALUES_A_CALL // _GROUP // block_size, 1) * block_bytes

    def values(raw: Bytes) -> Floats:
        """The values of whole blocks; rows are as long as is fast, and not the tensor's."""
        whole = raw.size // wide * wide
        with np.errstate(all="ignore"):  # damaged scales are infinite: readers of values refuse
            parts = [
                package.dequantize(part.reshape(-1, width), kind).ravel()
                for part, width in ((raw[:whole], wide), (raw[whole:], block_bytes))
                if part.size
            ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    return values
