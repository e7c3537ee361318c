"""The product's penalties on many models that train side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from benchmarks.dfl2g.data import Population
from benchmarks.dfl2g.federation import Pull
from demo.cohort import Cohort, Weights
from modelkin.torch import ClusterPenalty, fisher_importance

__all__ = ["Masked", "UnsquaredPull", "importances", "low_share", "models_of", "pull_of"]


@dataclass
class Masked(Pull):
    """L_gen and L_elg of each client, with squared norms.

    Attributes:
        smooth: lambda 1.
        elastic: lambda 2.
        epsilon: values of at most so much of the largest importance are pulled by lambda 2.
        relative: whether each layer's pull is divided by the layer's squared norm.
    """

    smooth: float = 0.0
    elastic: float = 0.0
    epsilon: float = 0.5
    relative: bool = False
    models: list[nn.Module] = field(default_factory=list, init=False)
    penalties: list[list[tuple[float, ClusterPenalty]]] = field(default_factory=list, init=False)

    def begin(self, population: Population, weights: Weights, anchors: Weights) -> None:
        self.models = models_of(population.clients.cohort, weights)
        fisher = [torch.empty(0)] * len(self.models)
        if self.elastic:
            fisher = importances(population.clients.cohort, self.models)
        self.penalties = [
            self._penalties(model, {name: values[at] for name, values in anchors.items()}, own)
            for at, (model, own) in enumerate(zip(self.models, fisher, strict=True))
        ]

    def _penalties(
        self, model: nn.Module, anchor: dict[str, Tensor], fisher: Tensor
    ) -> list[tuple[float, ClusterPenalty]]:
        return [(1.0, self._penalty(model, anchor, fisher, self.smooth, self.elastic))]

    def _penalty(
        self,
        model: nn.Module,
        anchor: dict[str, Tensor],
        fisher: Tensor,
        smooth: float,
        elastic: float,
    ) -> ClusterPenalty:
        if not elastic:
            return ClusterPenalty(model, anchor, smooth=smooth, relative=self.relative)
        # The share of all values at the paper's own epsilon is what "printed" takes, too.
        return ClusterPenalty(
            model,
            anchor,
            smooth=smooth,
            elastic=elastic,
            fisher=fisher,
            threshold="printed" if self.epsilon == 0.5 else low_share(fisher, self.epsilon),
            relative=self.relative,
        )

    def add(self, gradients: Weights) -> None:
        for at, (model, penalties) in enumerate(zip(self.models, self.penalties, strict=True)):
            for name, parameter in model.named_parameters():
                parameter.grad = gradients[name][at]
            for _, penalty in penalties:
                penalty.add()


class UnsquaredPull(Masked):
    """The norms as Eq. 3 and 7 print them, so that pulls do not fade near the cluster's model."""

    def _penalties(
        self, model: nn.Module, anchor: dict[str, Tensor], fisher: Tensor
    ) -> list[tuple[float, ClusterPenalty]]:
        found = []
        if self.smooth:
            found.append((self.smooth, self._penalty(model, anchor, fisher, 1.0, 0.0)))
        if self.elastic:
            found.append((self.elastic, self._penalty(model, anchor, fisher, 0.0, 1.0)))
        return found

    def add(self, gradients: Weights) -> None:
        for at, (model, penalties) in enumerate(zip(self.models, self.penalties, strict=True)):
            for strength, penalty in penalties:
                pull = pull_of(model, penalty)
                length = sum(float(each.square().sum()) for each in pull.values()) ** 0.5
                for name, each in pull.items():
                    gradients[name][at].add_(each, alpha=strength / max(length, 1e-8))


def models_of(cohort: Cohort, weights: Weights) -> list[nn.Module]:
    """A model for each client whose parameters are its own rows of the weights, not copies."""
    models = []
    for at in range(len(cohort)):
        model = copy.deepcopy(cohort.template)
        for name, parameter in model.named_parameters():
            parameter.data = weights[name][at]
        models.append(model)
    return models


def importances(cohort: Cohort, models: list[nn.Module]) -> list[Tensor]:
    """The empirical Fisher information of the first clients' models on their own samples."""
    loss: Callable[..., Tensor] = nn.functional.cross_entropy
    return [
        fisher_importance(model, loss, [(x, y)])
        for model, x, y in zip(models, cohort.samples, cohort.labels, strict=False)
    ]


def low_share(fisher: Tensor, epsilon: float) -> float:
    """The share of values that are at most epsilon once they are scaled to 0 to 1."""
    least, most = fisher.min(), fisher.max()
    return float((fisher <= least + epsilon * (most - least)).double().mean())


def pull_of(model: nn.Module, penalty: ClusterPenalty) -> dict[str, Tensor]:
    """The pull that a penalty adds to gradients of zero, by the name of the parameter."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    penalty.add()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
