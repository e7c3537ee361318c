"""The networks of the paper: a small CNN and others on images, and its larger definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from demo.data import CLASSES

__all__ = ["common_model"]


def common_model(network: str, side: int, seed: int) -> nn.Sequential:
    """The model that every client receives, with torch's own initial weights.

    Args:
        network: one of :data:`studies.settings.NETWORKS`.
        side: of the images, in pixels.
        seed: of the weights.
    """
    torch.manual_seed(seed)
    return _LAYERS[network](side)


def _cnn(side: int) -> nn.Sequential:
    """Two convolutions and two linear layers: 38,282 parameters on digits, as in the demo."""
    return nn.Sequential(
        *_convolutions(),
        nn.Linear(32 * (side // 2) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def _two_layers(side: int) -> nn.Sequential:
    """The paper's "2-layer CNN": two convolutions and a linear classifier."""
    return nn.Sequential(*_convolutions(), nn.Linear(32 * (side // 2) ** 2, CLASSES))


def _mlp(side: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(side * side, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def _convolutions() -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )


_LAYERS: Final[dict[str, Callable[[int], nn.Sequential]]] = {
    "cnn": _cnn,
    "two layers": _two_layers,
    "mlp": _mlp,
}
