"""What hides kin from overlaps: other places for neurons, and other scales for tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modelkin import Layout, select_support, similarity

SHAPES = {"first": (256, 64), "second": (64, 256)}
"""A network with one hidden layer of 256 neurons: `second @ relu(first @ x)`."""
LAYOUT = Layout.of(list(SHAPES.items()))
SHARE = 0.05
Network = dict[str, npt.NDArray[np.float64]]


@pytest.fixture(scope="module")
def base() -> Network:
    """A base of random weights."""
    rng = np.random.default_rng(1)
    return {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def tuned(base: Network) -> Network:
    """A fine-tune of it."""
    rng = np.random.default_rng(2)
    return {name: w + 0.1 * rng.standard_normal(w.shape) for name, w in base.items()}


def permuted(network: Network) -> Network:
    """The same function, its hidden neurons in another order."""
    order = np.random.default_rng(3).permutation(len(network["first"]))
    return {"first": network["first"][order], "second": network["second"][:, order]}


def rescaled(network: Network) -> Network:
    """The same function: what each hidden neuron gives is ten times less, and weighs ten times."""
    return {"first": network["first"] / 10, "second": network["second"] * 10}


def answers(network: Network) -> npt.NDArray[np.float64]:
    """What a network makes of some inputs."""
    inputs = np.random.default_rng(4).standard_normal((64, 8))
    out: npt.NDArray[np.float64] = network["second"] @ np.maximum(network["first"] @ inputs, 0)
    return out


def similar(a: Network, b: Network, **how: Any) -> float:
    """S of two networks by their weights."""
    importances = [np.abs(np.concatenate([w.ravel() for w in each.values()])) for each in (a, b)]
    one, other = (select_support(each, layout=LAYOUT, kind="weight", **how) for each in importances)
    return similarity(one, other)


def test_permuted_neurons_hide_kin(base: Network, tuned: Network) -> None:
    """The function stays, and S falls to chance, with budgets as well."""
    np.testing.assert_allclose(answers(tuned), answers(permuted(tuned)))
    assert similar(base, tuned, fraction=SHARE) > 0.8
    assert similar(base, permuted(tuned), fraction=SHARE) < 2 * SHARE
    assert similar(base, permuted(tuned), budgets=SHARE) < 2 * SHARE


def test_budgets_find_kin_that_other_scales_hide(base: Network, tuned: Network) -> None:
    """One K over all tensors takes one tensor alone, and loses half of S; budgets lose nothing."""
    np.testing.assert_allclose(answers(tuned), answers(rescaled(tuned)))
    plain = similar(base, tuned, budgets=SHARE)
    assert plain > 0.8
    assert plain == similar(base, rescaled(tuned), budgets=SHARE)
    assert similar(base, rescaled(tuned), fraction=SHARE) < 0.6
