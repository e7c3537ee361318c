"""The arrays of a model by name, in the records of Flower."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.shards.messages import read
from modelkin.integrations.flower._arrays import values_of

__all__ = ["layout_of", "part_of", "values_by_name"]


def layout_of(arrays: ArrayRecord) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The layout of a model's arrays."""
    return {name: (array.dtype, tuple(array.shape)) for name, array in arrays.items()}


def part_of(arrays: ArrayRecord, names: Iterable[str]) -> ArrayRecord:
    """Some arrays, in the order of the model."""
    wanted = set(names)
    return ArrayRecord({name: arrays[name] for name in arrays if name in wanted})


def values_by_name(arrays: ArrayRecord) -> dict[str, npt.NDArray[Any]]:
    """The values of all arrays.

    Raises:
        InvalidParameter: an array is damaged.
    """

    return {
        name: read("its arrays", partial(_check_array, array)) for name, array in arrays.items()
    }


def _check_array(array: Array) -> npt.NDArray[Any]:
    found = values_of(array)
    if tuple(array.shape) != found.shape:
        raise InvalidParameter(
            f"an array says shape {tuple(array.shape)} and has {found.shape}", field="arrays"
        )
    return found
