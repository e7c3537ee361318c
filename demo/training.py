"""The clients' models: one small network, trained by each client alone, and averages.

It owns the work of a client before anything is sent, and uses no service.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.data import CLASSES, Split
from modelkin.torch import fisher_importance

__all__ = ["accuracy_by_class", "common_model", "importance", "mixture", "train"]

EPOCHS = 8
BATCH = 10


def common_model(seed: int = 0) -> nn.Module:
    """The model every client receives: two convolutions and two linear layers."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, CLASSES),
    )


def importance(model: nn.Module, split: Split, client: int) -> Tensor:
    """The importance of each parameter of the common model to one client's data, ``(M,)``."""
    return fisher_importance(
        model, cross_entropy, DataLoader(_dataset(split, client), batch_size=64)
    )


def train(model: nn.Module, split: Split, client: int, seed: int = 0) -> Tensor:
    """Train the model on one client's data alone, in place; return its weights, ``(M,)``."""
    shuffle = torch.Generator().manual_seed(seed * 1_000_003 + client)
    loader = DataLoader(_dataset(split, client), batch_size=BATCH, shuffle=True, generator=shuffle)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    for _ in range(EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(images), labels))
            optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def mixture(weights: Tensor, shares: npt.NDArray[np.float64]) -> Tensor:
    """The average of the rows of ``(models, M)`` by shares ``(models,)`` that sum to 1."""
    return torch.as_tensor(shares, dtype=weights.dtype) @ weights


@torch.no_grad()
def accuracy_by_class(model: nn.Module, weights: Tensor, split: Split) -> npt.NDArray[np.float64]:
    """The model's accuracy on each digit of the test samples under these weights, ``(10,)``."""
    nn.utils.vector_to_parameters(weights, model.parameters())
    labels = split.labels[split.test]
    right = model(torch.as_tensor(split.images[split.test])).argmax(dim=1).numpy() == labels
    return np.array([right[labels == c].mean() for c in range(CLASSES)])


def _dataset(split: Split, client: int) -> TensorDataset:
    mine = split.clients[client]
    return TensorDataset(torch.as_tensor(split.images[mine]), torch.as_tensor(split.labels[mine]))
