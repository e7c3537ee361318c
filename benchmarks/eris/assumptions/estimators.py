"""Measure how near the optimum stochastic gradients come, plain, by SAGA and by SVRG.

Logistic regression on digits, twenty clients, labels split by Dirichlet(.3), with a decay of 0.05,
so that the optimum is reached. Each client takes a few of its samples a round. What is sent is all
of its estimate, or one value in c by own masks, with shifts and without.

Sources: Defazio, Bach and Lacoste-Julien, "SAGA", 2014; Johnson and Zhang, "Accelerating stochastic
gradient descent using predictive variance reduction", 2013.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.eris.convergence import ALL, N, Way, train
from benchmarks.eris.data import Clients, digits, split
from benchmarks.eris.networks import Flat, logistic
from benchmarks.report import Findings, Row, Table

__all__ = ["SAGA", "SVRG", "Estimator", "Full", "Plain"]

LIBRARIES = ("numpy", "torch", "scikit-learn")

ALPHA, DECAY, BATCH = 0.3, 0.05, 4
SEEDS = 2
MARKS: Final = (100, 300, 600)
"""The rounds after which gaps are shown."""
RATES: Final = {ALL: 0.2, Way(4, "own"): 0.1, Way(4, "own", shift=False): 0.1}
"""What is sent, and the learning rate."""


class Estimator(Protocol):
    """An unbiased estimate of each client's gradient."""

    def __call__(self, weights: Tensor, chosen: Tensor) -> Tensor:
        """The estimates, shape ``(n, M)``.

        Args:
            weights: of all clients, shape ``(M,)``.
            chosen: the samples of each that may be looked at, shape ``(n, batch)``.
        """


class Full:
    """The gradient of all samples, whatever is chosen."""

    def __init__(self, flat: Flat, data: Clients) -> None:
        self._flat, self._data = flat, data

    def __call__(self, weights: Tensor, chosen: Tensor) -> Tensor:
        del chosen
        everyone = weights.expand(self._data.count, -1)
        return self._flat.gradients(everyone, self._data.inputs, self._data.labels)


class Plain:
    """The mean gradient of the chosen samples."""

    def __init__(self, flat: Flat, data: Clients) -> None:
        self._flat, self._data = flat, data

    def __call__(self, weights: Tensor, chosen: Tensor) -> Tensor:
        return self.each(weights, chosen).mean(1)

    def each(self, weights: Tensor, chosen: Tensor) -> Tensor:
        """The gradient of each chosen sample, shape ``(n, batch, M)``."""
        clients = torch.arange(self._data.count)[:, None]
        inputs, labels = self._data.inputs[clients, chosen], self._data.labels[clients, chosen]
        return self._flat.sample_gradients(weights.expand(len(clients), -1), inputs, labels)


class SAGA(Plain):
    """Differences to each sample's last gradient, and the mean of all last ones."""

    def __init__(self, flat: Flat, data: Clients) -> None:
        super().__init__(flat, data)
        samples = torch.arange(data.labels.shape[1]).expand(data.count, -1)
        self._last = self.each(flat.start, samples)

    def __call__(self, weights: Tensor, chosen: Tensor) -> Tensor:
        clients, found = torch.arange(len(chosen))[:, None], self.each(weights, chosen)
        estimate = (found - self._last[clients, chosen]).mean(1) + self._last.mean(1)
        self._last[clients, chosen] = found
        return estimate


