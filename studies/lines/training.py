"""Training of small networks, the same at each run on one machine."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from studies.lines.networks.architecture import Architecture

__all__ = ["Adapter", "merge_adapters", "put_adapters", "train"]

_WARMING: Final = 20
"""Steps until the rate is reached; it falls to a tenth, as half a cosine."""


def train(
    architecture: Architecture,
    network: nn.Module,
    *,
    steps: int,
    rate: float,
    seed: int,
    other: bool,
    batches: int = 1,
) -> None:
    """Train a network.

    Args:
        architecture: its task.
        network: as it begins.
        steps: how many.
        rate: the greatest learning rate.
        seed: of the order of the data, and of all that is random in training.
        other: whether it reads the other half of the data.
        batches: of each step.
    """
    draw = np.random.default_rng(seed)
    torch.manual_seed(seed)
    learned = [each for each in network.parameters() if each.requires_grad]
    optimiser: Any = torch.optim.AdamW(learned, lr=rate, betas=(0.9, 0.95), weight_decay=0.1)
    network.train()
    for step in range(steps):
        falling = 0.1 + 0.45 * (1 + math.cos(math.pi * step / steps))
        optimiser.param_groups[0]["lr"] = rate * min(1, (step + 1) / _WARMING) * falling
        optimiser.zero_grad()
        for _ in range(batches):
            (architecture.loss(network, architecture.batch(draw, other)) / batches).backward()
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()


class Adapter(nn.Module):
    """A low-rank change of a matrix: ``W + 2 B A``, of which A and B alone are learned."""

    def __init__(self, rows: int, columns: int, rank: int = 8) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weights: Tensor) -> Tensor:
        """The changed matrix."""
        return weights + 2 * self.up @ self.down


def put_adapters(network: nn.Module, unless: tuple[str, ...]) -> None:
    """Put an adapter on each linear layer, and let nothing else learn.

    Args:
        network: its layers get adapters.
        unless: ends of the names of matrices that get none, such as those of a head.
    """
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    for name, module in list(network.named_modules()):
        if isinstance(module, nn.Linear) and not f"{name}.weight".endswith(unless or ("\n",)):
            adapter = Adapter(module.out_features, module.in_features)
            parametrize.register_parametrization(module, "weight", adapter)


def merge_adapters(network: nn.Module) -> None:
    """Put what adapters have learned into the matrices."""
    for module in list(network.modules()):
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
