"""Clustered federated learning: models that clusters train, and two methods that find their own.

Beside clusters, models that each client averages over its neighbours in a graph.

Sources: IFCA, Ghosh et al., NeurIPS 2020; clustered federated learning, Sattler et al., 2020;
Per-FedAvg, Fallah et al., NeurIPS 2020, of the first order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from sklearn.cluster import AgglomerativeClustering
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from demo.cohort import RATE, Cohort, Weights
from demo.data import Integers
from studies.federations import Federation, Floats, flat
from studies.networks.small import common_model

__all__ = ["EPOCHS", "ROUNDS", "STEP", "Meta", "Personal", "ifca", "on_graph", "split_by_updates"]

ROUNDS: Final = 15
EPOCHS: Final = 2
STEP: Final = RATE
"""The rate of the step that adapts a model to a client: that of training, the source's 0.01."""
_FIRST_SPLIT: Final = 3
"""Rounds before Sattler's method may split."""
_STATIONARY: Final = 0.5
"""It splits a cluster whose mean update is shorter than this share of the longest."""


class Personal:
    """Accuracies of clients whose models are averaged within clusters; each clustering once.

    Args:
        federation: of the clients.
        epochs: of each client in a round.
        rounds: how many; by default :data:`ROUNDS`.

    Attributes:
        accuracies: after each round, by the cluster of each client: of what was asked for.
    """

    def __init__(
        self, federation: Federation, epochs: int = EPOCHS, rounds: int | None = None
    ) -> None:
        self._federation, self._epochs, self._rounds = federation, epochs, rounds
        self._cohort = Cohort(federation.model, federation.samples, federation.labels)
        self.accuracies: dict[tuple[int, ...], list[float]] = {}

    def accuracy(self, labels: Integers) -> float:
        """The mean over clients after the last round, each on its own test samples.

        Args:
            labels: the cluster of each client, ``(N,)``; their numbers do not matter.
        """
        return self.by_round(labels)[-1]

    def by_round(self, labels: Integers) -> list[float]:
        """The same after each round."""
        key = _canonical(labels)
        if key not in self.accuracies:
            federation, weights = self._federation, self._federation.start
            found = []
            for number in range(self._rounds or ROUNDS):
                _local(self._cohort, weights, federation.setting.seed, number, self._epochs)
                _average(weights, np.array(key))
                found.append(_accuracy(federation, self._cohort, weights))
            self.accuracies[key] = found
        return self.accuracies[key]


def ifca(federation: Federation, clusters: int) -> tuple[Integers, list[float]]:
    """Clusters by which of several models has the least loss, and accuracies after each round.

    Args:
        federation: of the clients.
        clusters: how many models, each from initial weights of its own.
    """
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    seed, network = federation.setting.seed, federation.setting.network
    shape, classes = federation.samples.shape[2:], federation.mixes.shape[1]
    models = [
        common_model(network, shape, classes, seed + 1000 * (at + 1)) for at in range(clusters)
    ]
    centres = {
        name: torch.stack([dict(model.named_parameters())[name].detach() for model in models])
        for name in federation.start
    }
    labels, found = np.zeros(len(cohort), np.int64), []
    for number in range(ROUNDS):
        labels = _best(cohort, centres)
        weights = _chosen(centres, labels)
        _local(cohort, weights, seed, number)
        for cluster in np.unique(labels):
            own = torch.as_tensor(np.flatnonzero(labels == cluster))
            for name, values in weights.items():
                centres[name][cluster] = values[own].mean(dim=0)
        found.append(_accuracy(federation, cohort, _chosen(centres, labels)))
    return labels, found


def _chosen(centres: Weights, labels: Integers) -> Weights:
    """A copy for each client of its cluster's model."""
    at = torch.as_tensor(labels)
    return {name: values[at] for name, values in centres.items()}


@torch.no_grad()
def _best(cohort: Cohort, centres: Weights) -> Integers:
    """The model with the least loss on the samples of each client."""
    losses = []
    for at in range(len(next(iter(centres.values())))):
        weights = {
            name: values[at].expand(len(cohort), *values.shape[1:])
            for name, values in centres.items()
        }
        found = cohort.outputs(weights, cohort.samples)
        each = cross_entropy(found.flatten(0, 1), cohort.labels.flatten(), reduction="none")
        losses.append(each.view(len(cohort), -1).mean(1))
    return torch.stack(losses).argmin(0).numpy()


