"""Clients with a planted structure, on scikit-learn's digits or on synthetic images.

Groups differ by their labels (with or without labels of all in each), or by a *concept*: how
images are turned or drawn, or which names labels have. No network, and no comparison, is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_digits

from demo.data import deal

__all__ = [
    "CLASSES",
    "CONCEPTS",
    "DRAWN",
    "GROUPS",
    "Clients",
    "Data",
    "images",
    "newcomers",
    "plant",
    "plant_among",
]

Images = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Data = Literal["digits", "synthetic"]
Change = Callable[[Images, Integers, int], tuple[Images, Integers]]

CLASSES: Final = 10
GROUPS: Final = 4
CONCEPTS: Final = ("rotations", "styles", "permuted labels", "swapped labels")
DRAWN: Final = ", drawn"
"""The end of a scenario whose clients have labels by chance, in place of equal numbers of each."""
_NOISE: Final = 0.4
"""The share of a client's samples that are of any label."""
_SYNTHETIC: Final = 3_000


@dataclass(frozen=True)
class Clients:
    """The samples of N clients, the same number for each.

    Attributes:
        samples: the samples of each client, float32 ``(n, side, side)``.
        labels: the labels of each client's samples, ``(n,)``.
        groups: the planted group of each client, ``(N,)``; all 0 without groups.
        mixes: the label distribution of each client, ``(N, 10)``; rows sum to 1.
    """

    samples: tuple[Images, ...]
    labels: tuple[Integers, ...]
    groups: Integers
    mixes: npt.NDArray[np.float64]


@cache
def images(data: Data, seed: int, count: int = _SYNTHETIC) -> tuple[Images, Integers]:
    """Standardised images, ``(samples, side, side)``, and their labels, in random order.

    Synthetic images are 12 x 12: ten classes of three smooth shapes each, moved and scaled, in
    noise; ``count`` in all.
    """
    rng = np.random.default_rng([seed, 1])
    if data == "digits":
        digits = load_digits()
        drawn, labels = digits.images.astype(np.float32), digits.target.astype(np.int64)
    else:
        drawn, labels = _synthetic(rng, count)
    order = rng.permutation(labels.size)
    drawn, labels = drawn[order], labels[order]
    return ((drawn - drawn.mean()) / drawn.std()).astype(np.float32), labels


def _synthetic(rng: np.random.Generator, count: int) -> tuple[Images, Integers]:
    shapes = np.stack([gaussian_filter(rng.normal(size=(16, 16)), 1.6) for _ in range(30)])
    shapes /= shapes.std(axis=(1, 2), keepdims=True)
    labels = rng.integers(0, CLASSES, count)
    chosen = shapes[labels * 3 + rng.integers(0, 3, count)]
    down, right = rng.integers(0, 5, (2, count))
    moved = np.stack(
        [shape[a : a + 12, b : b + 12] for shape, a, b in zip(chosen, down, right, strict=True)]
    )
    noise = gaussian_filter(rng.normal(size=moved.shape), (0, 0.7, 0.7)) * 1.6
    drawn = moved * rng.uniform(0.6, 1.4, (count, 1, 1)) + noise
    return drawn.astype(np.float32), labels


def plant(scenario: str, *, data: Data = "digits", num_clients: int = 24, seed: int = 0) -> Clients:
    """Clients of a scenario; no two have a sample in common.

    Args:
        scenario: ``labels`` or ``noisy labels`` (40% of any label in each client); ``dirichlet A``;
            ``iid`` or one of :data:`CONCEPTS`, on clients with equal numbers of each label, or with
            :data:`DRAWN` after it on clients with any samples.
        data: the source of the images.
        num_clients: N.
        seed: the seed of all that is random.
    """
    drawn, labels = images(data, seed)
    return plant_among(drawn, labels, scenario, num_clients=num_clients, seed=seed)


