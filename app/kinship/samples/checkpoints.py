"""Checkpoints as a hub has them: bases, what people make of them, and what some say wrongly.

Weights are random and small, so that all are made in a second or two. Their fingerprints tell which
model each tensor comes from, whatever its name and its layout. Nothing is stored here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.fingerprint import Fingerprint, FingerprintMaker

__all__ = ["Checkpoint", "checkpoints", "fingerprint_of", "names_of"]

Values: TypeAlias = npt.NDArray[np.float32]
Weights: TypeAlias = dict[str, Values]

_LAYERS: Final = 6
_WIDTH: Final = 64
_TOKENS: Final = 200
_KINDS: Final = ("q", "k", "v", "o", "up", "down")
_FIRST: Final = datetime(2025, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint with what is said of it.

    Attributes:
        weights: the tensors by name, in the order of the network.
        bases: the models that it is said to be made from.
    """

    name: str
    weights: Weights
    bases: tuple[str, ...]
    published_at: datetime


def checkpoints(owner: str) -> Iterator[Checkpoint]:
    """The checkpoints in the order of publication, whose names begin with ``owner/``.

    One is an exact copy under another owner's name, and one declares a base that it is not from.
    """
    for day, (name, weights, bases) in enumerate(_hub()):
        yield Checkpoint(
            name.replace("hub", owner, 1),
            weights,
            tuple(base.replace("hub", owner, 1) for base in bases),
            _FIRST + timedelta(days=day),
        )


@cache
def names_of(owner: str) -> list[str]:
    """The names of these checkpoints."""
    return [each.name for each in checkpoints(owner)]


def fingerprint_of(weights: Weights) -> Fingerprint:
    """The fingerprint of a checkpoint."""
    maker = FingerprintMaker()
    for name, values in weights.items():
        maker.add(name, values)
    return maker.finish()


def _hub() -> Iterator[tuple[str, Weights, tuple[str, ...]]]:
    """Name, weights and declared bases of each."""
    rng = np.random.default_rng(0)
    base, stranger = _network(rng), _network(rng)
    tuned, coder = _tuned(base, rng), _tuned(base, rng)
    rounded = _each(tuned, lambda values: _rounded(values).T.copy())
    grown = base | {"embed": np.concatenate([base["embed"], _values(rng, (40, _WIDTH))])}
    deeper = {"embed": base["embed"]} | {
        f"layers.{at}.{kind}": base[f"layers.{layer}.{kind}"]
        for at, layer in enumerate([0, 1, 2, 3, 2, 3, 4, 5])
        for kind in _KINDS
    }
    mixed = {name: (base if name < "layers.4" else stranger)[name] for name in base}
    yield "hub/base", base, ()
    yield "hub/stranger", stranger, ()
    yield "hub/tuned", tuned, ("hub/base",)
    yield "hub/tuned-8bit", {f"blk.{name}": rounded[name] for name in rounded}, ()
    yield "hub/more-tokens", grown, ("hub/base",)
    yield "hub/deeper", deeper, ("hub/stranger",)
    yield "hub/mixed", mixed, ()
    yield "hub-mirror/base", base, ()
    yield "hub/coder", coder, ("hub/base",)
    yield "hub/chat", _tuned(tuned, rng), ("hub/tuned",)
    yield "hub/silent", _tuned(base, rng), ()
    yield "hub/claims-stranger", _tuned(base, rng), ("hub/stranger",)
    yield "hub/average", {name: _half(tuned[name] + coder[name]) for name in tuned}, ()


def _network(rng: np.random.Generator) -> Weights:
    shapes = {"embed": (_TOKENS, _WIDTH)}
    for layer in range(_LAYERS):
        shapes |= {f"layers.{layer}.{kind}": (_WIDTH, _WIDTH) for kind in "qkvo"}
        shapes |= {f"layers.{layer}.up": (3 * _WIDTH, _WIDTH)}
        shapes |= {f"layers.{layer}.down": (_WIDTH, 3 * _WIDTH)}
    return {name: _values(rng, shape) for name, shape in shapes.items()}


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> Values:
    values: Values = rng.standard_normal(shape, np.float32) / np.float32(50)
    return values


def _tuned(weights: Weights, rng: np.random.Generator) -> Weights:
    return _each(weights, lambda values: values + 0.05 * _values(rng, values.shape))


def _each(weights: Weights, change: Callable[[Values], Values]) -> Weights:
    return {name: change(values).astype(np.float32) for name, values in weights.items()}


def _half(values: Values) -> Values:
    half: Values = values * np.float32(0.5)
    return half


def _rounded(values: Values) -> Values:
    """Values of eight bits, as quantised copies have them."""
    step = np.float32(np.abs(values).max() / 127)
    rounded: Values = np.round(values / step) * step
    return rounded
