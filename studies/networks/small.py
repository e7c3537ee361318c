"""The networks of the studies: the demo's CNN, the paper's smallest, a perceptron, and large ones.

Each is an ``nn.Sequential`` that ends in its classifier, in the mode for gradients of single
samples: batch normalisation uses its running statistics, which start as mean 0 and variance 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import nn

from demo.training import common_model as demo_model
from studies.networks.bert import bert
from studies.networks.resnets import resnet18, resnet50

__all__ = ["TOKENS", "VOCABULARY", "common_model"]

TOKENS: Final = 128
"""The tokens of a text that BERT reads."""
VOCABULARY: Final = 30_522
"""BERT's."""


def common_model(network: str, shape: Sequence[int], classes: int, seed: int) -> nn.Sequential:
    """The model that every client receives, with torch's own initial weights.

    Args:
        network: one of :data:`studies.settings.NETWORKS` or :data:`studies.settings.LARGE`.
        shape: of one sample: ``(channels, side, side)``, ``(d,)`` or ``(tokens,)``.
        classes: how many labels there are.
        seed: of the weights.
    """
    if network == "cnn":
        return demo_model(seed, shape[-1], shape[0], classes)
    torch.manual_seed(seed)
    if network == "mlp":
        return _mlp(prod(shape), classes)
    if network == "two layers":
        return _two_layers(shape[0], shape[-1], classes)
    if network == "bert":
        return bert(classes, vocabulary=VOCABULARY).eval()
    return {"resnet18": resnet18, "resnet50": resnet50}[network](classes).eval()


def _two_layers(channels: int, side: int, classes: int) -> nn.Sequential:
    """The paper's "2-layer CNN": two convolutions and a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 2) ** 2, classes),
    )


def _mlp(width: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(width, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )
