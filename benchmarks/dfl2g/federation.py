"""Federations in clusters under a rule that says which layers a client shares.

Scores, means over those that sent a layer, the tightening of what is shared and the penalties are
the product's. Values are counted as float32 without names and headers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.dfl2g.data import Population
from demo.cohort import Cohort, Weights, network, repeat, stack
from modelkin.federation.learngenes.aggregate import MIN_MEMBERS, aggregate
from modelkin.federation.learngenes.layers import tightened_depth

__all__ = [
    "Federated",
    "Flags",
    "Layers",
    "Local",
    "Pull",
    "Rule",
    "Strategy",
    "fresh",
    "inherited",
    "layers_of",
    "mean_of_largest",
    "mixed",
    "train",
]

Flags: TypeAlias = npt.NDArray[np.bool_]
Layers: TypeAlias = dict[str, list[str]]
"""The names of each layer's tensors."""

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

TIGHTEN: Final = 0.4
"""The share of the rounds after which only the chosen layers are shared."""


@dataclass(frozen=True)
class Local:
    """The state of clients after training in a round.

    Attributes:
        before: their weights at the beginning of it; ``after`` those at its end.
        steepness: the mean size of each layer's gradients over the round, ``(clients, layers)``.
        loaded: which layers they began with as their clusters have them, ``(clients, layers)``.
        tightened: how many layers are shared now, where that begins with all of them.
        rng: for rules that draw.
    """

    before: Weights
    after: Weights
    steepness: npt.NDArray[np.float64]
    loaded: Flags
    tightened: int
    rng: np.random.Generator


class Strategy(Protocol):
    """What clients learn of which layers they load."""

    def loaded(self, weights: Weights, common: Weights) -> Flags:
        """The layers that each client loads in a round, ``(clients, layers)``.

        Args:
            weights: the clients' own, at the end of the last round.
            common: those of their clusters.
        """


@dataclass(frozen=True)
class Rule:
    """The rule that says what clients share.

    Attributes:
        name: in the tables.
        choose: the layers that each client sends, ``(clients, layers)``.
        depth: how many layers are shared in the end.
        share: of the values of each sent layer, those of largest size.
        whole_down: whether clients load the whole model of their cluster, as the authors of the
            rule have it, or only the layers that were averaged in the round before.
        strategy: makes what decides which of these layers a client loads; None where it loads all.
        held_back: samples of a client that it does not train on, and by which it decides; 0 for
            those that it trains on.
    """

    name: str
    choose: Callable[[Local], Flags]
    depth: int = 6
    share: float = 1.0
    whole_down: bool = False
    strategy: Callable[[Layers, Cohort], Strategy] | None = None
    held_back: int = 0


class Pull:
    """The penalty that is added to gradients; none here."""

    def begin(self, population: Population, weights: Weights, anchors: Weights) -> None:
        """Prepare for a round from the clients' weights and those of their clusters."""

    def add(self, gradients: Weights) -> None:
        """Change the gradients."""


@dataclass
class Federated:
    """A federation that has ended.

    Attributes:
        weights: of the clients.
        before: theirs at the beginning of the last round.
        models: of the clusters.
        clusters: of the clients, and likewise of the newcomers.
        held: which layers of a cluster's model members have averaged, ``(clusters, layers)``.
        loaded: which layers the clients loaded in the last round, ``(clients, layers)``.
        up: bytes that a client sent in each round, the mean over clients; ``down`` likewise.
        accuracy: of the clients on their own classes after each round, where asked for.
    """

    weights: Weights
    before: Weights
    models: Weights
    clusters: npt.NDArray[np.int64]
    held: Flags
    loaded: Flags
    up: list[float]
    down: list[float]
    accuracy: list[float]


def train(
    population: Population,
    rule: Rule,
    *,
    rounds: int = 20,
    epochs: int = 2,
    load: bool = True,
    pull: Pull | None = None,
    followed: bool = False,
    clusters: npt.NDArray[np.int64] | None = None,
) -> Federated:
    """Train a model for each cluster, and one for each client.

    Args:
        population: whose clients take part.
        rule: what they share.
        rounds: how many.
        epochs: of each client in a round.
        load: whether clients begin a round with the layers of their cluster.
        pull: the penalties; none by default.
        followed: whether to find the accuracy after each round, not only at the end.
        clusters: of the clients; their groups by default.
    """
    cohort = population.clients.cohort
    clusters = population.groups if clusters is None else clusters
    members = torch.from_numpy(clusters)
    models = repeat(stack([cohort.template]), int(clusters.max()) + 1)
    layers = layers_of(models)
    sizes = np.array([sum(models[name][0].numel() for name in own) for own in layers.values()])
    generator = torch.Generator().manual_seed(population.start)
    rng = np.random.default_rng([population.start, 21])
    weights = repeat(stack([cohort.template]), len(cohort))
    every = np.ones((len(cohort), len(sizes)), bool)
    held = every[: int(clusters.max()) + 1].copy()
    found = Federated(weights, weights, models, clusters, held, every, [], [], [])
    strategy = (
        rule.strategy(layers, _part(cohort, -rule.held_back, None)) if rule.strategy else None
    )
    if rule.held_back:
        trained = replace(population.clients, cohort=_part(cohort, 0, -rule.held_back))
        population = replace(population, clients=trained)
    for number in range(rounds):
        common = _taken(found.models, members)
        got = found.held[clusters] if load and number else ~every
        found.loaded = got if number else every  # all begin alike
        if strategy is not None and number:
            found.loaded = got & strategy.loaded(weights, common)
        weights = mixed(layers, found.loaded, common, weights)
        before = {name: values.clone() for name, values in weights.items()}
        if pull is not None:
            pull.begin(population, weights, common)
        steepness = _trained(population, weights, epochs, generator, pull, layers)
        shared = tightened_depth(rule.depth, len(sizes), number, rounds, TIGHTEN)
        sent = rule.choose(Local(before, weights, steepness, found.loaded, shared, rng))
        found.up.append(4 * float((sent * _shares(rule, sizes)).sum(1).mean()))
        found.down.append(4 * float((got * sizes).sum(1).mean()))
        _average(found, layers, sent, weights, rule)
        found.weights, found.before = weights, before
        if followed or number == rounds - 1:
            found.accuracy.append(population.clients.accuracy(weights))
    return found


