"""What each clinic has and does: digits that its scanner turns, a small network, and its training.

Any data, any model and any training may be here: modelkin needs nothing of it but the importance
that ``client_app`` hands over.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

CLIENTS = 12
TURNS = (0, 1, 2)
"""Quarter turns: the scanner of clinic i turns by the i-th of them, again from the first on."""

Samples = tuple[Tensor, Tensor]
"""Images, ``(n, 64)``, and their digits, ``(n,)``."""


def network() -> nn.Module:
    """The network that the federation begins with: the same weights wherever it is made."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            OrderedDict(hidden=nn.Linear(64, 12), relu=nn.ReLU(), head=nn.Linear(12, 10))
        )


def load(part: int) -> tuple[Samples, Samples]:
    """What a clinic trains on, and what it tests on: no other clinic has an image of them.

    Args:
        part: of the data, 0 to 11.
    """
    images, digits = _digits()
    own = np.random.default_rng(0).permutation(len(digits))[part::CLIENTS]
    turned = np.rot90(images.reshape(-1, 8, 8)[own], TURNS[part % len(TURNS)], axes=(1, 2))
    x = torch.from_numpy(turned.reshape(len(own), 64).copy() / 16).float()
    y = torch.from_numpy(digits[own])
    cut = int(0.7 * len(own))
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    return load_digits(return_X_y=True)


def train(model: nn.Module, samples: Samples, epochs: int) -> float:
    """Train in batches of ten; the loss of the last epoch."""
    x, y = samples
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    loss = 0.0
    for _ in range(epochs):
        loss = 0.0
        for batch in torch.randperm(len(y)).split(10):
            optimizer.zero_grad()
            found = cross_entropy(model(x[batch]), y[batch])
            found.backward()
            optimizer.step()
            loss += found.item() * len(batch) / len(y)
    return loss


@torch.no_grad()
def accuracy(model: nn.Module, samples: Samples) -> float:
    """The share of images whose digit is found."""
    x, y = samples
    return float((model(x).argmax(1) == y).float().mean())
