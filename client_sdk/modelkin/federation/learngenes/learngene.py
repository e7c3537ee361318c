"""The arrays of a model that are its learngene, and those also shared while sharing tightens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from modelkin.federation.learngenes.layers import LayerChoice, layers_of

__all__ = ["Layout", "Learngene"]

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
