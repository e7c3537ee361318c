"""Clients and newcomers of federations, by the classes that they have and how they see them.

Data are standardised: scikit-learn's digits, or what ``--data-dir`` has of ten classes and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.eris.data import Dataset, digits, given
from demo.cohort import Cohort, network

__all__ = [
    "CLIENTS",
    "GROUPS",
    "Parties",
    "Population",
    "datasets",
    "of_all_classes",
    "of_halves",
    "of_mixes",
]

Integers = npt.NDArray[np.int64]
Labels = Callable[[int], Integers]
"""The labels of so many samples of one party."""

CLIENTS: Final = 20
GROUPS: Final = 4
"""Ways to turn images, where clusters differ by it."""

_SAMPLES: Final = 32
_NEWCOMER_SAMPLES: Final = 20
_TEST: Final = 0.2
_TEST_SAMPLES: Final = 140


@dataclass(frozen=True)
class Parties:
    """Clients, or newcomers, and what each is tested on.

    Attributes:
        cohort: their samples, and how they train.
        test_samples: of the classes of each, turned as its own, ``(parties, t, ...)``.
        test_labels: ``(parties, t)``.
    """

    cohort: Cohort
    test_samples: Tensor
    test_labels: Tensor

    def accuracy(self, weights: dict[str, Tensor]) -> float:
        """The mean over parties."""
        found = self.cohort.accuracies(weights, self.test_samples, self.test_labels)
        return float(found.mean())


@dataclass(frozen=True)
class Population:
    """A federation's clients, and newcomers after it.

    Attributes:
        clients: those that take part.
        newcomers: as many, with fewer samples.
        groups: of the clients, and likewise of the newcomers; all 0 where images are not turned.
        start: the seed of the common start.
    """

    clients: Parties
    newcomers: Parties
    groups: Integers
    start: int


def datasets() -> Iterator[Dataset]:
    """The digits, and images of ``--data-dir``."""
    yield digits()
    yield from (data for data in given() if data.classes >= 10)


def of_halves(data: Dataset, seed: int, *, turned: bool = False) -> Population:
    """Clients have four fifths of one half of the classes, newcomers of the other half.

    Args:
        data: the images.
        seed: of everything.
        turned: whether four groups see the images turned.
    """
    rng = np.random.default_rng([seed, 11])
    order = rng.permutation(data.classes)
    half = data.classes // 2

    def drawn(classes: Integers) -> list[Labels]:
        each = [rng.permutation(classes)[: half * 4 // 5] for _ in range(CLIENTS)]
        return [partial(np.resize, own) for own in each]

    return _population(data, seed, drawn(order[:half]), drawn(order[half:]), turned, rng)


def of_all_classes(data: Dataset, seed: int) -> Population:
    """Clients and newcomers have all classes; four groups see them turned."""
    everything: list[Labels] = [partial(np.resize, np.arange(data.classes))] * CLIENTS
    rng = np.random.default_rng([seed, 12])
    return _population(data, seed, everything, everything, True, rng)


def of_mixes(data: Dataset, seed: int, beta: float) -> Population:
    """Clients and newcomers have label mixes by Dirichlet(beta), and are tested on their own."""
    rng = np.random.default_rng([seed, 13])

    def labels(count: int, mix: npt.NDArray[np.float64]) -> Integers:
        return rng.choice(data.classes, count, p=mix)

    def drawn() -> list[Labels]:
        mixes = rng.dirichlet(np.full(data.classes, beta), CLIENTS)
        return [partial(labels, mix=mix) for mix in mixes]

    return _population(data, seed, drawn(), drawn(), False, rng)


def _population(
    data: Dataset,
    seed: int,
    of_clients: list[Labels],
    of_newcomers: list[Labels],
    turned: bool,
    rng: np.random.Generator,
) -> Population:
    groups = np.arange(CLIENTS) % GROUPS if turned else np.zeros(CLIENTS, np.int64)
    stock = _Stock(data, rng)
    channels, side = data.inputs.shape[1], data.inputs.shape[-1]
    template = network(seed, channels=channels, side=side, classes=data.classes)

    def parties(labels: list[Labels], size: int) -> Parties:
        held = [stock.dealt(own(size)) for own in labels]
        tested = [stock.tested(own(_TEST_SAMPLES)) for own in labels]
        cohort = Cohort(template, stock.images(held, groups), stock.labels(held))
        return Parties(cohort, stock.images(tested, groups), stock.labels(tested))

    clients = parties(of_clients, _SAMPLES)
    return Population(clients, parties(of_newcomers, _NEWCOMER_SAMPLES), groups, seed)


class _Stock:
    """The samples of a data set: a fifth to test on, the others to deal."""

    def __init__(self, data: Dataset, rng: np.random.Generator) -> None:
        inputs = data.inputs
        self._inputs = (inputs - inputs.mean()) / inputs.std(correction=0)
        self._labels, self._rng = data.labels, rng
        self._left, self._every, self._test = list[list[int]](), list[Integers](), list[Integers]()
        for label in range(data.classes):
            own = rng.permutation(np.flatnonzero(data.labels.numpy() == label))
            cut = int(_TEST * own.size)
            self._test.append(own[:cut])
            self._every.append(own[cut:])
            self._left.append(own[cut:].tolist())

    def dealt(self, labels: Integers) -> Integers:
        """samples that no party has yet; where a class has run out, any of it."""
        chosen = [
            self._left[label].pop() if self._left[label] else self._rng.choice(self._every[label])
            for label in labels.tolist()
        ]
        return self._rng.permutation(np.array(chosen, np.int64))

    def tested(self, labels: Integers) -> Integers:
        """Test samples, different ones as long as a class has more."""
        found = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            own = labels == label
            found[own] = np.resize(self._rng.permutation(self._test[label]), own.sum())
        return found

    def images(self, chosen: list[Integers], groups: Integers) -> Tensor:
        """The images of each party, turned as those of its group."""
        return torch.stack(
            [
                torch.rot90(self._inputs[torch.from_numpy(own)], int(group), dims=(-2, -1))
                for own, group in zip(chosen, groups, strict=True)
            ]
        ).contiguous()

    def labels(self, chosen: list[Integers]) -> Tensor:
        """The labels of each party."""
        return torch.stack([self._labels[torch.from_numpy(own)] for own in chosen])
