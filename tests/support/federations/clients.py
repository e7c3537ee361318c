"""What planted clients would send: a support of the common network, or a subspace of their data."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.planted import CLASSES, Clients, plant
from modelkin import Subspace, Support, fit_subspace, select_support
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity.matrix import matrix
from modelkin.core.subspaces.affinity import affinities
from modelkin.torch import fisher_importance

__all__ = ["Kind", "similarity", "subspaces", "supports"]

Kind = Literal["supports", "classes", "whole"]


@cache
def similarity(scenario: str, kind: Kind, seed: int) -> npt.NDArray[np.float64]:
    """S of all pairs of the planted clients of a scenario, by supports or by subspaces."""
    clients = plant(scenario, seed=seed)
    if kind == "supports":
        return matrix([PackedSupport.pack(support) for support in supports(clients, seed)])
    return affinities(subspaces(clients), kind)


def supports(clients: Clients, seed: int) -> list[Support]:
    """The tenth of a small network's parameters that matters most, at common initial weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    network = _network(clients.samples[0].shape[-1], seed)
    found = []
    for images, labels in zip(clients.samples, clients.labels, strict=True):
        dataset = TensorDataset(torch.as_tensor(images)[:, None], torch.as_tensor(labels))
        loader = DataLoader(dataset, batch_size=128)
        importance = fisher_importance(network, cross_entropy, loader)
        found.append(select_support(importance, fraction=0.1))
    torch.set_num_threads(threads)
    return found


def subspaces(clients: Clients) -> list[Subspace]:
    """Three directions of each class and ten of all samples, however few these are."""
    return [
        fit_subspace(images.reshape(len(images), -1), labels, samples_per_direction=1)
        for images, labels in zip(clients.samples, clients.labels, strict=True)
    ]


def _network(side: int, seed: int) -> nn.Module:
    """Two convolutions and a classifier, with He's initial weights, the classifier's halved."""
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 2) ** 2, CLASSES),
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() == 1:
                weights.zero_()
                continue
            scale = (2 / weights[0].numel()) ** 0.5 / (2 if len(weights) == CLASSES else 1)
            weights.copy_(torch.randn(weights.shape, generator=generator) * scale)
    return network
