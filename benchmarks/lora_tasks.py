"""Twelve LoRA adapters of one base: four tasks on scikit-learn's digits, three starts each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn.functional import cross_entropy

__all__ = ["PAIRS", "RANK", "SCALE", "SHAPES", "same_task_auc", "trained"]

TASKS, STARTS = 4, 3
WIDTH, RANK, SCALE = 256, 4, 4.0
PAIRS = tuple(combinations(range(TASKS * STARTS), 2))
SHAPES = ((WIDTH, 64), (WIDTH, WIDTH), (10, WIDTH))

Matrix = npt.NDArray[np.float32]


def seeded(seed: int) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator().manual_seed(seed)


def digits() -> tuple[Tensor, Tensor]:
    """Images of digits, normalized, and their labels."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).reshape(-1, 64)
    return (images - images.mean()) / images.std(), torch.tensor(found.target)


def pretrained(images: Tensor, labels: Tensor, draw: int) -> list[Tensor]:
    """The weights of a perceptron that reads digits."""
    generator = seeded(draw)
    drawn = [torch.randn(shape, generator=generator) * (2 / shape[1]) ** 0.5 for shape in SHAPES]
    weights = [weight.requires_grad_() for weight in drawn]
    optimizer = torch.optim.Adam(weights, 1e-3)
    for _ in range(10):
        for batch in torch.randperm(len(images), generator=generator).split(64):
            optimizer.zero_grad()
            first, second, last = weights
            hidden = torch.relu(torch.relu(images[batch] @ first.T) @ second.T)
            cross_entropy(hidden @ last.T, labels[batch]).backward()
            optimizer.step()
    return [weight.detach() for weight in weights]


def adapted(weights: list[Tensor], a: list[Tensor], b: list[Tensor], inputs: Tensor) -> Tensor:
    """The outputs of all adapters at once, shape ``(adapters, batch, 10)``."""
    for layer, weight in enumerate(weights):
        low = SCALE * (inputs @ a[layer].transpose(1, 2)) @ b[layer].transpose(1, 2)
        inputs = inputs @ weight.T + low
        inputs = torch.relu(inputs) if layer < 2 else inputs
    return inputs


def trained(draw: int = 0, epochs: int = 5) -> list[dict[str, tuple[Matrix, Matrix]]]:
    """A and B of each layer of twelve adapters, those of one task behind each other.

    A task is an order of the labels. Each adapter has data and a start of its own.

    Args:
        draw: which base, tasks, data and starts.
        epochs: passes over the data; with five, nine in ten digits are read rightly.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the matrices are small
    try:
        return _trained(draw, epochs)
    finally:
        torch.set_num_threads(threads)


def _trained(draw: int, epochs: int) -> list[dict[str, tuple[Matrix, Matrix]]]:
    images, labels = digits()
    weights, count, first = pretrained(images, labels, draw), TASKS * STARTS, 10_000 * draw
    orders = [torch.randperm(10, generator=seeded(first + 100 + task)) for task in range(TASKS)]
    starts = [seeded(first + 1000 + 17 * (n % STARTS) + n // STARTS) for n in range(count)]
    data = [seeded(first + 5000 + 10 * (n // STARTS) + n % STARTS) for n in range(count)]
    own = [torch.randperm(len(images), generator=each)[:900] for each in data]
    a = []
    for _, inner in SHAPES:
        drawn = [torch.rand(RANK, inner, generator=each) * 2 - 1 for each in starts]
        a.append((torch.stack(drawn) * 1.7 / inner**0.5).requires_grad_())
    b = [torch.zeros(count, out, RANK, requires_grad=True) for out, _ in SHAPES]
    optimizer = torch.optim.AdamW([*a, *b], 1e-2, weight_decay=0.01)
    for _ in range(epochs):
        drawn = [torch.randperm(900, generator=each) for each in data]
        shuffled = [own[n][drawn[n]] for n in range(count)]
        for batch in torch.stack(shuffled).split(50, dim=1):
            targets = torch.stack([orders[n // STARTS][labels[batch[n]]] for n in range(count)])
            outputs = adapted(weights, a, b, images[batch])
            optimizer.zero_grad()
            (count * cross_entropy(outputs.reshape(-1, 10), targets.reshape(-1))).backward()
            optimizer.step()
    layers = range(len(SHAPES))
    return [
        {f"l{i}": (a[i][n].detach().numpy(), b[i][n].detach().numpy()) for i in layers}
        for n in range(count)
    ]


def same_task_auc(scores: Sequence[float]) -> float:
    """How well scores separate pairs of one task from pairs of two: 1 for always, .5 for chance.

    Args:
        scores: of all pairs, in the order of :data:`PAIRS`.
    """
    same = [one // STARTS == other // STARTS for one, other in PAIRS]
    return float(roc_auc_score(same, scores))
