"""Measure what a newcomer of another architecture gains from the layers that both have.

Clusters train the network of the other benchmarks; newcomers' networks have its four convolutions,
and others behind them. The product cuts these four from a cluster's model, and loads them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import nn

from benchmarks.dfl2g.data import GROUPS, Population, datasets, of_all_classes, of_halves
from benchmarks.dfl2g.federation import train
from benchmarks.dfl2g.sharing import FEDAVG
from benchmarks.dfl2g.starts import KIN, MARKS, STRANGERS, Curves, Start, curve
from benchmarks.eris.data import Dataset
from benchmarks.report import Findings, Row, Table
from demo.cohort import Cohort, Weights, network, stack
from modelkin.torch import cut_learngene, inherit

LIBRARIES = ("numpy", "torch", "scikit-learn")

SHARED: Final = 4
"""The layers that both architectures have."""

RANDOM, TRUNK = "random", "shared layers of its cluster"
KEPT, OTHER = f"{TRUNK}, kept", "shared layers of another cluster, kept"


def wider(seed: int) -> nn.Sequential:
    """Twice as many values between the convolutions and the head."""
    model = network(seed)
    model.fc1, model.head = _linear(128, 128, seed), _linear(128, 10, seed + 1, halved=True)
    return model


def shallower(seed: int) -> nn.Sequential:
    """The head behind the convolutions."""
    model = network(seed)
    del model.fc1, model.relu5
    model.head = _linear(128, 10, seed, halved=True)
    return model


def _linear(inputs: int, outputs: int, seed: int, *, halved: bool = False) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        layer.weight.normal_(0, (2 / inputs) ** 0.5 / (1 + halved), generator=generator)
        layer.bias.zero_()
    return layer


ARCHITECTURES: Final[Mapping[str, Callable[[int], nn.Sequential]]] = {
    "twice as wide behind them": wider,
    "one layer fewer": shallower,
}

Populations = Mapping[str, Callable[[Dataset, int], Population]]
POPULATIONS: Final[Populations] = {
    KIN: of_all_classes,
    STRANGERS: lambda data, seed: of_halves(data, seed, turned=True),
}


def run(quick: bool) -> Findings:
    """Measure the starts on the digits."""
    torch.set_num_threads(1)
    rounds, seeds, marks = (1, 1, (0, 1)) if quick else (40, 3, MARKS)
    data = next(datasets())
    found = {kind: measured(data, made, rounds, seeds, marks) for kind, made in POPULATIONS.items()}
    tables = [
        Table(
            f"Newcomers of another architecture, {kind}; accuracy after epochs",
            ["architecture, start", *map(str, marks)],
            [[name, *(f"{each:.3f}" for each in curves[name])] for name in curves],
        )
        for kind, curves in found.items()
    ]
    return Findings([] if quick else judged(found[KIN]), tables)


def measured(
    data: Dataset,
    made: Callable[[Dataset, int], Population],
    rounds: int,
    seeds: int,
    marks: tuple[int, ...],
) -> Curves:
    """The mean over seeds, by architecture and start."""
    every: list[Curves] = []
    for seed in range(seeds):
        population = made(data, seed)
        models = train(population, FEDAVG, rounds=rounds).models
        curves: Curves = {}
        for name, build in ARCHITECTURES.items():
            template, newcomers = build(0), population.newcomers
            cohort = Cohort(template, newcomers.cohort.samples, newcomers.cohort.labels)
            theirs = replace(population, newcomers=replace(newcomers, cohort=cohort))
            for start in starts(theirs, models, build):
                curves[f"{name}, {start.name}"] = curve(theirs, start, marks)
        every.append(curves)
    return {name: np.mean([each[name] for each in every], axis=0).tolist() for name in every[0]}


def starts(
    population: Population, models: Weights, build: Callable[[int], nn.Sequential]
) -> Iterator[Start]:
    """All starts of newcomers of an architecture, from files of the clusters' first layers."""
    newcomers = len(population.newcomers.cohort)
    seeds = [10_000 + 100 * population.start + at for at in range(newcomers)]
    layers = sum(isinstance(each, nn.Conv2d | nn.Linear) for each in build(0))
    held = np.tile(np.arange(layers) < SHARED, (newcomers, 1))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{group}.safetensors" for group in range(GROUPS)]
        for group, path in enumerate(paths):
            model = network(0)
            model.load_state_dict({name: values[group] for name, values in models.items()})
            cut_learngene(model, path, depth=SHARED)

        def started(shift: int) -> Weights:
            own = [build(seed) for seed in seeds]
            for model, group in zip(own, population.groups.tolist(), strict=True):
                inherit(model, paths[(group + shift) % GROUPS])
            return stack(own)

        yield Start(RANDOM, stack([build(seed) for seed in seeds]), held)
        yield Start(TRUNK, started(0), held)
        yield Start(KEPT, started(0), held, kept=True)
        yield Start(OTHER, started(1), held, kept=True)


def judged(kin: Curves) -> list[Row]:
    """What kin gain after five epochs, by architecture."""
    at, rows = MARKS.index(5), []
    for name in ARCHITECTURES:
        ours, random = kin[f"{name}, {TRUNK}"][at], kin[f"{name}, {RANDOM}"][at]
        rows.append(
            Row(
                f"kin after 5 epochs, {TRUNK}: {name}",
                f"{ours:.3f}",
                f"random: {random:.3f}",
                f"{ours - random:+.3f}",
                "≥ +0.05",
                ours - random >= 0.05,
            )
        )
    return rows