def split_by_updates(federation: Federation) -> tuple[Integers, list[float]]:
    """Clusters split in two where their mean update is short and single ones are long."""
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    weights, labels = federation.start, np.zeros(len(cohort), np.int64)
    found = []
    for number in range(ROUNDS):
        before = flat(weights)
        _local(cohort, weights, federation.setting.seed, number)
        if number >= _FIRST_SPLIT:
            labels = _halved(flat(weights) - before, labels)
        _average(weights, labels)
        found.append(_accuracy(federation, cohort, weights))
    return labels, found


def _halved(updates: Floats, labels: Integers) -> Integers:
    found = labels.copy()
    for cluster in np.unique(labels):
        own = np.flatnonzero(labels == cluster)
        rows = updates[own]
        lengths = np.linalg.norm(rows, axis=1)
        if own.size < 4 or np.linalg.norm(rows.mean(axis=0)) > _STATIONARY * lengths.max():
            continue
        unit = rows / lengths[:, None]
        halves = AgglomerativeClustering(2, metric="precomputed", linkage="complete")
        found[own[halves.fit_predict(1 - unit @ unit.T) == 1]] = found.max() + 1
    return found


class Meta(Cohort):
    """Clients that train weights which are good after one step on their own samples.

    First-order MAML, as Per-FedAvg has it: half of a batch makes the step, and the other half gives
    the gradient at the weights after it.
    """

    def __init__(self, template: nn.Module, samples: Tensor, labels: Tensor) -> None:
        super().__init__(template, samples, labels)
        self._plain, self._gradients = self._gradients, self._after_a_step

    def adapted(self, weights: Weights, x: Tensor, y: Tensor) -> Weights:
        """Weights after one step of each client on these samples of its own."""
        found = self._plain(weights, x, y)
        return {name: values - STEP * found[name] for name, values in weights.items()}

    def _after_a_step(self, weights: Weights, x: Tensor, y: Tensor) -> Weights:
        half = y.shape[1] // 2
        there = self.adapted(weights, x[:, :half], y[:, :half])
        found: Weights = self._plain(there, x[:, half:], y[:, half:])
        return found


def on_graph(federation: Federation, shares: Floats, *, meta: bool) -> tuple[float, float]:
    """Accuracies of models that each client averages over its neighbours in each round.

    Args:
        federation: of the clients.
        shares: how much of each client's model is in whose average, ``(N, N)``; rows sum to 1.
        meta: Per-FedAvg in place of FedAvg.

    Returns:
        After the last round, and after one step more of each client on its own samples.
    """
    stepping = Meta(federation.model, federation.samples, federation.labels)
    cohort = stepping if meta else Cohort(federation.model, federation.samples, federation.labels)
    weights, mixing = federation.start, torch.as_tensor(shares, dtype=torch.float32)
    for number in range(ROUNDS):
        _local(cohort, weights, federation.setting.seed, number)
        _mix(weights, mixing)
    adapted = stepping.adapted(weights, federation.samples, federation.labels)
    before, after = (_accuracy(federation, cohort, each) for each in (weights, adapted))
    return before, after


def _local(cohort: Cohort, weights: Weights, seed: int, number: int, epochs: int = EPOCHS) -> None:
    generator = torch.Generator().manual_seed(seed * 1000 + number)
    cohort.train(weights, epochs, generator)


def _average(weights: Weights, labels: Integers) -> None:
    same = torch.as_tensor(labels[:, None] == labels[None], dtype=torch.float32)
    _mix(weights, same / same.sum(dim=1, keepdim=True))


def _mix(weights: Weights, shares: Tensor) -> None:
    for name, values in weights.items():
        weights[name] = torch.tensordot(shares, values, dims=1)


def _accuracy(federation: Federation, cohort: Cohort, weights: Weights) -> float:
    found = cohort.accuracies(weights, federation.test_samples, federation.test_labels)
    return float(found.mean())


def _canonical(labels: Integers) -> tuple[int, ...]:
    """Clusters by the order in which they first occur."""
    seen: dict[int, int] = {}
    return tuple(seen.setdefault(int(label), len(seen)) for label in labels)
