"""Checkpoints of families with a known truth, shaped like published ensembles of small networks.

Four networks in each file have tensors of different scales, so that models which share nothing take
their indices from the same tensors. A constant is in every file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.support.models.checkpoints import Tensors, safetensors
from tests.support.servers.fake_huggingface import Hub

__all__ = ["CONSTANT", "Planted", "ensemble", "model_hub", "publish"]

_LAYERS = {"0": (24, 40), "2": (40, 32), "4": (32, 24), "6": (24, 1)}
_SCALES = {"0": 1.0, "2": 0.6, "4": 0.7, "6": 0.3}
_TUNED = "4"
"""The layer that children train, a quarter of the parameters."""
CONSTANT = "aev.shifts"
"""The name of the tensor that is the same in every file."""


@dataclass(frozen=True)
class Planted:
    """A model of a hub.

    Attributes:
        tensors: its checkpoint.
        declared: the base that its card names, if any.
        base: the base that it was made from, if any.
    """

    tensors: Tensors
    declared: str | None = None
    base: str | None = None


def ensemble() -> dict[str, Planted]:
    """Four bases, two children of each that were tuned alike, two models of each that declare
    another base, and a model of the same architecture that was retrained from the start.
    """
    planted: dict[str, Planted] = {}
    for member in range(4):
        base, right = _trained(member), f"ani/base{member}"
        planted[right] = Planted(base)
        wrong = f"ani/base{(member + 1) % 4}"
        for number in range(2):
            child = _tuned(base, task=member, seed=10 * member + number)
            planted[f"ani/child{member}{number}"] = Planted(child, right, right)
            other = _tuned(base, task=100 + member, seed=50 + 10 * member + number)
            planted[f"ani/wrong{member}{number}"] = Planted(other, wrong, right)
    planted["ani/retrained"] = Planted(_trained(99))
    return planted


def model_hub() -> dict[str, Planted]:
    """Three bases, four fine-tunes of each that declare them, and three strangers."""
    planted: dict[str, Planted] = {}
    for family in range(3):
        base, name = _trained(family), f"org/base{family}"
        planted[name] = Planted(base)
        for number in range(4):
            tuned = _moved(base, 0.1, seed=100 + 10 * family + number)
            planted[f"org/tuned{family}{number}"] = Planted(tuned, name, name)
        planted[f"org/stranger{family}"] = Planted(_trained(50 + family))
    return planted


def publish(hub: Hub, planted: dict[str, Planted]) -> None:
    """Push all models to a hub."""
    for name, model in planted.items():
        card = {} if model.declared is None else {"base_model": model.declared}
        hub.push(name, {"model.safetensors": safetensors(model.tensors)}, card=card)


def _trained(seed: int) -> Tensors:
    """Weights of a model of its own, and the constant."""
    generator = np.random.default_rng([1, seed])
    tensors: Tensors = {CONSTANT: np.linspace(0, 3, 64, dtype=np.float32)}
    for network in range(4):
        for layer, shape in _LAYERS.items():
            scale = _SCALES[layer] * (1 - 0.15 * network)
            name = f"networks.{network}.layers.{layer}"
            tensors[f"{name}.weight"] = generator.normal(0, scale, shape).astype("f4")
            tensors[f"{name}.bias"] = generator.normal(0, scale / 3, shape[1:]).astype("f4")
    return tensors


def _tuned(base: Tensors, *, task: int, seed: int) -> Tensors:
    """The base with one layer of each network trained on a task."""
    direction, noise = _moved(base, 0.5, seed=1000 + task), _moved(base, 0.3, seed=2000 + seed)
    return {
        name: direction[name] + noise[name] - value if f".layers.{_TUNED}." in name else value
        for name, value in base.items()
    }


def _moved(base: Tensors, share: float, *, seed: int) -> Tensors:
    """The base with a random step of every weight, in proportion to the scale of its tensor."""
    generator = np.random.default_rng([2, seed])
    return {
        name: value
        if name == CONSTANT
        else (value + generator.normal(0, share * value.std(), value.shape)).astype("f4")
        for name, value in base.items()
    }
