"""The networks of the studies: the demo's CNN, the paper's smallest, and a perceptron."""

from __future__ import annotations

import torch
from torch import nn

from demo.data import CLASSES
from demo.training import common_model as demo_model

__all__ = ["common_model"]


def common_model(network: str, side: int, seed: int) -> nn.Sequential:
    """The model that every client receives, with torch's own initial weights.

    Args:
        network: one of :data:`studies.settings.NETWORKS`.
        side: of the images, in pixels.
        seed: of the weights.
    """
    if network == "cnn":
        return demo_model(seed, side)
    torch.manual_seed(seed)
    return {"two layers": _two_layers, "mlp": _mlp}[network](side)


def _two_layers(side: int) -> nn.Sequential:
    """The paper's "2-layer CNN": two convolutions and a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 2) ** 2, CLASSES),
    )


def _mlp(side: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(side * side, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )
