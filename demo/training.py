"""The clients' models: one small network, trained by each client alone, and averages.

It owns the work of a client before anything is sent, and uses no service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.data import CLASSES, Integers, Split
from modelkin.torch import fisher_importance

__all__ = [
    "accuracy_by_class",
    "common_model",
    "few_examples",
    "importance",
    "importance_of",
    "mixture",
    "train",
    "train_few",
]

EPOCHS = 8
BATCH = 10
RATE, MOMENTUM, DECAY = 0.01, 0.9, 5e-4


def common_model(
    seed: int = 0, side: int = 8, channels: int = 1, classes: int = CLASSES
) -> nn.Sequential:
    """The model every client receives: two convolutions and two linear layers.

    Args:
        seed: the seed of its weights.
        side: the side of the images, in pixels.
        channels: the channels of the images.
        classes: the number of labels.
    """
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 2) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def importance(model: nn.Module, split: Split, client: int) -> Tensor:
    """Return each parameter's importance to one client's data, ``(M,)``."""
    return importance_of(model, split, split.clients[client])


def importance_of(model: nn.Module, split: Split, samples: Integers) -> Tensor:
    """Return each parameter's importance to some samples, ``(M,)``."""
    loader = DataLoader(_dataset(split, samples), batch_size=64)
    return fisher_importance(model, cross_entropy, loader)


def train(model: nn.Module, split: Split, client: int, seed: int = 0) -> Tensor:
    """Train the model on one client's data alone, in place; return its weights, ``(M,)``."""
    shuffle = torch.Generator().manual_seed(seed * 1_000_003 + client)
    dataset = _dataset(split, split.clients[client])
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, generator=shuffle)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    for _ in range(EPOCHS):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(images), labels))
            optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def few_examples(split: Split, count: int, seed: int = 0) -> Integers:
    """Draw ``count`` of each client's samples at random, ``(clients, count)``."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.choice(mine, count, replace=False) for mine in split.clients])


def train_few(
    model: nn.Module, starts: Tensor, split: Split, samples: Integers, steps: Sequence[int]
) -> Iterator[Tensor]:
    """Train many clients at once, each step on all of a client's few samples.

    Args:
        starts: each client's weights before, ``(clients, M)``.
        samples: indices of each client's samples, ``(clients, count)``.
        steps: counts of steps, ascending.

    Yields:
        Each client's weights after each count of steps, ``(clients, M)``.
    """
    images = torch.as_tensor(split.images[samples])
    labels = torch.as_tensor(split.labels[samples])
    shapes = {name: value.shape for name, value in model.named_parameters()}

    def loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = weights.split([shape.numel() for shape in shapes.values()])
        named = {name: p.view(shapes[name]) for name, p in zip(shapes, parts, strict=True)}
        return cross_entropy(functional_call(model, named, (x,)), y)

    gradients = vmap(grad(loss))
    weights, velocity, done = starts, torch.zeros_like(starts), 0
    for count in steps:
        for _ in range(count - done):
            velocity = MOMENTUM * velocity + gradients(weights, images, labels) + DECAY * weights
            weights = weights - RATE * velocity
        done = count
        yield weights


def mixture(weights: Tensor, shares: npt.NDArray[np.float64]) -> Tensor:
    """The averages of the rows of ``(models, M)`` by shares ``(..., models)`` that sum to 1."""
    return torch.as_tensor(shares, dtype=weights.dtype) @ weights


@torch.no_grad()
def accuracy_by_class(model: nn.Module, weights: Tensor, split: Split) -> npt.NDArray[np.float64]:
    """The model's accuracy on each digit of the test samples under these weights, ``(10,)``."""
    nn.utils.vector_to_parameters(weights, model.parameters())
    labels = split.labels[split.test]
    right = model(torch.as_tensor(split.images[split.test])).argmax(dim=1).numpy() == labels
    return np.array([right[labels == c].mean() for c in range(CLASSES)])


def _dataset(split: Split, samples: Integers) -> TensorDataset:
    images, labels = split.images[samples], split.labels[samples]
    return TensorDataset(torch.as_tensor(images), torch.as_tensor(labels))