class SVRG(Plain):
    """Differences to the gradients at an anchor, which moves once for each pass of the samples."""

    def __init__(self, flat: Flat, data: Clients) -> None:
        super().__init__(flat, data)
        self._whole, self._rounds = Full(flat, data), 0
        self._period = -(-data.labels.shape[1] // BATCH)

    def __call__(self, weights: Tensor, chosen: Tensor) -> Tensor:
        if self._rounds % self._period == 0:
            self._anchor, self._mean = weights, self._whole(weights, chosen)
        self._rounds += 1
        apart = self.each(weights, chosen) - self.each(self._anchor, chosen)
        return apart.mean(1) + self._mean


FULL, PLAIN, BY_SAGA, BY_SVRG = "full gradients", "plain", "SAGA", "SVRG"
ESTIMATORS: Final[dict[str, Callable[[Flat, Clients], Estimator]]] = {
    FULL: Full,
    PLAIN: Plain,
    BY_SAGA: SAGA,
    BY_SVRG: SVRG,
}


def run(quick: bool) -> Findings:
    """The gaps of each estimator by what is sent, then what is expected of them."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    marks, seeds = ((1, 2), 1) if quick else (MARKS, SEEDS)
    whole, shifted, bare = RATES
    pairs = [(name, way) for way in (whole, shifted) for name in ESTIMATORS] + [(BY_SAGA, bare)]
    found = {
        pair: np.mean([gaps(*pair, marks, seed) for seed in range(seeds)], axis=0) for pair in pairs
    }
    table = Table(
        f"Loss above the optimum's of logistic regression on digits, {N} clients with {BATCH} "
        f"samples a round, after so many rounds",
        ["estimator", "what is sent", *map(str, marks)],
        [
            [name, _sent(way), *(f"{gap:.1e}" for gap in each)]
            for (name, way), each in found.items()
        ],
    )
    last = {key: float(each[-1]) for key, each in found.items()}
    return Findings(_judged(last, judged=not quick), [table])


def _sent(way: Way) -> str:
    return way.name if way == ALL else f"c = {way.one_in}, {way.name}"


def _judged(last: dict[tuple[str, Way], float], *, judged: bool) -> list[Row]:
    whole, shifted, bare = RATES
    rows = []
    pairs = [(each, way, PLAIN, way) for way in (whole, shifted) for each in (BY_SAGA, BY_SVRG)]
    for name, way, other, theirs in [*pairs, (BY_SAGA, shifted, BY_SAGA, bare)]:
        share = last[name, way] / last[other, theirs]
        beside = other if theirs == way else f"{other}, {_sent(theirs)}"
        rows.append(
            Row(
                f"loss above the optimum's, {_sent(way)}: {name}",
                f"{last[name, way]:.1e}",
                f"{beside}: {last[other, theirs]:.1e}",
                f"{share:.2g}×",
                "≤ 0.1×" if judged else "",
                share <= 0.1 if judged else None,
            )
        )
    return rows


def gaps(name: str, way: Way, marks: tuple[int, ...], seed: int) -> list[float]:
    """The loss above the optimum's after some rounds."""
    data, flat = split(digits(), N, ALPHA, seed), Flat(logistic(), DECAY)
    estimator, rng = ESTIMATORS[name](flat, data), np.random.default_rng(seed)
    samples = data.labels.shape[1]

    def local(weights: Tensor) -> Tensor:
        drawn = rng.permuted(np.tile(np.arange(samples), (N, 1)), axis=1)[:, :BATCH]
        return -RATES[way] * estimator(weights, torch.from_numpy(drawn))

    at = dict.fromkeys(marks, flat.start)
    train(flat, local, way, marks[-1], shards=1, seed=seed, at=at)
    least = loss(flat, data, optimum(flat, data))
    return [loss(flat, data, at[mark]) - least for mark in marks]


def loss(flat: Flat, data: Clients, weights: Tensor) -> float:
    """The mean loss of all clients, in double precision."""
    return float(_loss(flat, data, weights.double()))


def _loss(flat: Flat, data: Clients, weights: Tensor) -> Tensor:
    outputs = flat.outputs(weights, data.inputs.flatten(0, 1).double())
    return cross_entropy(outputs, data.labels.flatten()) + DECAY / 2 * weights.square().sum()


def optimum(flat: Flat, data: Clients) -> Tensor:
    """The weights of the least loss, by L-BFGS in double precision."""
    weights = flat.start.double().requires_grad_()
    search = torch.optim.LBFGS(
        [weights],
        max_iter=1000,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        found = _loss(flat, data, weights)
        found.backward()
        return found

    search.step(closure)
    return weights.detach()
