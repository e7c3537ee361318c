"""Clients of two kinds, a network and its training, for a federation on any engine.

Both kinds hold alike examples, and name their classes differently.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

__all__ = ["CLASSES", "FEATURES", "examples", "fit", "mlp"]

CLASSES, FEATURES = 6, 12
OTHERWISE = torch.tensor([3, 4, 5, 0, 1, 2])


def mlp() -> nn.Sequential:
    """The same weights each time."""
    return deepcopy(_drawn())


@cache
def _drawn() -> nn.Sequential:
    """Drawn once: torch keeps a trace of the stack of each seed that it is given."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, CLASSES))


def examples(node: int) -> tuple[Tensor, Tensor]:
    """What a client holds: all classes alike, which clients of odd nodes name otherwise."""
    noise = torch.randn(30, FEATURES, generator=torch.Generator().manual_seed(node))
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(30) % CLASSES
    return centres[labels] + 0.4 * noise, OTHERWISE[labels] if node % 2 else labels


def fit(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Train a little, always in the same way."""
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    for _ in range(5):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
