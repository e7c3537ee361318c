"""The clients' data: scikit-learn's digits under a Dirichlet split, and their true order.

It owns the true label distributions and all measures based on them, but no model and no service.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

__all__ = [
    "CLASSES",
    "DECIMALS",
    "CountsOf",
    "Integers",
    "Split",
    "chance",
    "deal",
    "deal_images",
    "jensen_shannon",
    "load_split",
    "recall",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


CLASSES = 10
TEST_SHARE = 0.2
DECIMALS = 9
"""Divergences closer than this many decimals are equal: they differ by rounding alone."""


class CountsOf(Protocol):
    """Says how many samples of each class each client gets, ``(clients, 10)``."""

    def __call__(self, stock: Integers, *, rng: np.random.Generator) -> Integers: ...


@dataclass(frozen=True)
class Split:
    """Digits dealt to clients, with a part kept for testing.

    Attributes:
        images: float32 ``(samples, 1, 8, 8)``, or other shapes; standardised over the training
            part.
        labels: int64 ``(samples,)``, from 0.
        clients: one array of sample indices a client, all of one length, without a common element.
        test: indices of the test samples, which no client has.
        counts: int64 ``(clients, classes)``, the number of samples of each digit for each client.
    """

    images: npt.NDArray[Any]
    labels: Integers
    clients: tuple[Integers, ...]
    test: Integers
    counts: Integers

    @property
    def mixes(self) -> Floats:
        """Each client's label distribution, ``(clients, classes)``; rows sum to 1."""
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True), dtype=np.float64)


def load_split(num_clients: int = 40, alpha: float = 0.1, seed: int = 0) -> Split:
    """scikit-learn's 1,797 digits: a fifth for testing, the rest dealt by Dirichlet(alpha).

    Every client gets the same number of samples, so that clients differ by their labels and not by
    their size. The smaller alpha, the fewer digits a client has. The same seed gives the same
    split.
    """
    digits = load_digits()
    images = digits.images.astype(np.float32)
    counts_of = partial(deal, num_clients=num_clients, alpha=alpha)
    return deal_images(images[:, None], digits.target, counts_of, seed)


def deal_images(
    images: npt.NDArray[Any],
    targets: npt.ArrayLike,
    counts_of: CountsOf,
    seed: int,
    classes: int = CLASSES,
) -> Split:
    """Deal any images to clients: a fifth of each class for testing, the rest by ``counts_of``.

    Args:
        images: images or other values, samples first; int64 values are names and not standardised.
        targets: the label of each, 0 to ``classes`` - 1.
        counts_of: a function of the stock of each class, ``(classes,)``, that returns how many
            samples of each class each client gets.
        seed: the seed of the draws.
        classes: the number of labels.
    """
    rng = np.random.default_rng(seed)
    labels = np.asarray(targets, np.int64)
    by_class = [rng.permutation(np.flatnonzero(labels == c)) for c in range(classes)]
    test = np.concatenate([members[: int(TEST_SHARE * len(members))] for members in by_class])
    stock = [members[int(TEST_SHARE * len(members)) :] for members in by_class]
    counts = counts_of(np.array([len(members) for members in stock]), rng=rng)
    ends = np.cumsum(counts, axis=0)
    clients = tuple(
        np.concatenate([stock[c][end[c] - row[c] : end[c]] for c in range(classes)])
        for row, end in zip(counts, ends, strict=True)
    )
    train = images[np.concatenate(clients)]
    standard = images if images.dtype == np.int64 else (images - train.mean()) / train.std()
    return Split(standard, labels, clients, test, counts)


def deal(stock: Integers, num_clients: int, alpha: float, rng: np.random.Generator) -> Integers:
    """The number of samples of each class for every client.

    Args:
        stock: available samples of each class, ``(classes,)``.

    Returns:
        ``(clients, classes)``; rows sum to ``stock.sum() // num_clients``, columns to at most
        ``stock``.
    """
    size = int(stock.sum()) // num_clients
    wanted = rng.dirichlet(np.full(len(stock), alpha), num_clients) + 1e-9
    # Scale columns to the stock and rows to the size, in turn, until both fit (Sinkhorn).
    for _ in range(300):
        wanted *= stock / wanted.sum(axis=0)
        wanted *= size / wanted.sum(axis=1, keepdims=True)
    counts = np.zeros_like(wanted, dtype=np.int64)
    left = stock.astype(np.int64)
    for client in rng.permutation(num_clients):
        # Deal one sample at a time, of the class that is furthest behind and still in stock.
        for _ in range(size):
            behind = np.where(left > 0, wanted[client] - counts[client], -np.inf)
            chosen = int(np.argmax(behind))
            counts[client, chosen] += 1
            left[chosen] -= 1
    return counts


def jensen_shannon(mixes: Floats) -> Floats:
    """The Jensen-Shannon divergence, base 2, of all pairs of rows: 0 if equal, 1 if disjoint.

    Args:
        mixes: ``(n, classes)``, rows sum to 1.

    Returns:
        ``(n, n)``, symmetric.
    """
    p, q = mixes[:, None], mixes[None]
    middle = (p + q) / 2
    divergence = (_relative_entropy(p, middle) + _relative_entropy(q, middle)) / 2
    return np.asarray(np.maximum(divergence, 0.0))


def _relative_entropy(p: Floats, q: Floats) -> Floats:
    ratio = np.divide(p, q, out=np.ones(np.broadcast_shapes(p.shape, q.shape)), where=p > 0)
    return np.asarray((p * np.log2(ratio)).sum(axis=-1))


def true_neighbors(divergences: Floats, client: int, k: int) -> npt.NDArray[np.bool_]:
    """Return the k nearest clients to one client, ``(n,)``, with all that tie with the k-th."""
    row = np.round(divergences[client], DECIMALS)
    others = np.delete(row, client)
    near = row <= np.sort(others)[k - 1]
    near[client] = False
    return np.asarray(near)


def recall(found: list[int], divergences: Floats, client: int) -> float:
    """The share of the clients found that are true neighbours, ties with the last included."""
    near = true_neighbors(divergences, client, len(found))
    return float(np.mean([near[other] for other in found]))


def chance(divergences: Floats, k: int) -> float:
    """The mean recall of k clients drawn at random, under the same rule for ties."""
    n = len(divergences)
    return float(np.mean([true_neighbors(divergences, i, k).sum() / (n - 1) for i in range(n)]))
