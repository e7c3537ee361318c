"""Index arrays: their dtype, their range and the largest number of parameters."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter, InvalidSupport, SpaceMismatch

__all__ = [
    "MAX_PARAMETERS",
    "IndexArray",
    "as_integers",
    "check_num_parameters",
    "check_same_space",
    "index_dtype",
]


IndexArray = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


MAX_PARAMETERS = 2**63 - 1
"""The largest index space: counts travel as signed 64-bit integers, through databases too."""


def index_dtype(num_parameters: int) -> np.dtype[np.uint32] | np.dtype[np.uint64]:
    """The dtype of indices into M parameters: uint32 up to M = 2^32, uint64 beyond."""
    return np.dtype(np.uint32) if num_parameters <= 2**32 else np.dtype(np.uint64)


def check_num_parameters(num_parameters: Any) -> int:
    """M as an int, or :class:`InvalidParameter`."""
    try:
        m = operator.index(num_parameters)
    except TypeError:
        raise InvalidParameter(
            f"num_parameters must be an integer, not {type(num_parameters).__name__}",
            field="num_parameters",
        ) from None
    if isinstance(num_parameters, bool) or not 1 <= m <= MAX_PARAMETERS:
        raise InvalidParameter(
            f"num_parameters must be 1 to 2^63 - 1, not {num_parameters}", field="num_parameters"
        )
    return m


def check_same_space(num_parameters_a: int, num_parameters_b: int) -> None:
    """Refuse to compare supports of different spaces: an error, not a similarity of zero."""
    if num_parameters_a != num_parameters_b:
        raise SpaceMismatch(
            f"supports of {num_parameters_a} and {num_parameters_b} parameters are of different "
            f"spaces and cannot be compared"
        )


def as_integers(indices: Any) -> npt.NDArray[np.integer[Any]]:
    """An array of an integer dtype from any integers; floats and booleans are refused."""
    try:
        if hasattr(indices, "detach") and hasattr(indices, "cpu"):  # a tensor, without torch
            indices = indices.detach().cpu().numpy()
        array = np.asarray(indices)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidSupport(
            f"indices are not an array of integers: {error}", field="indices"
        ) from error
    if array.size == 0 or array.dtype.kind in "iu":
        return array if array.dtype.kind in "iu" else array.astype(np.int64)
    if array.dtype.kind in "Of" and array.ndim == 1 and not isinstance(indices, np.ndarray):
        # numpy turns Python integers beyond 64 bits into objects, and mixes around 2^63 into
        # floats.
        flat = list(indices)
        if all(isinstance(i, int) and not isinstance(i, bool) for i in flat):
            wide = [i for i in flat if not 0 <= i <= MAX_PARAMETERS]
            if wide:
                raise InvalidSupport(f"index {wide[0]} does not fit 0 to 2^63 - 1", field="indices")
            return np.array(flat, dtype=np.uint64)
    raise InvalidSupport(f"indices must be integers, these are {array.dtype}", field="indices")
