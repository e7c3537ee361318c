"""Checkpoints as a hub has them: a base, what people make of it, and a stranger, of random weights.

Their fingerprints tell which model each tensor comes from, whatever its name and its layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from demo.report import Report
from modelkin import Client, Fingerprint
from modelkin.core.fingerprints.fingerprint import FingerprintMaker

__all__ = ["show_origins"]

Weights: TypeAlias = dict[str, npt.NDArray[np.float32]]

_LAYERS: Final = 6
_WIDTH: Final = 128
_TOKENS: Final = 400
_KINDS: Final = ("q", "k", "v", "o", "up", "down")
_FIRST: Final = datetime(2025, 1, 1, tzinfo=UTC)


def show_origins(client: Client, report: Report) -> None:
    """Store fingerprints of a family, and show what the service finds of each."""
    report.section("Origins: which model each tensor of a checkpoint comes from")
    names = list[str]()
    for day, (name, weights, declared) in enumerate(_hub()):
        published = _FIRST + timedelta(days=day)
        fingerprint = _fingerprint(weights)
        client.fingerprints.put(name, fingerprint, base_models=declared, published_at=published)
        names.append(name)
    report.table(
        "From samples of their lines alone, in any layout:",
        ("model", "what the service finds"),
        [(name, client.anatomy(name).sentences[0]) for name in names],
    )


def _hub() -> Iterator[tuple[str, Weights, tuple[str, ...]]]:
    """Name, weights and declared bases of each, in the order of publication."""
    rng = np.random.default_rng(0)
    base, stranger = _network(rng), _network(rng)
    tuned = _each(base, lambda values: values + 0.05 * _values(rng, values.shape))
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
    yield "mirror/base", base, ()


def _network(rng: np.random.Generator) -> Weights:
    shapes = {"embed": (_TOKENS, _WIDTH)}
    for layer in range(_LAYERS):
        shapes |= {f"layers.{layer}.{kind}": (_WIDTH, _WIDTH) for kind in "qkvo"}
        shapes |= {f"layers.{layer}.up": (3 * _WIDTH, _WIDTH)}
        shapes |= {f"layers.{layer}.down": (_WIDTH, 3 * _WIDTH)}
    return {name: _values(rng, shape) for name, shape in shapes.items()}


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = rng.standard_normal(shape, np.float32) / np.float32(50)
    return values


def _each(
    weights: Weights, change: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
) -> Weights:
    return {name: change(values).astype(np.float32) for name, values in weights.items()}


def _rounded(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Values of eight bits, as quantised copies have them."""
    step = np.float32(np.abs(values).max() / 127)
    rounded: npt.NDArray[np.float32] = np.round(values / step) * step
    return rounded


def _fingerprint(weights: Weights) -> Fingerprint:
    maker = FingerprintMaker()
    for name, values in weights.items():
        maker.add(name, values)
    return maker.finish()