def _part(cohort: Cohort, begin: int, end: int | None) -> Cohort:
    """The same clients with some of their samples."""
    some = slice(begin, end)
    return Cohort(cohort.template, cohort.samples[:, some], cohort.labels[:, some])


def layers_of(weights: Weights) -> Layers:
    """In the order of the model."""
    found: Layers = {}
    for name in weights:
        found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def fresh(population: Population) -> Weights:
    """Weights of newcomers that inherit nothing."""
    inputs = population.newcomers.cohort.samples.shape
    head = population.newcomers.cohort.template.get_parameter("head.bias")
    seeds = range(10_000 + 100 * population.start, 10_000 + 100 * population.start + inputs[0])
    return stack(
        [network(s, channels=inputs[2], side=inputs[-1], classes=len(head)) for s in seeds]
    )


def inherited(models: Weights, clusters: Tensor, held: Flags, start: Weights) -> Weights:
    """A start whose layers are the cluster's where they are held, ``(newcomers, layers)``."""
    return mixed(layers_of(models), held, _taken(models, clusters), start)


def _trained(
    population: Population,
    weights: Weights,
    epochs: int,
    generator: torch.Generator,
    pull: Pull | None,
    layers: Layers,
) -> npt.NDArray[np.float64]:
    """Train clients for a round, and sum up the sizes of their gradients."""
    total = torch.zeros(len(population.clients.cohort), len(layers), dtype=torch.float64)

    def on_step(gradients: Weights) -> None:
        for at, names in enumerate(layers.values()):
            summed = sum(gradients[name].abs().flatten(1).sum(1) for name in names)
            total[:, at] += summed / sum(gradients[name][0].numel() for name in names)
        if pull is not None:
            pull.add(gradients)

    population.clients.cohort.train(weights, epochs, generator, on_step=on_step)
    return total.numpy()


def _average(
    found: Federated,
    layers: Layers,
    sent: Flags,
    weights: Weights,
    rule: Rule,
) -> None:
    """Replace each cluster's model by the mean over those that sent a layer."""
    for cluster in range(len(found.held)):
        members = np.flatnonzero(found.clusters == cluster)
        old = {name: values[cluster].numpy() for name, values in found.models.items()}
        parts = {
            int(member): {
                name: weights[name][member].numpy()
                for at, names in enumerate(layers.values())
                if sent[member, at]
                for name in names
            }
            for member in members
        }
        parts = {member: tensors for member, tensors in parts.items() if tensors}
        if rule.share < 1:
            new = mean_of_largest(old, parts, rule.share)
        else:
            new = aggregate(old, parts).tensors
        for name, values in new.items():
            found.models[name][cluster] = torch.from_numpy(values)
        enough = sent[members].sum(0) >= MIN_MEMBERS
        found.held[cluster] = rule.whole_down or enough


def mean_of_largest(old: Arrays, sent: dict[int, Arrays], share: float) -> Arrays:
    """The mean of each value over the members that have it among the largest of its layer."""
    means = {name: np.zeros(values.shape) for name, values in old.items()}
    counts = {name: np.zeros(values.shape) for name, values in old.items()}
    for tensors in sent.values():
        for names in layers_of({name: torch.empty(0) for name in tensors}).values():
            sizes = np.concatenate([np.abs(tensors[name]).ravel() for name in names])
            limit = np.sort(sizes)[-_largest(share, sizes.size)]
            for name in names:
                chosen = np.abs(tensors[name]) >= limit
                means[name] += np.where(chosen, tensors[name], 0)
                counts[name] += chosen
    return {
        name: np.where(counts[name] > 0, means[name] / np.maximum(counts[name], 1), values).astype(
            np.float32
        )
        for name, values in old.items()
    }


def _largest(share: float, size: int) -> int:
    return max(1, int(share * size))


def _shares(rule: Rule, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.array([_largest(rule.share, int(size)) for size in sizes])


def _taken(models: Weights, clusters: Tensor) -> Weights:
    return {name: values[clusters] for name, values in models.items()}


def mixed(layers: Layers, flags: Flags, chosen: Weights, others: Weights) -> Weights:
    """Copies: the chosen weights in flagged layers, the others elsewhere."""
    found = {}
    for at, names in enumerate(layers.values()):
        column = torch.from_numpy(np.ascontiguousarray(flags[:, at]))
        for name in names:
            wide = column.view(-1, *[1] * (others[name].dim() - 1))
            found[name] = torch.where(wide, chosen[name], others[name])
    return found
