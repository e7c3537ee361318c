"""Models of Flower as one vector, in the order in which the server holds their arrays."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from modelkin.errors import InvalidParameter
from modelkin.integrations.federation.cluster_means import Model, rounded
from modelkin.integrations.federation.shards import vectors

__all__ = ["add_update", "average", "check_arrays", "difference", "num_values", "only", "put_back"]

Floats = npt.NDArray[np.float32]


def num_values(arrays: ArrayRecord) -> int:
    """Count the values of all arrays, M."""
    return sum(math.prod(array.shape) for array in arrays.values())


def check_arrays(arrays: ArrayRecord) -> None:
    """Check that arrays can be averaged.

    Raises:
        InvalidParameter: an array holds neither floating-point nor whole numbers, or there is no
            value.
    """
    vectors.check_kinds({name: np.dtype(array.dtype) for name, array in arrays.items()})
    if num_values(arrays) < 1:
        raise InvalidParameter("the model has no values", field="arrays")


def difference(local: ArrayRecord, received: ArrayRecord) -> Floats:
    """The update: trained arrays minus received ones, shape ``(num_values,)``.

    Raises:
        InvalidParameter: names or shapes differ, or an array is not of numbers.
    """
    return vectors.difference(_model(local), _model(received))


def values_of(array: Array) -> npt.NDArray[Any]:
    """The values of an array, not to be changed: they are a view of its bytes."""
    if array.stype != "numpy.ndarray":
        return array.numpy()
    stream = io.BytesIO(array.data)
    if np.lib.format.read_magic(stream) != (1, 0):
        return array.numpy()
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise InvalidParameter("an array holds objects, and no numbers", field="arrays")
    values = np.frombuffer(array.data, dtype, math.prod(shape), stream.tell())
    return values.reshape(shape, order="F" if fortran else "C")


def add_update(arrays: ArrayRecord, update: Floats) -> ArrayRecord:
    """Add an update to arrays; arrays of whole numbers are rounded."""
    found = vectors.add_update(_model(arrays), update)
    return ArrayRecord({name: Array(values) for name, values in found.items()})


def average(records: Sequence[ArrayRecord], weights: Sequence[float]) -> ArrayRecord:
    """The weighted mean of models of one layout, in float64; equal models come back as they are."""
    if all(record is records[0] for record in records):
        return records[0]
    found = vectors.average([_model(record) for record in records], weights)
    return ArrayRecord({name: Array(values) for name, values in found.items()})


def _model(arrays: ArrayRecord) -> Model:
    """The arrays as views, not to be changed."""
    return {name: values_of(array) for name, array in arrays.items()}


def put_back(new: ArrayRecord, old: ArrayRecord, kept: Sequence[npt.NDArray[np.int64]]) -> None:
    """Give arrays the types that they had before, and some coordinates their old values."""
    coordinates = np.sort(np.concatenate(kept)) if kept else np.empty(0, np.int64)
    at = 0
    for name, before in old.items():
        values, size = new[name].numpy(), math.prod(before.shape)
        low, high = np.searchsorted(coordinates, [at, at + size])
        if values.dtype != np.dtype(before.dtype) or low < high:
            was = before.numpy()
            values = np.array(rounded(values, was.dtype))
            values.reshape(-1)[coordinates[low:high] - at] = was.reshape(-1)[
                coordinates[low:high] - at
            ]
            new[name] = Array(values)
        at += size


def only(records: Mapping[str, ArrayRecord]) -> tuple[str, ArrayRecord]:
    """The name and content of the one record of arrays.

    Raises:
        InvalidParameter: there is no record of arrays, or several.
    """
    if len(records) != 1:
        raise InvalidParameter(
            f"a message of the training has {len(records)} records of arrays, not one",
            field="arrays",
        )
    return next(iter(records.items()))
