"""The sharing rules of the literature, and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import rankdata

from benchmarks.dfl2g.federation import Flags, Layers, Local, Rule, Strategy, mixed
from demo.cohort import BATCH, Cohort, Weights
from modelkin.torch import layer_changes, printed_scores

__all__ = [
    "ADAPTIVE",
    "CHANGE",
    "FEDAVG",
    "RULES",
    "Adaptive",
    "Scores",
    "changes",
    "layer_sizes",
    "lowest",
    "printed",
]

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


class Adaptive(Strategy):
    """Each client learns by gradients which layers it loads: PartialFed-Adaptive.

    At each step a client draws, layer by layer, the cluster's weights or its own, and the odds move
    against the loss (Gumbel-softmax with straight-through gradients). The weights themselves stay,
    and train afterwards from those that are the more likely.

    Args:
        layers: the layers of the network.
        judges: the clients, with the samples by which they decide.

    Source: Sun et al., "PartialFed: cross-domain personalized federated learning via partial
    initialization", NeurIPS 2021. There clients send all layers; here, as DFL2G counts it, those
    that they load.
    """

    _RATE: Final = 0.1
    _STEPS: Final = 5

    def __init__(self, layers: Layers, judges: Cohort) -> None:
        self._layers, self._judges = layers, judges
        self.odds = torch.zeros(len(judges), len(layers), dtype=torch.float64)
        """The logarithm of the odds for loading, ``(clients, layers)``."""
        self._optimizer = torch.optim.Adam([self.odds], self._RATE)
        self._generator = torch.Generator().manual_seed(len(judges))

    def loaded(self, weights: Weights, common: Weights) -> Flags:
        """The more likely choice of each layer after some draws; ties load."""
        drawn, soft = self._draw()
        tried = mixed(self._layers, drawn, common, weights)

        def on_step(gradients: Weights) -> None:
            nonlocal soft
            slopes = torch.zeros_like(self.odds)
            for at, names in enumerate(self._layers.values()):
                for name in names:
                    step = gradients[name] * (common[name] - weights[name])
                    slopes[:, at] += step.flatten(1).sum(1)
            self.odds.grad = slopes * soft * (1 - soft)
            self._optimizer.step()
            drawn, soft = self._draw()
            for name, values in mixed(self._layers, drawn, common, weights).items():
                tried[name].copy_(values)

        epochs = -(-self._STEPS // (self._judges.labels.shape[1] // BATCH))
        self._judges.train(tried, epochs, self._generator, rate=0.0, on_step=on_step)
        return np.asarray(self.odds.numpy() >= 0)

    def _draw(self) -> tuple[Flags, torch.Tensor]:
        """Choices by their odds, and the soft ones whose slope stands for theirs."""
        uniform = torch.rand(self.odds.shape, generator=self._generator, dtype=torch.float64)
        soft = torch.sigmoid(self.odds + torch.logit(uniform, eps=1e-9))
        return (soft > 0.5).numpy(), soft


ADAPTIVE: Final = Rule(
    "PartialFed-Adaptive",
    lambda at: at.loaded,
    whole_down=True,
    strategy=Adaptive,
    held_back=10,
)

FEDAVG: Final = Rule("FedAvg", _first(6))
"""Everything, of every client."""

CHANGE: Final = Rule(
    "least change, 3 layers", lambda at: lowest(changes(at.before, at.after), at.tightened), 3
)

RULES: Final = (
    FEDAVG,
    Rule("local", _first(0)),
    Rule("PartialFed-Fix, first 4", _first(4)),
    ADAPTIVE,
    replace(ADAPTIVE, name="the same, by samples trained on", held_back=0),
    Rule("FedFina, last 2", _last(2)),
    Rule("FedLP, p = 0.5", _by_chance, whole_down=True),
    Rule("FedLPS, prune 0.8", _first(6), share=0.2, whole_down=True),
    Rule("Flearngene, least gradient", lambda at: lowest(at.steepness, 3)),
    Rule("Eq. 8, lowest 3", lambda at: lowest(printed(at.before, at.after), at.tightened), 3),
    Rule("Eq. 8, highest 3", lambda at: lowest(-printed(at.before, at.after), at.tightened), 3),
    CHANGE,
    Rule("modelkin's trunk, first 5", _trunk, 5),
)
