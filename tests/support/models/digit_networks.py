"""Networks trained on scikit-learn's digits, from several random starts: strangers of one task."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from modelkin import Layout, Support, select_support

__all__ = ["LAYOUT", "networks_apart", "tuned_networks"]

_HIDDEN = (64, 32)
LAYOUT = Layout.of(
    [
        *(("0.weight", (64, 64)), ("0.bias", (64,)), ("1.weight", (32, 64)), ("1.bias", (32,))),
        *(("2.weight", (10, 32)), ("2.bias", (10,))),
    ]
)


@cache
def networks_apart(count: int = 8) -> tuple[Support, ...]:
    """Supports of networks that share their shape, their task and their images, and no weights."""
    return tuple(_support(_trained(seed)) for seed in range(count))


@cache
def tuned_networks(count: int = 3) -> tuple[Support, ...]:
    """Supports of fine-tunes of the first of these networks, each on other images."""
    inputs, targets = load_digits(return_X_y=True)
    found = []
    for number in range(count):
        network = _trained(0)
        some = np.random.default_rng(number).permutation(len(targets))[:300]
        for _ in range(3):
            network.partial_fit(inputs[some] / 16, targets[some])
        found.append(_support(network))
    return tuple(found)


def _trained(seed: int) -> MLPClassifier:
    inputs, targets = load_digits(return_X_y=True)
    network = MLPClassifier(_HIDDEN, max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return network.fit(inputs / 16, targets)


def _support(network: MLPClassifier) -> Support:
    """The 5% of largest magnitude, as torch would lay the weights out."""
    parts = zip(network.coefs_, network.intercepts_, strict=True)
    flat = [part.ravel() for weight, bias in parts for part in (weight.T, bias)]
    importance = np.abs(np.concatenate(flat)).astype(np.float32)
    return select_support(importance, fraction=0.05, layout=LAYOUT, kind="weight")
