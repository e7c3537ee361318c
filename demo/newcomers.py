"""Newcomers: clients with only five examples, and what donors are worth to them.

Each client in turn is taken for one that just joined. It selects a support of its five examples,
and the service returns donors among the other clients, each of which holds some 36 examples.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from demo import data, training
from demo.federation import Federation
from modelkin import Client, select_support

__all__ = ["EXAMPLES", "STEPS", "Newcomers", "Start"]

EXAMPLES = 5
STEPS = (0, 20, 40)
"""Steps of training on these examples, after which accuracy is measured."""

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Start:
    """The weights that a newcomer starts from, and the accuracies that follow.

    Attributes:
        name: the name of the weights, for people.
        accuracies: the accuracy after each of :data:`STEPS`, on each client's own mix, mean over
            clients.
    """

    name: str
    accuracies: tuple[float, ...]


@dataclass(frozen=True)
class Newcomers:
    """All clients as newcomers, and the trained models of the same clients as donors.

    Attributes:
        support_size: the K that the clients agreed on.
        trained: the weights of each client's model, ``(clients, M)``.
        donors: the number of donors to ask for.
    """

    federation: Federation
    support_size: int
    trained: Tensor
    donors: int

    @cached_property
    def samples(self) -> data.Integers:
        """Five of each client's samples, ``(clients, 5)``."""
        return training.few_examples(self.federation.split, EXAMPLES, self.federation.seed)

    def shares(self, client: Client) -> Shares:
        """The weight of each donor for each newcomer, ``(clients, clients)``; rows sum to 1."""
        federation = self.federation
        shares = np.zeros((len(federation.names), len(federation.names)))
        for i, name in enumerate(federation.names):
            importance = training.importance_of(federation.model, federation.split, self.samples[i])
            support = select_support(importance, k=self.support_size)
            found = client.donors(
                federation.space, support, k=self.donors, weights="similarity", exclude=[name]
            )
            for donor in found:
                shares[i, federation.number(donor.model)] = donor.weight
        return shares

    def starts(self, shares: Shares) -> list[Start]:
        """A newcomer alone, after the plain average of all others, and after its donors'."""
        common = torch.nn.utils.parameters_to_vector(self.federation.model.parameters()).detach()
        clients = len(self.trained)
        plain = (1 - np.eye(clients)) / (clients - 1)
        return [
            self._start("the weights that all received: its own model alone",
                        common.repeat(clients, 1)),
            self._start("the plain average of all other models",
                        training.mixture(self.trained, plain)),
            self._start(f"its {self.donors} donors' average, weighted by S",
                        training.mixture(self.trained, shares)),
        ]  # fmt: skip

    def _start(self, name: str, weights: Tensor) -> Start:
        split, mixes = self.federation.split, self.federation.split.mixes
        accuracies = []
        model = copy.deepcopy(self.federation.model)
        for state in training.train_few(model, weights, split, self.samples, STEPS):
            rows = [training.accuracy_by_class(model, row, split) for row in state]
            accuracies.append(float((np.array(rows) * mixes).sum(axis=1).mean()))
        return Start(name, tuple(accuracies))
