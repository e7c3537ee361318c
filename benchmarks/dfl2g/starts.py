"""Measure what a newcomer's start is worth: table 3 and figure 4 of the paper.

Four groups see digits turned. Newcomers have 20 samples each, of all classes as the clients (kin),
or of classes that no client has. What is inherited is trained on, or kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import torch

from benchmarks.dfl2g import paper
from benchmarks.dfl2g.data import GROUPS, Population, datasets, of_all_classes, of_halves
from benchmarks.dfl2g.federation import Federated, Flags, fresh, inherited, layers_of, train
from benchmarks.dfl2g.sharing import ADAPTIVE, FEDAVG, Scores, changes, lowest, printed
from benchmarks.eris.data import Dataset
from benchmarks.report import Findings, Row, Table
from demo.cohort import DECAY, RATE, Weights

LIBRARIES = ("numpy", "torch", "scikit-learn")

MARKS: Final = (0, 2, 5, 20)
"""Epochs after which newcomers are tested."""

LAYERS: Final = 4
"""The layers of a learngene that a score picks."""

KIN, STRANGERS = "kin", "classes that no client has"

SLOW: Final = 0.001
"""The other learning rate for a whole model."""

RANDOM: Final = "random"
WHOLE: Final = "whole model of its cluster"
TRUNK: Final = "trunk of its cluster, kept"
OTHER_TRUNK: Final = "trunk of another cluster, kept"
ALL_TRUNK: Final = "trunk of all clients"
PARTIAL: Final = "what most load by PartialFed-Adaptive"
EQ8: Final = f"{LAYERS} layers, Eq. 8 lowest"


@dataclass(frozen=True)
class Start:
    """Where newcomers begin.

    Attributes:
        name: in the tables.
        weights: of all of them.
        held: which layers are inherited, ``(newcomers, layers)``.
        kept: whether these stay as they are.
        rate: the learning rate.
    """

    name: str
    weights: Weights
    held: Flags
    kept: bool = False
    rate: float = RATE


def run(quick: bool) -> Findings:
    """Measure all starts on the digits, and on what ``--data-dir`` has."""
    torch.set_num_threads(1)
    rounds, epochs, seeds, marks = (1, 1, 1, (0, 1)) if quick else (40, 2, 3, MARKS)
    step = 7 if quick else 1
    rows, tables = [], []
    for data in datasets():
        found = {
            kind: _measured(data, population, rounds, epochs, seeds, marks, step)
            for kind, population in (
                (KIN, of_all_classes),
                (STRANGERS, lambda data, seed: of_halves(data, seed, turned=True)),
            )
        }
        rows += _judged(found) if not quick and data.name == "digits" else []
        tables += [_curves(data, kind, curves, marks) for kind, curves in found.items()]
    return Findings(rows, [*tables, _printed()])


# --- measuring -----------------------------------------------------------------------------------

Curves = dict[str, list[float]]
"""The accuracy of newcomers by their start, after the epochs of the marks."""


def _measured(
    data: Dataset,
    made: Callable[[Dataset, int], Population],
    rounds: int,
    epochs: int,
    seeds: int,
    marks: tuple[int, ...],
    step: int,
) -> Curves:
    """The mean over seeds, of every start or one in some."""
    every = []
    for seed in range(seeds):
        population = made(data, seed)
        every.append(
            {
                start.name: curve(population, start, marks)
                for start in islice(starts(population, rounds, epochs), None, None, step)
            }
        )
    return {name: np.mean([each[name] for each in every], axis=0).tolist() for name in every[0]}


def starts(population: Population, rounds: int, epochs: int) -> Iterator[Start]:
    """All starts, from federations of each cluster and of all clients."""
    own = train(population, FEDAVG, rounds=rounds, epochs=epochs)
    one = np.zeros_like(population.groups)
    every = train(population, FEDAVG, rounds=rounds, epochs=epochs, clusters=one)
    random, groups = fresh(population), torch.from_numpy(population.groups)
    whole = np.ones((len(population.groups), own.held.shape[1]), bool)
    trunk = whole.copy()
    trunk[:, -1] = False

    def taken(found: Federated, clusters: torch.Tensor, held: Flags) -> Weights:
        return inherited(found.models, clusters, held, random)

    yield Start(RANDOM, taken(own, groups, ~whole), whole)
    yield Start("random, all but the head kept", taken(own, groups, ~whole), trunk, kept=True)
    another = (groups + 1) % GROUPS
    sources = {
        "its cluster": (own, groups),
        "another cluster": (own, another),
        "all clients": (every, groups * 0),
    }
    for name, (found, clusters) in sources.items():
        yield Start(f"whole model of {name}", taken(found, clusters, whole), whole)
        if name == "its cluster":
            weights = taken(found, clusters, whole)
            yield Start(f"{WHOLE}, rate {SLOW}", weights, whole, rate=SLOW)
        for kept in (False, True):
            weights = taken(found, clusters, trunk)
            yield Start(f"trunk of {name}{', kept' * kept}", weights, trunk, kept)
    partial = train(population, ADAPTIVE, rounds=rounds, epochs=epochs)
    loaded = _mean(population, partial.loaded.astype(np.float64)) >= 0.5
    for kept in (False, True):
        weights = taken(partial, groups, loaded)
        yield Start(f"{PARTIAL}{', kept' * kept}", weights, loaded, kept)
    for name, held in _picked(population, own).items():
        for kept in (False, True):
            weights = taken(own, groups, held)
            yield Start(f"{LAYERS} layers, {name}{', kept' * kept}", weights, held, kept)


def _picked(population: Population, found: Federated) -> dict[str, Flags]:
    """The layers that a cluster's clients score lowest on average, for its newcomers."""
    moved = changes(found.before, found.weights)
    eq8 = printed(found.before, found.weights)
    orders = {
        "the first": np.tile(np.arange(moved.shape[1], dtype=np.float64), (len(moved), 1)),
        "least change": moved,
        "Eq. 8 lowest": eq8,
        "Eq. 8 highest": -eq8,
    }
    return {name: lowest(_mean(population, scores), LAYERS) for name, scores in orders.items()}


