"""The sharing rules of the literature, and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from benchmarks.dfl2g.federation import Flags, Local, Rule
from demo.cohort import Weights
from modelkin.torch import layer_changes, printed_scores

__all__ = ["CHANGE", "FEDAVG", "RULES", "Scores", "changes", "layer_sizes", "lowest", "printed"]

Scores = npt.NDArray[np.float64]
"""A score of each client and layer; layers of low scores are shared."""


def changes(before: Weights, after: Weights) -> Scores:
    """How far each layer of each client has moved."""
    return _scores(layer_changes, before, after)


def printed(before: Weights, after: Weights) -> Scores:
    """Eq. 8 as printed."""
    return _scores(printed_scores, before, after)


def layer_sizes(weights: Weights) -> npt.NDArray[np.int64]:
    """The number of values of each layer."""
    sizes: dict[str, int] = {}
    for name, values in weights.items():
        layer = name.rpartition(".")[0]
        sizes[layer] = sizes.get(layer, 0) + values[0].numel()
    return np.array(list(sizes.values()))


def _scores(
    score: Callable[[Weights, Weights], dict[str, float]], before: Weights, after: Weights
) -> Scores:
    found = []
    for client in range(len(next(iter(before.values())))):
        sides = [{name: each[client] for name, each in side.items()} for side in (before, after)]
        found.append(list(score(*sides).values()))
    return np.array(found)


def _first(depth: int) -> Callable[[Local], Flags]:
    return lambda local: _everywhere(local, np.arange(local.steepness.shape[1]) < depth)


def _last(count: int) -> Callable[[Local], Flags]:
    return lambda local: _everywhere(
        local, np.arange(local.steepness.shape[1]) >= local.steepness.shape[1] - count
    )


def _trunk(local: Local) -> Flags:
    return _everywhere(local, np.arange(local.steepness.shape[1]) < local.tightened)


def _everywhere(local: Local, flags: Flags) -> Flags:
    return np.tile(flags, (len(local.steepness), 1))


def _by_chance(local: Local) -> Flags:
    return local.rng.random(local.steepness.shape) < 0.5


def lowest(scores: Scores, count: int) -> Flags:
    """The layers of least score of each client; of equal ones the earlier."""
    return np.asarray(rankdata(scores, method="ordinal", axis=1) <= count)


FEDAVG: Final = Rule("FedAvg", _first(6))
"""Everything, of every client."""

CHANGE: Final = Rule(
    "least change, 3 layers", lambda at: lowest(changes(at.before, at.after), at.tightened), 3
)

RULES: Final = (
    FEDAVG,
    Rule("local", _first(0)),
    Rule("PartialFed-Fix, first 4", _first(4)),
    Rule("FedFina, last 2", _last(2)),
    Rule("FedLP, p = 0.5", _by_chance, whole_down=True),
    Rule("FedLPS, prune 0.8", _first(6), share=0.2, whole_down=True),
    Rule("Flearngene, least gradient", lambda at: lowest(at.steepness, 3)),
    Rule("Eq. 8, lowest 3", lambda at: lowest(printed(at.before, at.after), at.tightened), 3),
    Rule("Eq. 8, highest 3", lambda at: lowest(-printed(at.before, at.after), at.tightened), 3),
    CHANGE,
    Rule("modelkin's trunk, first 5", _trunk, 5),
)
