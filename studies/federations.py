"""A federation of a setting: its clients' samples, their common model, and what they learn."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.cohort import BATCH, Cohort, Weights, repeat, stack
from demo.data import CLASSES, Integers
from demo.planted import Clients, plant_among
from demo.planted import images as demo_images
from modelkin.torch import fisher_importance
from studies.loaders.folder import DataError
from studies.networks.small import common_model
from studies.samples import samples_of
from studies.settings import FILES, Setting
from studies.splits import split_of

__all__ = ["RATE_B", "Federation", "Floats", "Training", "flat"]

Floats = npt.NDArray[np.float64]

RATE_B: Final = 1e-3
"""The paper's learning rate, at which importance is taken over its local epochs."""


@dataclass(frozen=True)
class Training:
    """The results of local training of all clients; rows of shape ``(N, M)``.

    Attributes:
        moments: the mean of squared gradients of batches.
        gradients: the mean of gradients of batches.
        updates: weights after training less the common ones.
        weights: after training.
    """

    moments: Floats
    gradients: Floats
    updates: Floats
    weights: Weights


@dataclass(frozen=True)
class Federation:
    """Clients that received one model.

    Attributes:
        setting: which one.
        model: with the common weights.
        samples: of each client, ``(N, n, ...)``: images, vectors, or token ids.
        labels: ``(N, n)``.
        mixes: label distributions, ``(N, classes)``.
        groups: the planted group of each client, ``(N,)``; all 0 where there are none.
        test_samples: that no client trains on, ``(N, t, ...)``.
        test_labels: ``(N, t)``.
    """

    setting: Setting
    model: nn.Sequential
    samples: Tensor
    labels: Tensor
    mixes: Floats
    groups: Integers
    test_samples: Tensor
    test_labels: Tensor

    @classmethod
    def of(cls, setting: Setting) -> Federation:
        """Clients of a split, who are tested on the same fifth of all samples.

        Raises:
            ValueError: no such data or split.
            DataError: as :func:`studies.splits.split_of`.
        """
        split = split_of(setting)
        images, labels = torch.as_tensor(split.images), torch.as_tensor(split.labels)
        dealt, count = torch.as_tensor(np.stack(split.clients)), len(split.clients)
        tests = images[split.test].expand(count, *[-1] * images.dim())  # one copy for all
        shape, classes = images.shape[1:], split.mixes.shape[1]
        model = common_model(setting.network, shape, classes, setting.seed)
        groups = np.zeros(count, np.int64)
        return cls(
            setting,
            model,
            images[dealt],
            labels[dealt],
            split.mixes,
            groups,
            tests,
            labels[split.test].expand(count, -1),
        )

    @classmethod
    def planted(cls, setting: Setting, kept: float = 0.25) -> Federation:
        """Clients in groups, each of whom keeps a share of its samples for testing.

        Args:
            setting: of a scenario in place of a split.
            kept: the share.

        Raises:
            ValueError: no such scenario; see :func:`demo.planted.plant`.
            DataError: as :func:`studies.samples.samples_of`.
        """
        clients = _planted(setting, kept)
        samples = torch.as_tensor(np.stack(clients.samples))
        labels = torch.as_tensor(np.stack(clients.labels))
        first = int(kept * labels.shape[1])
        classes = clients.mixes.shape[1]
        model = common_model(setting.network, samples.shape[2:], classes, setting.seed)
        return cls(
            setting,
            model,
            samples[:, first:],
            labels[:, first:],
            clients.mixes,
            clients.groups,
            samples[:, :first],
            labels[:, :first],
        )

    def with_samples(self, count: int) -> Federation:
        """The same with the first so many samples of each client."""
        return replace(self, samples=self.samples[:, :count], labels=self.labels[:, :count])

    def tested_by_clients(self) -> Federation:
        """The same, but each client keeps a quarter of its own samples, and is tested on these."""
        generator = torch.Generator().manual_seed(self.setting.seed)
        count, size = self.labels.shape
        order = torch.rand(count, size, generator=generator).argsort(1)
        samples = torch.stack([own[at] for own, at in zip(self.samples, order, strict=True)])
        labels, kept = self.labels.gather(1, order), size // 4
        return replace(
            self,
            samples=samples[:, kept:],
            labels=labels[:, kept:],
            test_samples=samples[:, :kept],
            test_labels=labels[:, :kept],
        )

    @property
    def names(self) -> list[str]:
        """The names of the clients, in the order of all rows."""
        return [f"client-{number:02}" for number in range(len(self.labels))]

    @property
    def start(self) -> Weights:
        """A copy of the common weights for each client."""
        return repeat(stack([self.model]), len(self.labels))

    @cached_property
    def importances(self) -> npt.NDArray[np.float32]:
        """Procedure A: the empirical Fisher at the common weights, before any training."""
        return np.stack(
            [self.importance_of(x, y) for x, y in zip(self.samples, self.labels, strict=True)]
        )

    def importance_of(self, samples: Tensor, labels: Tensor) -> npt.NDArray[np.float32]:
        """The same of any samples, shape ``(M,)``: squared gradients of each, and their mean."""
        loader = DataLoader(TensorDataset(samples, labels), batch_size=64)
        found = fisher_importance(self.model, cross_entropy, loader)
        return np.asarray(found.numpy(), np.float32)

    def at(self, weights: Weights, client: int) -> Federation:
        """The same at one client's weights in place of the common ones."""
        model = deepcopy(self.model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(weights[name][client])
        return replace(self, model=model)

    def trained(self, epochs: int, rate: float = RATE_B) -> Training:
        """Procedure B: what each client's local epochs leave."""
        cohort = Cohort(self.model, self.samples, self.labels)
        start = self.start
        weights = self.start
        squares = {name: torch.zeros_like(values) for name, values in start.items()}
        sums = {name: torch.zeros_like(values) for name, values in start.items()}
        steps = 0

        def observe(gradients: Weights) -> None:
            nonlocal steps
            steps += 1
            for name, values in gradients.items():
                squares[name].addcmul_(values, values)
                sums[name].add_(values)

        generator = torch.Generator().manual_seed(self.setting.seed)
        cohort.train(weights, epochs, generator, rate=rate, on_step=observe)
        return Training(
            flat(squares) / steps, flat(sums) / steps, flat(weights) - flat(start), weights
        )


def _planted(setting: Setting, kept: float) -> Clients:
    """Clients of a scenario, whose images have channels."""
    if setting.data in FILES:
        found = samples_of(setting)
        drawn, labels, classes = found.values, found.labels, found.classes
        if not found.are_tokens:
            drawn = drawn.astype(np.float32)
            drawn = (drawn - drawn.mean()) / drawn.std()
    else:
        data: Any = setting.data
        drawn, labels = demo_images(data, setting.seed)
        drawn, classes = drawn[:, None], CLASSES
    many = {"num_clients": setting.clients, "seed": setting.seed, "classes": classes}
    try:
        clients = plant_among(drawn, labels, setting.split, **many)
    except ValueError as error:
        raise DataError(f"{setting.data}: {error}") from error
    size = len(clients.labels[0])
    if size - int(kept * size) < BATCH:
        raise DataError(f"{setting.data}: its samples are too few for {setting.clients} clients")
    return clients


def flat(weights: Weights) -> Floats:
    """Parameters as rows in the order of the model, shape ``(models, M)``."""
    return torch.cat([values.flatten(1) for values in weights.values()], dim=1).double().numpy()
