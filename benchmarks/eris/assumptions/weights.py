"""Measure whether weights are normal, as the bound of leaked information takes for granted.

Two readings. *All weights of a layer*, which the literature draws as histograms: a perceptron that
twenty clients average, and a convolutional network with normal weights at the start. *One weight,
given the data and the past*, which the bound is about: what random batches of a client's samples
make of each value of its gradient, at the same weights. Its ``snr`` is the variance between clients
over that of the batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.eris.convergence import federation, local_steps
from benchmarks.eris.data import Clients, digits
from benchmarks.eris.networks import Flat
from benchmarks.report import Findings, Row, Table
from modelkin import sharing

LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn")

ROUNDS, STEPS = 100, 300
BATCH, DRAWS = 8, 400
LEVEL: Final = 0.01
"""At which a test of normality rejects one of a hundred normal samples."""

Floats = npt.NDArray[np.float64]
LAYERS: Final = {"first layer": slice(0, 4096), "last layer": slice(4160, 4800)}
"""Weights of the perceptron, without the biases."""


def run(quick: bool) -> Findings:
    """Both readings, of networks before and after training."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    rounds, draws = (2, 20) if quick else (ROUNDS, DRAWS)
    clients, flat = federation(digits(), 0)
    local, weights, update = local_steps(flat, clients), flat.start, flat.start
    for _ in range(rounds):
        update = local(weights)
        weights = weights + update.mean(0)
    own = flat.start + update[0]  # of the first client's last update, from where all started
    layers = [*_of_perceptron(flat.start, weights, own - flat.start), *_of_convolutions(quick)]
    given = {
        "at the start": _batches(flat, flat.start, clients, draws),
        f"after {rounds} rounds": _batches(flat, weights, clients, draws),
    }
    rows = _judged(layers, given, judged=not quick)
    return Findings(rows, [_layer_table(layers), *_given_tables(given, rounds, clients)])


# --- all weights of a layer ----------------------------------------------------------------------


def _of_perceptron(start: Tensor, end: Tensor, update: Tensor) -> Iterator[tuple[str, str, Tensor]]:
    for when, vector in (("start, uniform", start), ("trained", end), ("last update", update)):
        for layer, at in LAYERS.items():
            yield f"perceptron, {layer}", when, vector[at]


