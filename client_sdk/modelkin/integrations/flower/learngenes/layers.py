"""The arrays of a model that are its learngene, and those also shared while sharing tightens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.layers import LayerChoice, layers_of
from modelkin.integrations.flower._arrays import values_of
from modelkin.integrations.flower.shards.records import read

__all__ = ["Learngene", "layout_of", "part_of", "values_by_name"]

Layout = Mapping[str, tuple[str, tuple[int, ...]]]
"""The dtype and the shape of each array, in the order of the model."""

_STATISTICS: Final = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, slots=True)
class Learngene:
    """The arrays of a learngene, in the order of the model.

    Attributes:
        names: the arrays by name, in the model's order.
        layers: the layers that the arrays make, from the input on.
        others: the arrays of each further layer that is shared at first, from the input on.
    """

    names: tuple[str, ...]
    layers: tuple[str, ...]
    others: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, layout: Layout, choice: LayerChoice, *, buffers: bool) -> Learngene:
        """The learngene of a model.

        Args:
            layout: the model's layout. Arrays that are not of floats are in no learngene.
            choice: how many layers, which share of the bytes, or which arrays by pattern.
            buffers: whether the learngene has running statistics, too.

        Raises:
            InvalidParameter: the choice does not fit the model.
        """
        sizes = [
            (name, math.prod(shape) * np.dtype(dtype).itemsize)
            for name, (dtype, shape) in layout.items()
            if np.dtype(dtype).kind == "f"
            and (buffers or name.rpartition(".")[2] not in _STATISTICS)
        ]
        chosen = choice.choose(sizes)
        inside = {layer.name for layer in chosen}
        others = [
            layer.tensors
            for layer in layers_of(sizes, choice.order)
            if layer.name not in inside
            and not any(fnmatchcase(t, each) for t in layer.tensors for each in choice.exclude)
        ]
        names = tuple(name for layer in chosen for name in layer.tensors)
        return cls(names, tuple(layer.name for layer in chosen), tuple(others))


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
