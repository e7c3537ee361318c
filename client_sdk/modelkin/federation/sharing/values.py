"""Sources of a party's values, and sinks of the average: arrays, or files in stretches."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["ArraySink", "ArrayValues", "ValueSink", "ValueSource", "source_of"]

Floats = npt.NDArray[np.float32]


class ValueSource(Protocol):
    """The values of a model, read in stretches."""

    @property
    def num_parameters(self) -> int:
        """M."""

    def read(self, start: int, stop: int) -> Floats:
        """The values of some parameters, as float32."""

    def fingerprint(self) -> str:
        """A text that changes with the values, as far as that shows without reading them."""


class ValueSink(Protocol):
    """A sink that takes an average, in stretches."""

    def write(self, start: int, values: Floats) -> None:
        """Keep the average of the parameters from ``start`` on."""

    def finish(self) -> None:
        """Make the average last: all of it has been written."""

    def discard(self) -> None:
        """Leave nothing behind: there is no average."""


class ArrayValues:
    """Values in memory.

    Args:
        values: a vector of numbers; it is copied, since it may change while a party waits.

    Raises:
        InvalidParameter: another shape or type.
    """

    def __init__(self, values: Any) -> None:
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "fiu":
            raise InvalidParameter(
                f"values must be a vector of numbers, not {array.dtype} of {array.shape}",
                field="values",
            )
        self._values = np.array(array, np.float32, order="C")
        self._fingerprint = hashlib.sha256(self._values.data).hexdigest()

    @property
    def num_parameters(self) -> int:
        return self._values.size

    def read(self, start: int, stop: int) -> Floats:
        return self._values[start:stop]

    def fingerprint(self) -> str:
        return self._fingerprint


class ArraySink:
    """A sink that keeps the average in memory.

    Args:
        num_parameters: M.

    Attributes:
        values: the average, shape ``(M,)``.
    """

    def __init__(self, num_parameters: int) -> None:
        self.values = np.zeros(num_parameters, np.float32)

    def write(self, start: int, values: Floats) -> None:
        self.values[start : start + values.size] = values

    def finish(self) -> None:
        """Do nothing: the average is in memory."""

    def discard(self) -> None:
        """Do nothing: no file was written."""


def source_of(values: Any) -> ValueSource:
    """The source of an array or tensor, or the source itself."""
    if hasattr(values, "fingerprint") and hasattr(values, "read"):
        source: ValueSource = values
        return source
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return ArrayValues(values)
