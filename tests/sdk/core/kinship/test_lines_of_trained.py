"""Declared bases of networks that were trained, judged by lines: as of planted ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from copy import deepcopy
from functools import cache
from typing import Final

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from modelkin.core.fingerprints.comparison import compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.kinship.line_relations import StoredAs, headline, in_words_of_hubs
from modelkin.core.kinship.lines import judge_by_lines
from tests.sdk.core.fingerprints.planted import Tensors, fingerprint
from tests.sdk.core.fingerprints.relatives import average, rounded

pytestmark = pytest.mark.slow

WIDTH: Final = 256


@cache
def trained(seed: int) -> MLPClassifier:
    """A network of three hidden layers, trained on half of the digits."""
    inputs, targets = load_digits(return_X_y=True)
    network = MLPClassifier((WIDTH,) * 3, max_iter=8, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return network.fit(inputs[::2] / 16, targets[::2])


def tensors(network: MLPClassifier) -> Tensors:
    weights = [np.ascontiguousarray(each.T, np.float32) for each in network.coefs_]
    hidden = {f"layers.{i}.weight": each for i, each in enumerate(weights[1:-1])}
    return {"patch": weights[0], **hidden, "head": weights[-1]}


def base() -> Tensors:
    return tensors(trained(0))


def tuned(passes: int) -> Tensors:
    """The base after some passes over the other half."""
    inputs, targets = load_digits(return_X_y=True)
    network = deepcopy(trained(0))
    for _ in range(passes):
        network.partial_fit(inputs[1::2] / 16, targets[1::2])
    return tensors(network)


def halved(made: Tensors) -> Tensors:
    """Half of the units of the last hidden layer."""
    cut = {"layers.1.weight": made["layers.1.weight"][: WIDTH // 2]}
    return made | cut | {"head": made["head"][:, : WIDTH // 2].copy()}


MADE: Final[dict[str, tuple[Callable[[], Tensors], float, Collection[str | None]]]] = {
    "light": (lambda: tuned(1), 32, {"changed"}),
    "fine-tune": (lambda: tuned(4), 32, {"changed"}),
    "heavy": (lambda: tuned(30), 32, {"changed", "shares", None}),
    "renamed": (lambda: {f"net.{k}": v for k, v in base().items()}, 32, {"copy"}),
    "transposed": (lambda: {k: v.T.copy() for k, v in base().items()}, 32, {"copy"}),
    "8 bits": (lambda: rounded(base(), 8), 8.5, {"quantised"}),
    "4 bits": (lambda: rounded(base(), 4), 4.5, {"quantised"}),
    "tuned, in 8 bits": (lambda: rounded(tuned(4), 8), 8.5, {"quantised"}),
    "deeper": (
        lambda: base() | {f"layers.{i + 2}.weight": base()[f"layers.{i}.weight"] for i in (0, 1)},
        32,
        {"depth_up_scaled"},
    ),
    "narrower": (lambda: halved(base()), 32, {"pruned", "shares", "changed"}),
    "with a stranger": (lambda: average(base(), tensors(trained(1)), 0.9), 32, {"changed"}),
}
"""What is made of the base, its bits a parameter where the base has 32, and the right words."""


@cache
def of(seed: int) -> Fingerprint:
    return fingerprint(tensors(trained(seed)))


@pytest.mark.parametrize("how", MADE)
def test_no_true_base_is_contradicted_and_no_relation_is_wrong(how: str) -> None:
    """And a stranger is no base: contradicted by half of the lines, and open with fewer."""
    make, bits, right = MADE[how]
    made = fingerprint(make())
    found = judge_by_lines(made, "base", of(0), [compare(made, "other", of(1))])
    assert found.verdict in ({"consistent"} if how != "heavy" else {"consistent", "inconclusive"})
    stored = StoredAs(1000, round(125 * bits)), StoredAs(1000, 4000)
    said = in_words_of_hubs(found.anatomy.relations, found.comparison, *stored)
    parents = found.anatomy.parents
    assert headline(said, parents[0].verdict if parents else None) in right
    true = compare(made, "true", of(0))
    claimed = judge_by_lines(made, "claimed", of(1), [true])
    if true.share < 0.5:
        assert "inconclusive" == claimed.verdict
    else:
        assert ("mismatch", ("true",)) == (claimed.verdict, claimed.sources)