def plant_among(
    drawn: Images,
    labels: Integers,
    scenario: str,
    *,
    num_clients: int = 24,
    seed: int = 0,
    classes: int = CLASSES,
) -> Clients:
    """Clients of a scenario on any samples.

    Args:
        drawn: ``(samples, ...)``; rotations and styles change the last two dimensions.
        labels: the label of each sample, 0 to ``classes`` - 1.
        scenario: a scenario of :func:`plant`.
        num_clients: N.
        seed: the seed of all that is random.
        classes: the number of labels.

    Raises:
        ValueError: there are too few samples for each client to have one.
    """
    rng = np.random.default_rng([seed, 2])
    groups = np.arange(num_clients) % GROUPS
    stock = np.bincount(labels, minlength=classes)
    if scenario.startswith("dirichlet "):
        counts = deal(stock, num_clients, float(scenario.split()[1]), rng)
    elif scenario in ("labels", "noisy labels"):
        counts = _by_label(stock, groups, _NOISE if scenario == "noisy labels" else 0.0, rng)
    elif scenario.endswith(DRAWN):
        counts = _by_chance(labels, num_clients, classes, rng)
    else:
        counts = np.tile(stock // num_clients, (num_clients, 1))
    if not counts.any(axis=1).all():
        raise ValueError(f"{labels.size} samples are too few for {num_clients} clients")
    change = _change(scenario.removesuffix(DRAWN), rng, classes)
    dealt = _deal_samples(labels, counts, rng)
    changed = [
        change(drawn[own], labels[own], int(group))
        for own, group in zip(dealt, groups, strict=True)
    ]
    if scenario.removesuffix(DRAWN) == "iid" or scenario.startswith("dirichlet"):
        groups = np.zeros_like(groups)
    return Clients(
        tuple(each[0] for each in changed),
        tuple(each[1] for each in changed),
        groups,
        counts / counts.sum(axis=1, keepdims=True),
    )


def newcomers(
    concept: str,
    *,
    known: bool,
    samples: int = 20,
    data: Data = "digits",
    num_clients: int = 24,
    num_newcomers: int = 12,
    seed: int = 0,
) -> tuple[Clients, Clients]:
    """Clients with four of five classes each, in groups by a concept, and newcomers to place.

    Args:
        concept: one of :data:`CONCEPTS`.
        known: whether newcomers have four of the clients' five classes, or of the other five
            classes.
        samples: the number of samples of a newcomer; a client has 32.
        data: the source of the images.
        num_clients: N.
        num_newcomers: the number of newcomers.
        seed: the seed of all that is random.

    Returns:
        The clients, and the newcomers; images may be in several of them, in any turn.
    """
    drawn, labels = images(data, seed)
    rng = np.random.default_rng([seed, 3, samples])
    order = rng.permutation(CLASSES)
    change = _change(concept, rng, CLASSES)

    def make(count: int, classes: Integers, size: int) -> Clients:
        groups = np.arange(count) % GROUPS
        counts = np.zeros((count, CLASSES), np.int64)
        changed = []
        for row, group in zip(counts, groups, strict=True):
            row[rng.permutation(classes)[:4]] = size // 4
            own = np.concatenate(
                [rng.choice(np.flatnonzero(labels == c), row[c], replace=False) for c in range(10)]
            )
            changed.append(change(drawn[own], labels[own], int(group)))
        mixes = counts / counts.sum(axis=1, keepdims=True)
        return Clients(
            tuple(each[0] for each in changed), tuple(each[1] for each in changed), groups, mixes
        )

    return make(num_clients, order[:5], 32), make(
        num_newcomers, order[:5] if known else order[5:], samples
    )


def _by_label(
    stock: Integers, groups: Integers, noise: float, rng: np.random.Generator
) -> Integers:
    """Return each client's number of samples of each label, where groups have different labels."""
    members, classes = groups.size // GROUPS, stock.size
    labels_of = np.array_split(np.arange(classes), GROUPS)
    size = min(int(stock[own].sum()) for own in labels_of) // members
    size = int(size * 0.9) if noise else size
    wanted = np.zeros((groups.size, classes))
    for row, group in zip(wanted, groups, strict=True):
        own = labels_of[group]
        row[own] = (1 - noise) * rng.dirichlet(np.full(len(own), 5.0))
        row += noise / classes
    # Scale columns down to the stock and rows to the size, in turn, until both fit (Sinkhorn).
    for _ in range(300):
        wanted /= np.maximum(wanted.sum(axis=0) * size / stock, 1.0)
        wanted /= wanted.sum(axis=1, keepdims=True)
    counts = np.floor(wanted * size).astype(np.int64)
    left = stock - counts.sum(axis=0)
    for client in rng.permutation(groups.size):
        for _ in range(size - counts[client].sum()):
            behind = np.where(left > 0, wanted[client] * size - counts[client], -np.inf)
            chosen = int(np.argmax(behind))
            counts[client, chosen] += 1
            left[chosen] -= 1
    return counts


def _by_chance(
    labels: Integers, num_clients: int, classes: int, rng: np.random.Generator
) -> Integers:
    """Return each client's number of samples of each label, where any samples are dealt."""
    size = labels.size // num_clients
    dealt = rng.permutation(labels)[: size * num_clients].reshape(num_clients, size)
    return np.stack([np.bincount(own, minlength=classes) for own in dealt])


def _deal_samples(labels: Integers, counts: Integers, rng: np.random.Generator) -> list[Integers]:
    """The samples of each client, in random order."""
    ends, classes = np.cumsum(counts, axis=0), range(counts.shape[1])
    stock = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
    return [
        rng.permutation(np.concatenate([stock[c][end[c] - row[c] : end[c]] for c in classes]))
        for row, end in zip(counts, ends, strict=True)
    ]


def _change(scenario: str, rng: np.random.Generator, classes: int) -> Change:
    """The change that a group makes to its images and labels."""
    if scenario == "rotations":
        return lambda x, y, group: (np.rot90(x, group, axes=(-2, -1)).copy(), y)
    if scenario == "styles":
        return lambda x, y, group: (_in_style(x, group), y)
    if scenario in ("permuted labels", "swapped labels"):
        names = np.tile(np.arange(classes), (GROUPS, 1))
        for group in range(1, GROUPS):
            if scenario == "permuted labels":
                names[group] = rng.permutation(classes)
            else:
                names[group, [2 * group, 2 * group + 1]] = [2 * group + 1, 2 * group]
        return lambda x, y, group: (x, names[group][y])
    return lambda x, y, _group: (x, y)


def _in_style(x: Images, group: int) -> Images:
    """Return the images in a group's style: unchanged, negative, blurred, or pale over a ramp."""
    if group == 0:
        return x
    if group == 1:
        return -x
    if group == 2:
        return np.asarray(gaussian_filter(x, (*(0,) * (x.ndim - 2), 1, 1)), np.float32)
    ramp = np.linspace(-1.0, 1.0, x.shape[-1], dtype=np.float32)
    return np.asarray(0.5 * x + ramp, np.float32)
