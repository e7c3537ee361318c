"""What a newcomer's model is worth by where it starts, on digits that clusters see turned.

Groups of clients see the same digits turned by 0, 90, 180 and 270 degrees. Each group trains a
model by federated averaging; a newcomer of a group has a few samples and takes its start from one
of these models, or from none. All models are trained by the same rules.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from demo.planted import CLASSES, GROUPS, images
from modelkin.core.learngenes.aggregate import aggregate

__all__ = ["Newcomer", "World", "accuracy", "network", "train", "world"]

Integers = npt.NDArray[np.int64]

RATE: Final = 0.01
MOMENTUM: Final = 0.9
DECAY: Final = 5e-4
BATCH: Final = 10
_MEMBERS: Final = 5
_SAMPLES: Final = 32
_TEST: Final = 0.2


@dataclass(frozen=True)
class Newcomer:
    """A client with a few samples, and what its model is tested on.

    Attributes:
        group: the planted group, 0 to 3.
        samples: ``(n, 1, 8, 8)``; ``labels`` are ``(n,)``.
        test_samples: of all classes, turned as the group's; ``test_labels`` likewise.
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
        models: of each group.
        newcomers: the groups in turn.
        samples: of the clients, the groups in turn, ``(clients, n, 1, 8, 8)``.
    """

    models: tuple[nn.Sequential, ...]
    newcomers: tuple[Newcomer, ...]
    samples: Tensor


def network(seed: int) -> nn.Sequential:
    """Four convolutions and two linear layers: 25,274 parameters in six layers, the last the head.

    Weights are normal as He et al. (2015) have them, the head's halved; biases are zero.
    """
    model = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 16, 3, padding=1),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(16, 16, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(16, 32, 3, padding=1),
            relu3=nn.ReLU(),
            conv4=nn.Conv2d(32, 32, 3, padding=1),
            relu4=nn.ReLU(),
            pool4=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(128, 64),
            relu5=nn.ReLU(),
            head=nn.Linear(64, CLASSES),
        )
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
                continue
            width = (2 / parameter[0].numel()) ** 0.5
            scale = width / 2 if name.startswith("head") else width
            parameter.normal_(0, scale, generator=generator)
    return model


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
        seed: of all that is random.
        rounds: of averaging.
        epochs: of each client in a round.
        num_newcomers: how many, the groups in turn.
        newcomer_samples: of each, of all classes alike; none of them is in another client.
    """
    drawn, labels = images("digits", seed)
    test = np.zeros(labels.size, bool)
    for label in range(CLASSES):
        own = np.flatnonzero(labels == label)
        test[own[: int(_TEST * own.size)]] = True
    rng = np.random.default_rng([seed, 4])
    sizes = [_SAMPLES] * (GROUPS * _MEMBERS) + [newcomer_samples] * num_newcomers
    dealt = _dealt(labels, np.flatnonzero(~test), sizes, rng)
    clients, newcomers = dealt[: GROUPS * _MEMBERS], dealt[GROUPS * _MEMBERS :]

    def turned(chosen: npt.NDArray[np.generic], group: int) -> Tensor:
        return torch.from_numpy(np.rot90(drawn[chosen], group, axes=(-2, -1)).copy()[:, None])

    held = torch.stack([turned(own, at % GROUPS) for at, own in enumerate(clients)])
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
                turned(own, at % GROUPS),
                torch.from_numpy(labels[own]),
                turned(np.flatnonzero(test), at % GROUPS),
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


def _dealt(
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
    template, count = network(seed), len(labels)
    generator = torch.Generator().manual_seed(seed)

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(template, weights, (x,)), y)

    gradient = vmap(grad(loss))
    start = {name: parameter.detach().numpy() for name, parameter in template.named_parameters()}
    theirs = [start] * GROUPS
    for _ in range(rounds):
        weights = {
            name: torch.from_numpy(np.stack([theirs[at % GROUPS][name] for at in range(count)]))
            for name in start
        }
        speed = {name: torch.zeros_like(values) for name, values in weights.items()}
        for _ in range(epochs):
            order = torch.rand(count, labels.shape[1], generator=generator).argsort(1)
            for batch in order[:, : labels.shape[1] // BATCH * BATCH].split(BATCH, dim=1):
                x = torch.stack([own[at] for own, at in zip(samples, batch, strict=True)])
                found = gradient(weights, x, labels.gather(1, batch))
                for name, values in weights.items():
                    step = found[name].add(values, alpha=DECAY)
                    speed[name].mul_(MOMENTUM).add_(step)
                    values.sub_(speed[name], alpha=RATE)
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
