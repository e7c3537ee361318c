"""A position in bytes that never leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from studies.real.errors import InvalidFile

__all__ = ["Cursor", "Tensor", "Tensors", "floats", "shaped"]

Tensor = npt.NDArray[np.float32]
Tensors = dict[str, Tensor]
"""By name, in the order of the file."""

_MAX_DIMENSIONS: Final = 16


class Cursor:
    """Little-endian numbers and arrays, one after another.

    Args:
        data: what is read.
        at: where it begins.
    """

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self._data = memoryview(data)
        self.at = at
        self._room(0)

    @property
    def left(self) -> int:
        """Bytes until the end."""
        return len(self._data) - self.at

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        self._room(count)
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, size: int) -> int:
        """An unsigned number of this many bytes."""
        return int.from_bytes(self.take(size), "little")

    def array(self, dtype: str, count: int) -> Tensor:
        """Numbers of a floating type as float32; a view where they are float32 already."""
        return floats(self.take(count * np.dtype(dtype).itemsize), dtype)

    def _room(self, count: int) -> None:
        if count < 0 or not 0 <= self.at <= len(self._data) - count:
            raise InvalidFile(f"truncated: {count:,} bytes expected at {self.at:,}")


def floats(data: bytes | memoryview, dtype: str) -> Tensor:
    """All of some bytes as float32.

    Raises:
        InvalidFile: they are not a whole number of values.
    """
    if len(data) % np.dtype(dtype).itemsize:
        raise InvalidFile(f"{len(data):,} bytes are not a whole number of {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # a damaged float64 may be beyond float32
        return np.frombuffer(data, dtype).astype(np.float32, copy=False)


def shaped(values: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """Values in their shape.

    Raises:
        InvalidFile: it is of another size.
    """
    if len(shape) > _MAX_DIMENSIONS or min(shape, default=1) < 0 or prod(shape) != values.size:
        raise InvalidFile(f"{name}: {values.size:,} values for the shape {tuple(shape)[:20]}")
    try:
        return values.reshape(tuple(shape))
    except ValueError:  # without values, and with dimensions that no array has
        raise InvalidFile(f"{name}: no array has the shape {tuple(shape)}") from None
