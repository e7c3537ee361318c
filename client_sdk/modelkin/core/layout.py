"""``Layout``: the ordered tensor names and shapes that give every parameter index its meaning.

Models are comparable only if index i means the same parameter in both. So a space may have a
layout, and an overlap can be reported tensor by tensor. A layout never holds values.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.gaps import Gaps
from modelkin.core.indices import MAX_PARAMETERS, IndexArray
from modelkin.errors import InvalidLayout, InvalidParameter, SpaceMismatch

__all__ = ["Layout", "TensorSpec", "counts_in_tensors", "layout_digest"]


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
    """The tensors of a model in its own parameter order, flattened row by row, end to end.

    Args:
        tensors: at least one :class:`TensorSpec`; :meth:`of` takes ``(name, shape)`` pairs.

    Raises:
        InvalidLayout: no tensor, a repeated or empty name, a dimension that is not an integer or is
            negative, or not 1 to 2^63 - 1 parameters in all.
    """

    tensors: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        given = enumerate(_items(self.tensors))
        specs = tuple(_spec(at, *_parts(at, tensor)) for at, tensor in given)
        object.__setattr__(self, "tensors", _check_tensors(specs))

    @classmethod
    def of(cls, tensors: Iterable[tuple[str, Sequence[int]]]) -> Layout:
        """A layout from ``(name, shape)`` pairs; raises InvalidLayout as the constructor does."""
        specs = tuple(_spec(at, name, shape) for at, (name, shape) in enumerate(tensors))
        return cls._from_tensors(_check_tensors(specs))

    @classmethod
    def from_json(cls, items: Iterable[Mapping[str, Any]]) -> Layout:
        """A layout from ``[{"name": ..., "shape": [...]}]``, as spaces show it."""
        return cls.of((item["name"], item["shape"]) for item in items)

    @classmethod
    def trusted(cls, items: Iterable[dict[str, Any]]) -> Layout:
        """A layout from the result of :meth:`to_json`; nothing is checked."""
        return cls._from_tensors(tuple(TensorSpec(i["name"], tuple(i["shape"])) for i in items))

    @classmethod
    def _from_tensors(cls, tensors: tuple[TensorSpec, ...]) -> Layout:
        layout = cls.__new__(cls)
        object.__setattr__(layout, "tensors", tensors)
        return layout

    def to_json(self) -> list[dict[str, Any]]:
        """``[{"name": ..., "shape": [...]}]``."""
        return [{"name": spec.name, "shape": list(spec.shape)} for spec in self.tensors]

    @cached_property
    def num_parameters(self) -> int:
        """M, the sum of the sizes."""
        return sum(spec.size for spec in self.tensors)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors, in order."""
        return tuple(spec.shape for spec in self.tensors)

    @property
    def printed(self) -> str:
        """The layout in a few words, for tables."""
        count = len(self.tensors)
        of = "1 tensor" if count == 1 else f"{count:,} tensors"
        return f"{of}, {self.num_parameters:,} parameters"

    @cached_property
    def ends(self) -> npt.NDArray[np.uint64]:
        """The first index after each tensor, ascending; shape ``(len(tensors),)``."""
        return np.cumsum([spec.size for spec in self.tensors], dtype=np.uint64)

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and a digest of names and shapes in order, in hex.

        Two layouts have the same digest if and only if an index means the same in both.
        """
        return layout_digest((t.name for t in self.tensors), (t.shape for t in self.tensors))

    def without(self, patterns: Sequence[str], *, unmatched_ok: bool = False) -> Layout:
        """The layout without the tensors whose names match one of the shell patterns.

        Args:
            patterns: such as ``"*.running_*"``.
            unmatched_ok: whether a pattern may match no tensor.

        Raises:
            InvalidParameter: a pattern matches no tensor, or no tensor is left.
        """
        excluded: set[str] = set()
        for pattern in patterns:
            found = [*self._names_like(pattern)]
            if not found and not unmatched_ok:
                raise InvalidParameter(
                    f"exclude: {pattern!r} matches none of the {len(self.tensors)} tensors; the "
                    f"first is {self.tensors[0].name!r}",
                    field="exclude",
                )
            excluded.update(found)
        kept = tuple(tensor for tensor in self.tensors if tensor.name not in excluded)
        if not kept or not sum(tensor.size for tensor in kept):
            raise InvalidParameter(
                f"exclude: the pattern{'s' if len(patterns) > 1 else ''} "
                f"{', '.join(map(repr, patterns))} leave{'' if len(patterns) > 1 else 's'} no "
                f"parameter of the layout: name fewer tensors",
                field="exclude",
            )
        return Layout._from_tensors(kept)

    def _names_like(self, pattern: str) -> Iterator[str]:
        """The names that match a shell pattern."""
        matches = re.compile(translate(pattern)).match
        return (tensor.name for tensor in self.tensors if matches(tensor.name))

    def require_same_tensors(self, other: Layout) -> None:
        """Require the same tensors, in any order.

        Raises:
            SpaceMismatch: they differ; the message names the first of this layout that does.
        """
        mine, theirs = self._shapes, other._shapes
        for name, shape in mine.items():
            if name not in theirs:
                raise SpaceMismatch(f"tensor {name!r} {list(shape)} is not in the other layout")
            if theirs[name] != shape:
                raise SpaceMismatch(
                    f"tensor {name!r} has shape {list(shape)}, and {list(theirs[name])} in the "
                    f"other layout"
                )
        for name, shape in theirs.items():
            if name not in mine:
                raise SpaceMismatch(f"tensor {name!r} {list(shape)} is missing")

    def matching(self, patterns: Iterable[str]) -> tuple[str, ...]:
        """The patterns that match a tensor's name, for :meth:`without`."""
        return tuple(p for p in patterns if next(self._names_like(p), None) is not None)

    def stretches(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """The first index of each named tensor and the first one after it, in the order of names.

        Tensors that follow each other in both orders are one stretch; empty ones have none.
        """
        places = {
            spec.name: (int(end) - spec.size, int(end))
            for spec, end in zip(self.tensors, self.ends.tolist(), strict=True)
        }
        found: list[tuple[int, int]] = []
        for begin, end in (places[name] for name in names):
            if begin == end:
                continue
            if found and found[-1][1] == begin:
                found[-1] = (found[-1][0], end)
            else:
                found.append((begin, end))
        return found

    def gaps(self, names: Iterable[str]) -> Gaps:
        """The parameters of the named tensors, as what comparisons leave out."""
        return Gaps.of(self.stretches(names))

    def require_among(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Require that each tensor is among others, given by name, in any order.

        Raises:
            SpaceMismatch: one is not, or has another shape; names the first.
        """
        for name, shape in self._shapes.items():
            if name not in shapes:
                raise SpaceMismatch(f"tensor {name!r} {list(shape)} of the layout is missing")
            if shapes[name] != shape:
                raise SpaceMismatch(
                    f"tensor {name!r} has shape {list(shapes[name])}, and {list(shape)} in the "
                    f"layout"
                )

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {tensor.name: tensor.shape for tensor in self.tensors}

    def counts(self, indices: IndexArray) -> npt.NDArray[np.int64]:
        """How many of the ascending ``indices`` lie in each tensor; shape ``(len(tensors),)``."""
        return _counts_below(indices, self.ends)


def layout_digest(names: Iterable[str], shapes: Iterable[Sequence[int]]) -> str:
    """The :attr:`Layout.digest` of tensors of these names and shapes."""
    text = json.dumps([*zip(names, shapes, strict=True)], separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def counts_in_tensors(indices: IndexArray, sizes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """How many of the ascending ``indices`` lie in each of the tensors of these sizes.

    Args:
        indices: shape ``(K,)``.
        sizes: parameters of each tensor in order, shape ``(tensors,)``.

    Returns:
        Shape ``(tensors,)``.
    """
    return _counts_below(indices, np.cumsum(sizes, dtype=np.uint64))


def _counts_below(indices: IndexArray, ends: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    # In the dtype of the indices, which ends may not fit: numpy would copy the indices.
    lasts = np.maximum(ends, 1) - np.uint64(1)
    below = np.searchsorted(indices, lasts.astype(indices.dtype), side="right")
    below[ends == 0] = 0
    return np.diff(below, prepend=0).astype(np.int64)


def _items(tensors: Any) -> Iterable[Any]:
    try:
        found: Iterable[Any] = iter(tensors)
        return found
    except TypeError:
        raise InvalidLayout(
            f"a layout is made of tensors, not of {tensors!r}", field="layout"
        ) from None


def _parts(position: int, tensor: Any) -> tuple[Any, Any]:
    """Read the name and the shape of a value that should be a tensor of a layout."""
    if not isinstance(tensor, TensorSpec):
        raise InvalidLayout(
            f"layout[{position}] must be a TensorSpec, not {tensor!r}: Layout.of takes pairs of "
            f"name and shape",
            field="layout",
        )
    return tensor.name, tensor.shape


def _spec(position: int, name: Any, shape: Any) -> TensorSpec:
    """A tensor of a layout, its dimensions as plain integers."""
    if not isinstance(name, str) or not name:
        raise InvalidLayout(f"layout[{position}] has no name", field="layout")
    dimensions = _dimensions(name, shape)
    if dimensions and min(dimensions) < 0:
        raise InvalidLayout(
            f"the shape {dimensions} of {name!r} has a negative dimension", field="layout"
        )
    return TensorSpec(name, dimensions)


def _check_tensors(specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Require that the tensors make a layout together, and return them."""
    if not specs:
        raise InvalidLayout("a layout needs at least one tensor", field="layout")
    names = Counter(spec.name for spec in specs)
    if len(names) < len(specs):
        [(twice, _)] = names.most_common(1)
        raise InvalidLayout(f"the layout names tensor {twice!r} twice", field="layout")
    total = sum(spec.size for spec in specs)
    if not 1 <= total <= MAX_PARAMETERS:
        raise InvalidLayout(
            f"the layout has {total} parameters in all, not 1 to 2^63 - 1", field="layout"
        )
    return specs


def _dimensions(name: Any, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        raise InvalidLayout(
            f"the shape of {name!r} must be integers, not {shape!r}", field="layout"
        ) from None
