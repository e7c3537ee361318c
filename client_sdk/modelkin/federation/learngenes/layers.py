"""The layers of a model, and the choice of those that a learngene holds.

A layer is a module that owns tensors: all names that are equal up to the last dot. A learngene is a
set of whole layers. By default it is the trunk, all layers up to a depth, without the head: layers
that are picked one by one, by a score, are worth little to a newcomer (docs/starting.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from modelkin.errors import InvalidParameter

__all__ = ["CutLearngene", "Layer", "LayerChoice", "layers_of", "natural_order", "tightened_depth"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A module that owns tensors.

    Attributes:
        name: the name of the module, empty for the tensors of the model itself.
        tensors: their names, in order.
        size: bytes of its tensors.
    """

    name: str
    tensors: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class CutLearngene:
    """A learngene in a file that was written.

    Attributes:
        path: where the file lies.
        layers: the layers that it holds, from the model's input on.
        tensors: the names of the tensors of these layers, in the same order.
        size: bytes of the file.
        share: bytes of the learngene's tensors by those of all, above 0 and at most 1.
        digest: ``sha256:`` and the digest of the file, in hex.
    """

    path: Path
    layers: tuple[str, ...]
    tensors: tuple[str, ...]
    size: int
    share: float
    digest: str


def layers_of(tensors: Iterable[tuple[str, int]], order: Iterable[str] = ()) -> tuple[Layer, ...]:
    """The layers of a model, from its input on.

    Args:
        tensors: names and bytes; layers are in the order of their first tensors.
        order: shell patterns of layers that give another order; layers that match the same one
            stay in theirs, and those that match no pattern come last.

    Raises:
        InvalidParameter: a pattern matches no layer.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for name, size in tensors:
        found.setdefault(name.rpartition(".")[0], []).append((name, size))
    layers = [
        Layer(module, tuple(name for name, _ in owned), sum(size for _, size in owned))
        for module, owned in found.items()
    ]
    return tuple(_sort(layers, _patterns(order, "order")))


def natural_order(names: Iterable[str]) -> list[str]:
    """Names sorted with numbers by their value, so that ``layers.10`` comes after ``layers.9``."""
    return sorted(names, key=_natural)


def tightened_depth(
    depth: int, num_layers: int, round_number: int, num_rounds: int, tighten: float = 0.4
) -> int:
    """How many layers are shared in a round: all at first, then linearly fewer, down to ``depth``.

    Args:
        depth: how many layers the learngene has, 1 to ``num_layers``.
        num_layers: how many layers the model has.
        round_number: rounds that are over, from 0 on.
        num_rounds: how many rounds the federation has.
        tighten: the share of the rounds after which only the learngene is shared; 0 for at once.
    """
    span = tighten * num_rounds
    done = min(1.0, round_number / span) if span > 0 else 1.0
    # The share that is done is rounded down, but not by an error of the division.
    return num_layers - int((num_layers - depth) * done + 1e-9)


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """The choice of a learngene's layers; without any argument all but the last, the head.

    Attributes:
        depth: how many layers from the input on.
        share: the share of the bytes of all layers: as many layers from the input on as fit.
        tensors: shell patterns of tensor names; ``("*",)`` for the whole model.
        exclude: shell patterns of tensor names to leave out of what the others choose.
        order: the order of the layers, as for :func:`layers_of`.

    Raises:
        InvalidParameter: more than one of ``depth``, ``share`` and ``tensors``, or one out of its
            range.
    """

    depth: int | None = None
    share: float | None = None
    tensors: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    order: Sequence[str] = ()

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.depth, self.share, self.tensors)) > 1:
            raise InvalidParameter(
                "give one of depth, share and tensors, and exclude beside it", field="depth"
            )
        if self.depth is not None and not _is_count(self.depth):
            raise InvalidParameter(
                f"depth must be a whole number of at least 1, not {self.depth!r}", field="depth"
            )
        if self.share is not None and not _is_share(self.share):
            raise InvalidParameter(
                f"share must be above 0 and at most 1, not {self.share!r}", field="share"
            )
        if self.tensors is not None:
            object.__setattr__(self, "tensors", _patterns(self.tensors, "tensors"))
        object.__setattr__(self, "exclude", _patterns(self.exclude, "exclude"))
        object.__setattr__(self, "order", _patterns(self.order, "order"))

    @property
    def needs_order(self) -> bool:
        """Whether the choice depends on which layer is first and which is last."""
        return self.tensors is None

    def choose(self, tensors: Iterable[tuple[str, int]]) -> tuple[Layer, ...]:
        """The chosen layers of a model, from its input on.

        Args:
            tensors: as for :func:`layers_of`.

        Raises:
            InvalidParameter: nothing is left, a pattern matches nothing or a part of a layer, or
                the depth reaches the head.
        """
        layers = layers_of(tensors, self.order)
        if not layers:
            raise InvalidParameter("the model has no tensor to choose from", field="model")
        excluded = _matching(layers, self.exclude, "exclude")
        if self.tensors is None:
            chosen = self._trunk(layers, excluded)
        else:
            wanted = _matching(layers, self.tensors, "tensors")
            chosen = [layer for layer in layers if layer.name in wanted]
        kept = tuple(layer for layer in chosen if layer.name not in excluded)
        if not kept:
            raise InvalidParameter(
                f"of {_count_text(layers)} nothing is left for a learngene: exclude fewer",
                field="exclude",
            )
        return kept

    def _trunk(self, layers: Sequence[Layer], excluded: set[str]) -> Sequence[Layer]:
        """The first layers, but never the last one."""
        body = layers[:-1]
        if not body:
            raise InvalidParameter(
                f"the model has {_count_text(layers)}, and a trunk is without the last: give "
                f"tensors=['*'] for the whole model",
                field="depth",
            )
        if self.depth is not None:
            if self.depth > len(body):
                raise InvalidParameter(
                    f"depth must be 1 to {len(body)}, not {self.depth}: the model has "
                    f"{_count_text(layers)}, and a trunk is without the last, "
                    f"{layers[-1].name!r}; give tensors=['*'] for the whole model",
                    field="depth",
                )
            return body[: self.depth]
        if self.share is None:
            return body
        return self._fitting(body, sum(layer.size for layer in layers), excluded)

    def _fitting(self, body: Sequence[Layer], total: int, excluded: set[str]) -> Sequence[Layer]:
        """Take as many of the first layers as fit into the share of all bytes."""
        assert self.share is not None
        sizes = [0 if layer.name in excluded else layer.size for layer in body]
        fitting = 0
        while fitting < len(body) and sum(sizes[: fitting + 1]) <= self.share * total:
            fitting += 1
        if not sum(sizes[:fitting]):
            first = next(at for at, size in enumerate([*sizes, 1]) if size)
            least = sizes[first] / total if first < len(body) else 1.0
            raise InvalidParameter(
                f"share must be {least:.3g} or more for the first layer to fit, not {self.share!r}",
                field="share",
            )
        return body[:fitting]


def _matching(layers: Sequence[Layer], patterns: Iterable[str], field: str) -> set[str]:
    """The names of the layers whose tensors match a pattern, all of them.

    Raises:
        InvalidParameter: a pattern matches nothing, or the patterns match a part of a layer.
    """
    matched: set[str] = set()
    for pattern in patterns:
        found = {t for layer in layers for t in layer.tensors if fnmatchcase(t, pattern)}
        if not found:
            raise InvalidParameter(
                f"{field}: {pattern!r} matches no tensor; the first is {layers[0].tensors[0]!r}",
                field=field,
            )
        matched |= found
    chosen = set()
    for layer in layers:
        inside = matched.intersection(layer.tensors)
        if inside and len(inside) < len(layer.tensors):
            other = next(t for t in layer.tensors if t not in inside)
            raise InvalidParameter(
                f"{field} matches {min(inside)!r} and not {other!r} of the same layer, and a "
                f"learngene has whole layers: write {f'{layer.name}.*' if layer.name else '*'!r}",
                field=field,
            )
        if inside:
            chosen.add(layer.name)
    return chosen


def _sort(layers: list[Layer], patterns: Sequence[str]) -> list[Layer]:
    ordered: list[Layer] = []
    left = layers
    for pattern in patterns:
        found = [layer for layer in left if fnmatchcase(layer.name, pattern)]
        if not found and not any(fnmatchcase(layer.name, pattern) for layer in layers):
            raise InvalidParameter(
                f"order: {pattern!r} matches none of the {len(layers)} layers", field="order"
            )
        ordered += found
        left = [layer for layer in left if layer not in found]
    return ordered + left


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


def _patterns(given: Any, field: str) -> tuple[str, ...]:
    if isinstance(given, str):
        raise InvalidParameter(f"{field} is one string; give a list of patterns", field=field)
    patterns = tuple(given)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise InvalidParameter(f"{field} must be texts, not {pattern!r}", field=field)
    return patterns


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def _count_text(layers: Sequence[Layer]) -> str:
    return f"{len(layers)} layer{'' if len(layers) == 1 else 's'}"
