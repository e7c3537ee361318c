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
    "check_indices",
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


def as_integers(indices: Any, name: str = "indices") -> npt.NDArray[np.integer[Any]]:
    """An array of an integer dtype from any integers; floats and booleans are refused.

    Args:
        indices: the integers.
        name: the argument's name, for errors.
    """
    try:
        if hasattr(indices, "detach") and hasattr(indices, "cpu"):  # a tensor, without torch
            indices = indices.detach().cpu().numpy()
        array = np.asarray(indices)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidSupport(f"{name} are not an array of integers: {error}", field=name) from error
    if array.size == 0 or array.dtype.kind in "iu":
        return array if array.dtype.kind in "iu" else array.astype(np.int64)
    if array.dtype.kind in "Of" and array.ndim == 1 and not isinstance(indices, np.ndarray):
        # numpy turns Python integers beyond 64 bits into objects, and mixes around 2^63 into
        # floats.
        flat = list(indices)
        if all(isinstance(i, int) and not isinstance(i, bool) for i in flat):
            wide = [i for i in flat if not 0 <= i <= MAX_PARAMETERS]
            if wide:
                raise InvalidSupport(f"{wide[0]} in {name} does not fit 0 to 2^63 - 1", field=name)
            return np.array(flat, dtype=np.uint64)
    raise InvalidSupport(f"{name} must be integers, these are {array.dtype}", field=name)


def check_indices(indices: Any, num_parameters: int) -> IndexArray:
    """Check the indices of a support, and copy them in the dtype of M.

    Raises:
        InvalidSupport: empty, not integers, not one-dimensional, unsorted, repeated or out of
            range.
    """
    array = as_integers(indices)
    if array.ndim != 1:
        raise InvalidSupport(
            f"indices must be one-dimensional, these have shape {array.shape}", field="indices"
        )
    if array.size == 0:
        raise InvalidSupport(
            "a support needs at least one index, this one is empty", field="indices"
        )
    # Signedness and range are settled on the original dtype: a cast would wrap -1 into range.
    ascending = array[1:] > array[:-1]
    if not ascending.all():
        at = int(np.argmin(ascending))
        a, b = int(array[at]), int(array[at + 1])
        wrong = "repeated" if a == b else "not sorted"
        raise InvalidSupport(
            f"indices are {wrong}: indices[{at}] = {a} is followed by {b}; "
            f"pass np.unique(indices) if they are meant as a set",
            field="indices",
        )
    if int(array[0]) < 0:
        raise InvalidSupport(f"indices[0] = {int(array[0])} is negative", field="indices")
    if int(array[-1]) >= num_parameters:
        raise InvalidSupport(
            f"indices[{array.size - 1}] = {int(array[-1])} is out of range for {num_parameters} "
            f"parameters",
            field="indices",
        )
    checked: Any = array.astype(index_dtype(num_parameters), copy=True)
    return checked  # type: ignore[no-any-return]
