"""What is trained: bases, strangers, and what hubs make of a base by training it on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from studies.lines.derivatives import Derivative, Origins
from studies.lines.networks.architecture import Architecture
from studies.lines.training import merge_adapters, put_adapters, train
from studies.lines.zoo import Tensors, Zoo, loaded, tensors_of

__all__ = ["Trained", "relayered"]

_SHARE_OF_UNITS: Final = 5 / 8
_SHARE_OF_TOKENS: Final = 0.68
_ADDED_TOKENS: Final = 65


@dataclass(frozen=True)
class _Start:
    """Weights that a child is trained from.

    Attributes:
        tensors: the weights.
        origins: where they come from in the base, see :class:`Derivative`.
        sizes: the sizes of the network that the architecture would not give it.
    """

    tensors: Tensors
    origins: Origins = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


class Trained:
    """The trained networks of one architecture.

    Args:
        architecture: which one.
        zoo: keeps their weights.
        longest: the most steps of each; fewer than the architecture's in tests alone.
    """

    def __init__(self, architecture: Architecture, zoo: Zoo, longest: int | None = None) -> None:
        self.architecture = architecture
        self._zoo, self._longest = zoo, longest

    def initial(self, seed: int = 0) -> Tensors:
        """Its weights before training."""
        torch.manual_seed(seed)
        return tensors_of(self.architecture.build())

    def base(self, seed: int = 0) -> Tensors:
        """A network that is trained on the first half of the data; strangers have other seeds."""
        own = self.architecture
        steps = own.stranger_steps if seed and own.stranger_steps else own.steps
        start = _Start(self.initial(seed))
        return self._weights(f"base {seed}", start, steps, 1.0, seed, other=False)

    def same_seed(self) -> Derivative:
        """The base's initial weights and data, in another order."""
        start, steps = _Start(self.initial()), self.architecture.steps
        weights = self._weights("same seed, other order", start, steps, 1.0, 77, other=False)
        return Derivative("same seed, other order", weights)

    def same_weights(self) -> Derivative:
        """The base's initial weights, trained on the other half of the data."""
        name = "same initial weights, other data"
        weights = self._weights(name, _Start(self.initial()), 100, 1.0, 22, other=True)
        return Derivative(name, weights)

    def children(self) -> Iterator[Derivative]:
        """All that is trained from the base, as far as the architecture has it."""
        whole = _Start(self.base())
        yield self._child("light", whole, 20, 0.1, 10)
        yield self.fine_tuned(11)
        yield self._child("heavy", whole, 200, 1.0, 13)
        if self.architecture.has_adapters:
            yield self._adapted()
        for name, start, steps, rate, seed in self._changed():
            yield self._child(name, start, steps, rate, seed)
        if self.architecture.head:
            yield self._new_head()

    def fine_tuned(self, seed: int) -> Derivative:
        """The base after 60 steps at .3 of its rate."""
        name = "fine-tune" if seed == 11 else "second fine-tune"
        return self._child(name, _Start(self.base()), 60, 0.3, seed)

    def kept(self, name: str, make: Callable[[], Tensors]) -> Tensors:
        """Weights of the zoo, which are made where it has none."""
        return self._zoo.weights(f"{self.architecture.name}/{name}", make)

    def train(
        self,
        network: nn.Module,
        *,
        steps: int,
        rate: float,
        seed: int,
        other: bool = True,
        batches: int = 1,
    ) -> None:
        """Train a network; the rate is of the base's."""
        left = steps if self._longest is None else min(steps, self._longest)
        if left:
            rate *= self.architecture.rate
            train(
                self.architecture,
                network,
                steps=left,
                rate=rate,
                seed=seed,
                other=other,
                batches=batches,
            )

    def _child(self, name: str, start: _Start, steps: int, rate: float, seed: int) -> Derivative:
        weights = self._weights(name, start, steps, rate, seed, other=True)
        return Derivative(name, weights, start.origins)

    def _weights(
        self, name: str, start: _Start, steps: int, rate: float, seed: int, *, other: bool
    ) -> Tensors:
        is_base = name.startswith("base 0")

        def make() -> Tensors:
            network = loaded(self.architecture.build(**start.sizes), start.tensors)
            batches = self.architecture.base_batches if is_base else 1
            self.train(network, steps=steps, rate=rate, seed=seed, other=other, batches=batches)
            return tensors_of(network)

        return self.kept(name, make)

    def _adapted(self) -> Derivative:
        def make() -> Tensors:
            network = loaded(self.architecture.build(), self.base())
            torch.manual_seed(14)
            put_adapters(network, self.architecture.head)
            self.train(network, steps=50, rate=2.0, seed=14)
            merge_adapters(network)
            return tensors_of(network)

        return Derivative("LoRA", self.kept("lora", make))

    def _changed(self) -> Iterator[tuple[str, _Start, int, float, int]]:
        """What a base is before it is trained on: its name, weights, steps, rate and seed."""
        own, base = self.architecture, self.base()
        if own.tokens:
            yield "65 tokens more", self._more_tokens(base), 30, 0.2, 15
            yield "1,392 of 2,048 tokens", self._fewer_tokens(base), 20, 0.1, 16
        if own.depth:
            deeper = [*range(own.depth - 1), *range(1, own.depth)] if own.depth > 2 else [0, 1] * 2
            fewer = [0, own.depth - 1] if own.depth > 2 else [1]
            yield "deeper", self._relayered(base, deeper), 40, 0.3, 18
            yield "fewer layers", self._relayered(base, fewer), 40, 0.3, 18
        if own.hidden:
            yield "5 of 8 hidden units", self._narrower(base), 40, 0.3, 20

    def _more_tokens(self, base: Tensors) -> _Start:
        draw = np.random.default_rng(15)

        def grown(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            shape = (_ADDED_TOKENS, *values.shape[1:])
            added = values.std() * draw.standard_normal(shape)
            return np.concatenate([values, added.astype(np.float32)])

        changed = self._of_tokens(base, grown)
        return _Start(changed, sizes={"tokens": self._count(changed)})

    def _fewer_tokens(self, base: Tensors) -> _Start:
        count = self._count(base)
        draw = np.random.default_rng(16)
        kept = np.sort(draw.permutation(count)[: int(count * _SHARE_OF_TOKENS)])
        changed = self._of_tokens(base, lambda values: values[kept])
        return _Start(changed, sizes={"tokens": len(kept)})

    def _of_tokens(
        self, base: Tensors, change: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
    ) -> Tensors:
        """The base with changed tables of tokens; those that are tied stay so."""
        made = dict[bytes, npt.NDArray[np.float32]]()
        tensors = dict(base)
        for name, values in base.items():
            if name.endswith(self.architecture.tokens):
                whole = values.tobytes()
                if whole not in made:
                    made[whole] = change(values)
                tensors[name] = made[whole]
        return tensors

    def _count(self, tensors: Tensors) -> int:
        ends = self.architecture.tokens
        return next(len(values) for name, values in tensors.items() if name.endswith(ends))

    def _relayered(self, base: Tensors, order: list[int]) -> _Start:
        tensors, origins = relayered(base, self.architecture.layers, order)
        return _Start(tensors, origins, {"depth": len(order)})

    def _narrower(self, base: Tensors) -> _Start:
        """The hidden units of the greatest norms are left."""
        own = self.architecture
        kept_units = int(own.hidden * _SHARE_OF_UNITS)
        norms = dict[str, npt.NDArray[np.float64]]()
        for name, values in base.items():
            axis = _axis_of_units(name, own)
            if axis is not None and values.ndim == 2:
                layer = _layer(name)
                squares = np.square(values).sum(axis=1 - axis)
                norms[layer] = norms.get(layer, np.ones(own.hidden)) * squares
        tensors = dict(base)
        for name, values in base.items():
            axis = _axis_of_units(name, own)
            if axis is not None:
                kept = np.sort(np.argsort(-norms[_layer(name)])[:kept_units])
                tensors[name] = np.ascontiguousarray(values.take(kept, axis=axis))
        return _Start(tensors, sizes={"hidden": kept_units})

    def _new_head(self) -> Derivative:
        tuned = self._child("new head", _Start(self.base()), 15, 0.2, 17)
        draw = np.random.default_rng(17)
        own = {k: v for k, v in tuned.tensors.items() if not k.endswith(self.architecture.head)}
        heads = [v for k, v in tuned.tensors.items() if k.endswith(self.architecture.head)]
        width = next(values.shape[1] for values in reversed(heads) if values.ndim == 2)
        own["score.weight"] = (0.02 * draw.standard_normal((5, width))).astype(np.float32)
        return Derivative("new head", own, {"score.weight": ()})


def relayered(base: Tensors, layers: str, order: list[int]) -> tuple[Tensors, Origins]:
    """A network of the layers of another one, in an order and each as often as it is named.

    Args:
        base: the other one.
        layers: the pattern of :class:`Architecture`.
        order: of each new layer, the number of the old one.

    Returns:
        The weights, and where those come from that have another name.
    """
    tensors, origins = Tensors(), dict[str, tuple[str, ...]]()
    for name, values in base.items():
        found = re.search(layers, name)
        if found is None:
            tensors[name] = values
            continue
        for new, old in enumerate(order):
            if old == int(found[1]):
                renamed = f"{name[: found.start(1)]}{new}{name[found.end(1) :]}"
                tensors[renamed], origins[renamed] = values, (name,)
    return tensors, origins


def _axis_of_units(name: str, own: Architecture) -> int | None:
    if own.rows_of_units and name.endswith(own.rows_of_units):
        return 0
    if own.columns_of_units and name.endswith(own.columns_of_units):
        return 1
    return None


def _layer(name: str) -> str:
    """The part of a name that tensors with the same hidden units have in common."""
    found = re.search(r"^.*?\.(?:layers?|h|block)\.\d+\.", "." + name)
    return found[0] if found else ""
