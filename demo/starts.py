"""The worth of a newcomer's model by its start, on digits that clusters see turned.

Groups of clients see the same digits turned by 0, 90, 180 and 270 degrees. Each group trains a
model by federated averaging; a newcomer of a group has a few samples and takes its start from one
of these models, or from none. All models are trained by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from demo.cohort import BATCH, DECAY, MOMENTUM, RATE, Cohort, network, stack
from demo.planted import CLASSES, GROUPS, images
from modelkin.federation.learngenes.aggregate import aggregate

__all__ = ["Newcomer", "World", "accuracy", "network", "train", "world"]

Integers = npt.NDArray[np.int64]

_MEMBERS: Final = 5
_SAMPLES: Final = 32
_TEST: Final = 0.2


@dataclass(frozen=True)
class Newcomer:
    """A client with a few samples, and the samples on which its model is tested.

    Attributes:
        group: the planted group, 0 to 3.
        samples: the training samples, ``(n, 1, 8, 8)``; ``labels`` are ``(n,)``.
        test_samples: samples of all classes, turned as the group's, with ``test_labels``.
    """

    group: int
    samples: Tensor
    labels: Tensor
    test_samples: Tensor
    test_labels: Tensor


@dataclass(frozen=True)
class World:
    """Clients, the models of their clusters, and newcomers.

    Attributes:
        models: the model of each group.
        newcomers: the newcomers, of the groups in turn.
        samples: the clients' samples, of the groups in turn, ``(clients, n, 1, 8, 8)``.
    """

    models: tuple[nn.Sequential, ...]
    newcomers: tuple[Newcomer, ...]
    samples: Tensor


def world(
    seed: int,
    *,
    rounds: int = 40,
    epochs: int = 2,
    num_newcomers: int = 20,
    newcomer_samples: int = 20,
) -> World:
    """Clusters of five clients with 32 samples each, trained by federated averaging.

    Args:
        seed: the seed of all that is random.
        rounds: the number of rounds of averaging.
        epochs: the number of epochs of each client in a round.
        num_newcomers: the number of newcomers, of the groups in turn.
        newcomer_samples: the number of samples of each newcomer, the same of each class; no other
            client has them.
    """
    drawn, labels = images("digits", seed)
    test = np.zeros(labels.size, bool)
    for label in range(CLASSES):
        own = np.flatnonzero(labels == label)
        test[own[: int(_TEST * own.size)]] = True
    rng = np.random.default_rng([seed, 4])
    sizes = [_SAMPLES] * (GROUPS * _MEMBERS) + [newcomer_samples] * num_newcomers
    dealt = _deal(labels, np.flatnonzero(~test), sizes, rng)
    clients, newcomers = dealt[: GROUPS * _MEMBERS], dealt[GROUPS * _MEMBERS :]

    def turn(chosen: npt.NDArray[np.generic], group: int) -> Tensor:
        return torch.from_numpy(np.rot90(drawn[chosen], group, axes=(-2, -1)).copy()[:, None])

    held = torch.stack([turn(own, at % GROUPS) for at, own in enumerate(clients)])
    models = _clusters(
        held,
        torch.from_numpy(np.stack([labels[own] for own in clients])),
        seed,
        rounds,
        epochs,
    )
    return World(
        models,
        tuple(
            Newcomer(
                at % GROUPS,
                turn(own, at % GROUPS),
                torch.from_numpy(labels[own]),
                turn(np.flatnonzero(test), at % GROUPS),
                torch.from_numpy(labels[test]),
            )
            for at, own in enumerate(newcomers)
        ),
        held,
    )


def train(model: nn.Module, samples: Tensor, labels: Tensor, epochs: int, seed: int) -> None:
    """Train by stochastic gradient descent, in batches of ten in random order."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(labels), generator=generator)
        for batch in order[: len(order) // BATCH * BATCH].split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(samples[batch]), labels[batch]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, newcomer: Newcomer) -> float:
    """The share of the newcomer's test samples that are classified right."""
    found = model(newcomer.test_samples).argmax(1)
    return float((found == newcomer.test_labels).float().mean())


def _deal(
    labels: Integers, stock: Integers, sizes: Sequence[int], rng: np.random.Generator
) -> list[Integers]:
    """Samples of all classes alike for each client; where a class has run out, drawn again."""
    every = [stock[labels[stock] == label] for label in range(CLASSES)]
    left = [rng.permutation(own).tolist() for own in every]
    dealt = []
    for size in sizes:
        chosen = [
            left[at % CLASSES].pop() if left[at % CLASSES] else rng.choice(every[at % CLASSES])
            for at in range(size)
        ]
        dealt.append(rng.permutation(np.array(chosen, np.int64)))
    return dealt


def _clusters(
    samples: Tensor, labels: Tensor, seed: int, rounds: int, epochs: int
) -> tuple[nn.Sequential, ...]:
    """A model for each group, from clients whose groups are in turn.

    All clients take their steps side by side, each with its own weights.
    """
    cohort, count = Cohort(network(seed), samples, labels), len(labels)
    generator = torch.Generator().manual_seed(seed)
    start = {name: values.numpy()[0] for name, values in stack([cohort.template]).items()}
    theirs = [start] * GROUPS
    for _ in range(rounds):
        weights = {
            name: torch.from_numpy(np.stack([theirs[at % GROUPS][name] for at in range(count)]))
            for name in start
        }
        cohort.train(weights, epochs, generator)
        sent = [
            {name: values[at].numpy() for name, values in weights.items()} for at in range(count)
        ]
        theirs = [
            aggregate(theirs[group], {at: sent[at] for at in range(group, count, GROUPS)}).tensors
            for group in range(GROUPS)
        ]
    models = []
    for found in theirs:
        model = network(seed)
        model.load_state_dict({name: torch.from_numpy(values) for name, values in found.items()})
        models.append(model)
    return tuple(models)