def _mean(population: Population, scores: Scores) -> Scores:
    """The mean scores of each client's group."""
    means = np.stack([scores[population.groups == group].mean(0) for group in range(GROUPS)])
    return np.asarray(means[population.groups])


def curve(population: Population, start: Start, marks: tuple[int, ...]) -> list[float]:
    """The accuracy of newcomers after the epochs of the marks."""
    weights = {name: values.clone() for name, values in start.weights.items()}
    kept = None
    if start.kept:
        kept = {
            name: torch.from_numpy(start.held[:, at].copy())
            .view(-1, *[1] * (weights[name].dim() - 1))
            .expand_as(weights[name])
            for at, names in enumerate(layers_of(weights).values())
            for name in names
        }
    generator = torch.Generator().manual_seed(population.start)
    accuracies, done = [], 0
    for mark in marks:
        population.newcomers.cohort.train(
            weights,
            mark - done,
            generator,
            rate=start.rate,
            decay=0.0 if start.kept else DECAY,
            kept=kept,
        )
        accuracies.append(population.newcomers.accuracy(weights))
        done = mark
    return accuracies


# --- judging and tables --------------------------------------------------------------------------


def _judged(found: dict[str, Curves]) -> list[Row]:
    early, late = MARKS.index(5), MARKS.index(20)
    kin, strangers = found[KIN], found[STRANGERS]

    def better(figure: str, ours: str, beside: str, at: int, curves: Curves, least: float) -> Row:
        gain = curves[ours][at] - curves[beside][at]
        return Row(
            figure,
            f"{curves[ours][at]:.3f}",
            f"{beside}: {curves[beside][at]:.3f}",
            f"{gain:+.3f}",
            f"≥ {least:+g}",
            gain >= least,
        )

    before = kin[WHOLE][0]
    gain = strangers[TRUNK.removesuffix(", kept")][late] - strangers[RANDOM][late]
    return [
        better("kin after 5 epochs: trunk kept", TRUNK, RANDOM, early, kin, 0.15),
        better("kin after 5 epochs: trunk kept, again", TRUNK, OTHER_TRUNK, early, kin, 0.15),
        Row(
            "kin before a step: whole model of its cluster",
            f"{before:.3f}",
            f"random: {kin[RANDOM][0]:.3f}",
            f"{before - kin[RANDOM][0]:+.3f}",
            "≥ 0.8",
            before >= 0.8,
        ),
        better("kin after 5 epochs: random", RANDOM, f"{EQ8}, kept", early, kin, 0.0),
        better(
            "classes of no client, after 5 epochs: trunk of all clients", ALL_TRUNK,
            TRUNK.removesuffix(", kept"), early, strangers, 0.0,
        ),
        Row(
            "classes of no client, after 20 epochs: trunk of its cluster",
            f"{strangers[TRUNK.removesuffix(', kept')][late]:.3f}",
            f"random: {strangers[RANDOM][late]:.3f}",
            f"{gain:+.3f}",
            "no gain, ± 0.03",
            abs(gain) <= 0.03,
        ),
    ]  # fmt: skip


def _curves(data: Dataset, kind: str, curves: Curves, marks: tuple[int, ...]) -> Table:
    return Table(
        f"Table 3 and figure 4 on {data.name}, newcomers: {kind}; accuracy after epochs",
        ["start", *map(str, marks)],
        [[name, *(f"{each:.3f}" for each in curve)] for name, curve in curves.items()],
    )


def _printed() -> Table:
    return Table(
        "Table 3 as the paper prints it: percent of newcomers whose classes of no client, after 50 "
        "epochs of ResNet-18",
        ["method", *paper.SETTINGS],
        [[name, *(f"{each:.2f}" for each in row)] for name, row in paper.NEWCOMERS.items()],
    )