def _of_convolutions(quick: bool) -> Iterator[tuple[str, str, Tensor]]:
    """Two convolutions and a linear layer, started normally and trained on all digits."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )
    layers = [module for module in network if isinstance(module, nn.Conv2d | nn.Linear)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight)
    before = [layer.weight.detach().clone() for layer in layers]
    data, rng = digits(), np.random.default_rng(0)
    optimizer = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    for _ in range(1 if quick else STEPS):
        chosen = torch.from_numpy(rng.choice(len(data.labels), 64, replace=False))
        optimizer.zero_grad()
        cross_entropy(network(data.inputs[chosen]), data.labels[chosen]).backward()
        optimizer.step()
    names = ("first convolution", "second convolution", "last layer")
    for name, layer, start in zip(names, layers, before, strict=True):
        end = layer.weight.detach()
        for when, values in (("start, normal", start), ("trained", end), ("change", end - start)):
            yield f"convolutions, {name}", when, values.flatten()


Layers = list[tuple[str, str, Tensor]]


def _layer_table(layers: Layers) -> Table:
    rows = []
    for layer, when, values in layers:
        numbers = values.double().numpy()
        rows.append(
            [
                layer,
                when,
                f"{len(numbers):,}",
                f"{numbers.std():.3f}",
                f"{stats.kurtosis(numbers):+.2f}",
                f"{straightness(numbers):.3f}",
                _normal(numbers),
            ]
        )
    return Table(
        f"All weights of a layer: excess kurtosis and correlation with normal quantiles (0 and 1 "
        f"of a normal), and whether they pass D'Agostino's test of normality at {LEVEL:.0%}",
        ["layer", "when", "values", "deviation", "kurtosis", "quantiles", "test"],
        rows,
    )


def straightness(values: Floats) -> float:
    """The correlation of sorted values with the quantiles of a normal distribution."""
    places = (np.arange(1, len(values) + 1) - 0.375) / (len(values) + 0.25)
    return float(np.corrcoef(np.sort(values), stats.norm.ppf(places))[0, 1])


def _normal(values: Floats) -> str:
    return "passes" if stats.normaltest(values).pvalue >= LEVEL else "fails"


# --- one weight, given the data and the past -----------------------------------------------------


def _batches(flat: Flat, weights: Tensor, clients: Clients, draws: int) -> tuple[Floats, Floats]:
    """Gradients of random batches of one client, ``(draws, M)``, and of all clients, ``(n, M)``."""
    rng, samples = np.random.default_rng(0), clients.labels.shape[1]
    everyone = weights.expand(clients.count, -1)
    each = flat.sample_gradients(weights[None], clients.inputs[:1], clients.labels[:1])[0]
    chosen = [rng.choice(samples, BATCH, replace=False) for _ in range(draws)]
    found = torch.stack([each[torch.from_numpy(rows)].mean(0) for rows in chosen])
    whole = flat.gradients(everyone, clients.inputs, clients.labels)
    return found.double().numpy(), whole.double().numpy()


Given = Mapping[str, tuple[Floats, Floats]]


def _moving(drawn: Floats) -> npt.NDArray[np.bool_]:
    """Which values the batches move at all."""
    moves: npt.NDArray[np.bool_] = np.ptp(drawn, axis=0) > 0
    return moves


def _passing(drawn: Floats) -> float:
    """The share of values that pass for normal, of those that move."""
    found = stats.normaltest(drawn[:, _moving(drawn)], axis=0).pvalue
    return float((found >= LEVEL).mean())


def ratios(drawn: Floats, whole: Floats) -> Floats:
    """The variance between clients over that of the batches; infinite where no batch moves it."""
    between, within = whole.var(axis=0), drawn.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(between > 0, between / within, 0.0)
    return found


def _given_tables(given: Given, rounds: int, clients: Clients) -> Iterator[Table]:
    rows, bounds = [], []
    data_bits = math.log2(17) * clients.inputs[0].numel()
    for when, (drawn, whole) in given.items():
        moving, snr = _moving(drawn), ratios(drawn, whole)
        shown = drawn[:, moving]
        kurtosis = stats.kurtosis(shown, axis=0)
        lines = [straightness(values) for values in shown.T]
        rows.append(
            [
                when,
                f"{1 - moving.mean():.0%}",
                f"{np.median(kurtosis):+.1f}",
                f"{np.quantile(kurtosis, 0.9):+.1f}",
                f"{np.median(lines):.3f}",
                f"{_passing(drawn):.0%}",
            ]
        )
        finite = float(np.median(snr[moving]))
        bits = sharing.leakage_bound(
            num_parameters=drawn.shape[1], rounds=rounds, shards=1, snr=finite
        ) / math.log(2)  # fmt: skip
        unbounded = float(np.isinf(snr).mean())
        bounds.append(
            [when, f"{finite:.1f}", f"{unbounded:.0%}", f"{bits:,.0f}", f"{data_bits:,.0f}"]
        )
    yield Table(
        f"One value of a client's gradient, by {len(next(iter(given.values()))[0])} random batches "
        f"of {BATCH} at the same weights: those that no batch moves, and of the others the excess "
        f"kurtosis, the correlation with normal quantiles, and the share that pass for normal",
        ["when", "never move", "kurtosis, median", "highest tenth", "quantiles, median", "normal"],
        rows,
    )
    yield Table(
        f"The signal to noise ratio of these values, and the bound for {rounds} rounds at its "
        f"median, beside the bits in a client's images",
        ["when", "snr, median", "infinite", "bits, at most", "bits of the images"],
        bounds,
    )


def _judged(layers: Layers, given: Given, *, judged: bool) -> list[Row]:
    passing = sum(_normal(values.double().numpy()) == "passes" for _, _, values in layers)
    rows = [
        Row(
            "layers whose weights or updates pass for normal",
            f"{passing}",
            f"all: {len(layers)}",
            "",
        )
    ]
    for when, (drawn, _) in given.items():
        share = _passing(drawn)
        rows.append(
            Row(
                f"values of a gradient that pass for normal: {when}",
                f"{share:.0%}",
                f"of normal ones: {1 - LEVEL:.0%}",
                "",
                "≤ 90%" if judged else "",
                share <= 0.9 if judged else None,
            )
        )
    return rows
