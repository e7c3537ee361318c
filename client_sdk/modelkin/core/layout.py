"""``Layout``: the ordered tensor names and shapes that give every parameter index its meaning.

Models are comparable only if index i means the same parameter in both. So a space may have a
layout, and an overlap can be reported tensor by tensor. A layout never holds values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import MAX_PARAMETERS, IndexArray
from modelkin.errors import InvalidLayout

__all__ = ["Layout", "TensorSpec"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model: its name and its shape; a scalar has shape ``()``."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many parameters it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The tensors of a model in its own parameter order, flattened row by row, end to end."""

    tensors: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Sequence[int]]]) -> Layout:
        """A layout from ``(name, shape)`` pairs.

        Raises:
            InvalidLayout: no tensor, a repeated or empty name, a negative dimension, or more than
                2^63 - 1 parameters in all.
        """
        specs = tuple(_spec(at, name, shape) for at, (name, shape) in enumerate(tensors))
        if not specs:
            raise InvalidLayout("a layout needs at least one tensor", field="layout")
        seen: set[str] = set()
        for spec in specs:
            if spec.name in seen:
                raise InvalidLayout(f"the layout names tensor {spec.name!r} twice", field="layout")
            seen.add(spec.name)
        total = sum(spec.size for spec in specs)
        if not 1 <= total <= MAX_PARAMETERS:
            raise InvalidLayout(
                f"the layout has {total} parameters in all, not 1 to 2^63 - 1", field="layout"
            )
        return cls(specs)

    @classmethod
    def from_json(cls, items: Iterable[dict[str, Any]]) -> Layout:
        """A layout from ``[{"name": ..., "shape": [...]}]``, as spaces show it."""
        return cls.of((item["name"], item["shape"]) for item in items)

    def to_json(self) -> list[dict[str, Any]]:
        """``[{"name": ..., "shape": [...]}]``."""
        return [{"name": spec.name, "shape": list(spec.shape)} for spec in self.tensors]

    @cached_property
    def num_parameters(self) -> int:
        """M, the sum of the sizes."""
        return sum(spec.size for spec in self.tensors)

    @cached_property
    def ends(self) -> npt.NDArray[np.uint64]:
        """For each tensor the first index after it, ascending; shape ``(len(tensors),)``."""
        return np.cumsum([spec.size for spec in self.tensors], dtype=np.uint64)

    def counts(self, indices: IndexArray) -> npt.NDArray[np.int64]:
        """How many of the ascending ``indices`` lie in each tensor; shape ``(len(tensors),)``."""
        below = np.searchsorted(indices, self.ends.astype(np.uint64), side="left")
        return np.diff(below, prepend=0).astype(np.int64)


def _spec(position: int, name: Any, shape: Any) -> TensorSpec:
    if not isinstance(name, str) or not name:
        raise InvalidLayout(f"layout[{position}] has no name", field="layout")
    try:
        dimensions = tuple(operator.index(d) for d in shape)
    except TypeError:
        raise InvalidLayout(
            f"the shape of {name!r} must be integers, not {shape!r}", field="layout"
        ) from None
    if any(d < 0 for d in dimensions):
        raise InvalidLayout(
            f"the shape {dimensions} of {name!r} has a negative dimension", field="layout"
        )
    return TensorSpec(name, dimensions)
