"""Rounds of clients with digits, for attacks on them."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from modelkin.torch.privacy.flat_network import FlatNetwork
from modelkin.torch.privacy.simulation import Round, Samples, simulate

Pair = tuple[Tensor, Tensor]


@cache
def digits() -> tuple[Samples, Samples]:
    """A random split of the digits: members and non-members."""
    inputs, targets = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(targets))
    images = torch.tensor(inputs[order] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
    samples = Samples(images, torch.tensor(targets[order]))
    return samples.take(torch.arange(800)), samples.take(torch.arange(800, 1600))


def pairs() -> tuple[Pair, Pair]:
    """The digits as ``(inputs, targets)``: members and non-members."""
    members, others = digits()
    return (members.inputs, members.targets), (others.inputs, others.targets)


def network(hidden: int = 48) -> nn.Sequential:
    """A perceptron for the digits, as it is before training."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.Sigmoid(), nn.Linear(hidden, 10))


def simulated(model: nn.Module, clients: int = 10, seed: int = 1) -> Round:
    """A round in which each client has 24 digits and 16 canaries."""
    return simulate(
        FlatNetwork(model, cross_entropy),
        *digits(),
        clients=clients,
        batch=24,
        canaries=16,
        learning_rate=0.1,
        seed=seed,
    )
