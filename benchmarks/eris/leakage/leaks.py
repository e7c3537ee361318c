"""Trainings whose receivers are attacked, in several settings: what is learned, and what shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.eris.data import Clients, Dataset
from benchmarks.eris.leakage.attack import ALONE, Attack
from benchmarks.eris.leakage.receivers import SUM
from benchmarks.eris.leakage.trainings import GLOBAL, Start, Training
from benchmarks.eris.membership import (
    CANARIES,
    KNOWN,
    RATE,
    ROUNDS,
    Client,
    N,
    Scores,
    dealt,
)
from benchmarks.eris.networks import Flat, mlp
from benchmarks.plots import Point
from modelkin.torch.privacy.metrics import auc

__all__ = ["ALIKE", "Area", "Leak", "Setting", "alone", "area", "front", "leaks", "points", "train"]

LAST: Final = 5
"""The rounds at the end whose models' accuracies are averaged."""


@dataclass(frozen=True, slots=True)
class Leak:
    """What a method learns and shows.

    Attributes:
        family: of methods that differ by strength alone.
        name: in the table.
        accuracy: mean over the seeds.
        spread: its deviation.
        area: under the ROC curve of the best attack.
        attack: which that is.
        alone: the same where candidates of the attacked client alone are known.
    """

    family: str
    name: str
    accuracy: float
    spread: float
    area: float
    attack: str
    alone: float


Area = Callable[[Leak], float]


def area(leak: Leak) -> float:
    """With candidates of all clients known."""
    return leak.area


def alone(leak: Leak) -> float:
    """With candidates of one client known."""
    return leak.alone


@dataclass(frozen=True, slots=True)
class Setting:
    """The clients and their rounds.

    Attributes:
        clients: how many.
        known: samples of a client that are no canaries.
        canaries: of a client, each in or out by a fair coin.
        rounds: how many.
        steps: of a client in a round.
        alpha: of the Dirichlet mixes of labels; clients are alike without.
    """

    clients: int = N
    known: int = KNOWN
    canaries: int = CANARIES
    rounds: int = ROUNDS
    steps: int = 1
    alpha: float | None = None


ALIKE: Final = Setting()


def train(
    data: Dataset, start: Start, setting: Setting, seed: int
) -> tuple[float, dict[tuple[str, str], Scores], list[Client]]:
    """The accuracy on what no client has, the scores, and the clients with their coins."""
    clients, rest = dealt(
        data, seed, setting.clients, setting.known, setting.canaries, setting.alpha
    )
    flat = Flat(mlp(data.inputs[0].numel(), data.classes, seed=seed))
    attack, exchange = Attack(flat, clients), start(flat.size, len(clients), seed)
    inputs, labels, share = _stacked(clients, setting.known)
    test = Clients(inputs, labels, data.inputs[rest], data.labels[rest])
    models, accuracies = flat.start.expand(len(clients), -1), []
    for number in range(setting.rounds):
        gradients = flat.sample_gradients(models, inputs, labels)
        updates = -RATE * torch.einsum("ks,ksm->km", share, gradients)
        for _ in range(setting.steps - 1):
            further = flat.weighted_gradients(models + updates, inputs, labels, share)
            updates = updates - RATE * further
        after = exchange(models, updates, number)
        looking, theirs = models, gradients[:, setting.known :]
        if not exchange.public:  # client k + 1 looks at client k, from its own model
            looking = models.roll(-1, 0)
            theirs = attack.gradients(looking)
        attack.round(looking, theirs, exchange.seen)
        models = after
        if number >= setting.rounds - LAST:
            different = models.unique(dim=0)
            accuracies.append(np.mean([flat.accuracy(model, test) for model in different]))
    return float(np.mean(accuracies)), dict(attack.scores), clients


def _stacked(clients: list[Client], known: int) -> tuple[Tensor, Tensor, Tensor]:
    """The known samples and all canaries of each client, and their shares in its gradient."""
    inputs = torch.stack([torch.cat([c.inputs[:known], c.canary_inputs]) for c in clients])
    labels = torch.stack([torch.cat([c.labels[:known], c.canary_labels]) for c in clients])
    ones = np.ones(known)
    inside = np.stack([np.concatenate([ones, client.truth]) for client in clients])
    share = inside / inside.sum(1, keepdims=True)
    return inputs, labels, torch.from_numpy(share.astype(np.float32))


def leaks(
    data: Dataset, training: Training, seeds: int, setting: Setting = ALIKE
) -> Iterator[Leak]:
    """Each method of a training, over some seeds."""
    accuracies, truths, scores = [], [], defaultdict(list)
    for seed in range(seeds):
        accuracy, found, clients = train(data, training.start, setting, seed)
        accuracies.append(accuracy)
        truths.append(np.concatenate([client.truth for client in clients]))
        for key, rows in found.items():
            scores[key].append(rows.ravel())
    truth = np.concatenate(truths)
    areas = {key: auc(np.concatenate(rows), truth) for key, rows in scores.items()}
    mean, spread = float(np.mean(accuracies)), float(np.std(accuracies))
    for (family, name), views in training.views.items():
        mine = [(found, of, attack) for (of, attack), found in areas.items() if _has(views, of)]
        best, _, attack = max(mine)
        one, *_ = max(each for each in mine if not _of_everyone(each[1]))
        yield Leak(family, name, mean, spread, best, attack, one)


def _has(views: tuple[str, ...], of: str) -> bool:
    """Whether a receiver has that view: its own in some way, and models, which all have."""
    return not of or of.split(",")[0] in views


def _of_everyone(view: str) -> bool:
    """Whether candidates of all clients are fitted together."""
    return view.startswith(SUM) and not view.endswith(ALONE)


def front(found: Sequence[Leak], shown: Area) -> set[str]:
    """The methods that no other beats: none is as accurate and shows as little, and better in one.

    The global models are no method, and all receivers have them.
    """
    methods = [leak for leak in found if leak.name != GLOBAL]
    return {
        leak.name
        for leak in methods
        if not any(
            other.accuracy >= leak.accuracy
            and shown(other) <= shown(leak)
            and (other.accuracy, shown(other)) != (leak.accuracy, shown(leak))
            for other in methods
        )
    }


def points(found: Sequence[Leak], shown: Area) -> list[Point]:
    """The methods in the plane of accuracy and what is shown."""
    best = front(found, shown)
    return [Point(each.family, each.accuracy, shown(each), each.name in best) for each in found]
