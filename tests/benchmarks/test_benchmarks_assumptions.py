"""Estimators are unbiased, and lose their variance at the optimum; quantiles are scipy's."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats

from benchmarks.eris.assumptions.estimators import (
    SAGA,
    SVRG,
    Estimator,
    Full,
    Plain,
    gaps,
    optimum,
)
from benchmarks.eris.assumptions.weights import ratios, straightness
from benchmarks.eris.convergence import ALL
from benchmarks.eris.data import Clients, digits
from benchmarks.eris.networks import Flat, logistic

DECAY = 0.05
N, SAMPLES = 3, 6


def clients() -> Clients:
    """Three clients of six digits each."""
    data = digits()
    at = torch.arange(N * SAMPLES).view(N, SAMPLES)
    return Clients(data.inputs[at], data.labels[at], data.inputs[:1], data.labels[:1])


def away(flat: Flat, distance: float) -> torch.Tensor:
    """Weights in one direction from the start, which is not the same for all classes."""
    return flat.start + distance * torch.randn(
        flat.size, generator=torch.Generator().manual_seed(0)
    )


def estimators(flat: Flat) -> dict[str, Estimator]:
    """Each after some rounds near the start."""
    found: dict[str, Estimator] = {
        each.__name__: each(flat, clients()) for each in (Plain, SAGA, SVRG)
    }
    rng = np.random.default_rng(0)
    for number in range(3):
        chosen = torch.from_numpy(rng.integers(0, SAMPLES, (N, 1)))
        for each in found.values():
            each(away(flat, 0.1 * number), chosen)
    return found


def by_choice(estimator: Estimator, weights: torch.Tensor) -> torch.Tensor:
    """What it says for each sample that may be chosen, shape ``(SAMPLES, n, M)``."""
    return torch.stack(
        [deepcopy(estimator)(weights, torch.full((N, 1), sample)) for sample in range(SAMPLES)]
    )


@pytest.mark.parametrize("name", ["Plain", "SAGA", "SVRG"])
def test_the_mean_over_all_choices_is_the_gradient(name: str) -> None:
    """Whatever the estimator has kept of other weights."""
    flat = Flat(logistic(), DECAY)
    weights = away(flat, 0.3)
    found = by_choice(estimators(flat)[name], weights)
    whole = Full(flat, clients())(weights, torch.zeros(N, 1, dtype=torch.int64))
    assert torch.allclose(found.mean(0), whole, atol=1e-5)
    assert float(found.var(0).sum()) > 1e-3


def test_saga_is_its_formula() -> None:
    """By loops over clients and samples in double precision."""
    flat, data = Flat(logistic(), DECAY), clients()
    saga, table = SAGA(flat, data), np.zeros((N, SAMPLES, flat.size))

    def gradient(client: int, sample: int, weights: torch.Tensor) -> np.ndarray:
        leaf = weights.double().requires_grad_()
        output = flat.outputs(leaf, data.inputs[client, sample][None].double())
        label = data.labels[client, sample][None]
        loss = torch.nn.functional.cross_entropy(output, label) + DECAY / 2 * leaf.square().sum()
        return torch.autograd.grad(loss, leaf)[0].numpy()

    for client in range(N):
        for sample in range(SAMPLES):
            table[client, sample] = gradient(client, sample, flat.start)
    for number in range(4):
        weights = away(flat, 0.1 * number)
        chosen = [(number + client) % SAMPLES for client in range(N)]
        found = saga(weights, torch.tensor(chosen)[:, None]).numpy()
        for client, sample in enumerate(chosen):
            now = gradient(client, sample, weights)
            wanted = now - table[client, sample] + table[client].mean(0)
            table[client, sample] = now
            assert np.allclose(found[client], wanted, atol=1e-5)


@pytest.mark.parametrize("kind", [SAGA, SVRG])
def test_at_rest_nothing_is_left_of_the_variance(kind: type[Plain]) -> None:
    """After a pass at the same weights; plain gradients keep theirs."""
    flat = Flat(logistic(), DECAY)
    weights = away(flat, 0.3)
    estimator, plain = kind(flat, clients()), Plain(flat, clients())
    for sample in range(SAMPLES):
        estimator(weights, torch.full((N, 1), sample))
    if kind is SVRG:
        estimator = SVRG(flat, clients())
        estimator(weights, torch.zeros(N, 1, dtype=torch.int64))
    left, all_ = (float(by_choice(each, weights).var(0).sum()) for each in (estimator, plain))
    assert left < 1e-9 * all_


def test_the_optimum_has_no_gradient() -> None:
    """And rounds of full gradients approach its loss from above."""
    data = clients()
    flat = Flat(logistic(), DECAY)
    least = optimum(flat, data)
    whole = flat.gradients(least.float().expand(N, -1), data.inputs, data.labels).mean(0)
    assert float(whole.norm()) < 1e-4
    first, last = gaps("full gradients", ALL, (1, 20), 0)
    assert first > last > 0


def test_quantiles_are_those_of_scipy() -> None:
    """The correlation of a probability plot, but for the places of its ends."""
    rng = np.random.default_rng(0)
    for values in (rng.standard_normal(800), rng.random(800), rng.standard_normal(800) ** 3):
        _, (_, _, expected) = stats.probplot(values)
        assert straightness(values) == pytest.approx(expected, abs=0.005)


def test_ratios_are_of_variances() -> None:
    """Infinite where clients differ and no batch moves the value; zero where nothing moves."""
    drawn = np.array([[0.0, 1.0, 2.0], [2.0, 1.0, 2.0]])
    whole = np.array([[1.0, 3.0, 5.0], [5.0, 1.0, 5.0]])
    assert [4.0, np.inf, 0.0] == ratios(drawn, whole).tolist()
