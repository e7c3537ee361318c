"""Models of one network that train side by side, each with its own weights and samples.

One vectorised step trains all models, so that a federation of small models trains in seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

__all__ = [
    "BATCH",
    "DECAY",
    "MOMENTUM",
    "RATE",
    "Cohort",
    "Weights",
    "network",
    "repeat",
    "stack",
]

Weights: TypeAlias = dict[str, Tensor]
"""The weights of all models by the name of the parameter, each of shape ``(models, ...)``."""

OnStep: TypeAlias = Callable[[Weights], None]
"""A function of the gradients before each step, which it may change."""

RATE: Final = 0.01
MOMENTUM: Final = 0.9
DECAY: Final = 5e-4
BATCH: Final = 10


def network(seed: int, *, channels: int = 1, side: int = 8, classes: int = 10) -> nn.Sequential:
    """Four convolutions and two linear layers, the last the head; 25,274 parameters for digits.

    Weights are normal as He et al. (2015) have them, the head's halved; biases are zero.
    """
    model = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, 3, padding=1),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(16, 16, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(16, 32, 3, padding=1),
            relu3=nn.ReLU(),
            conv4=nn.Conv2d(32, 32, 3, padding=1),
            relu4=nn.ReLU(),
            pool4=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(32 * (side // 4) ** 2, 64),
            relu5=nn.ReLU(),
            head=nn.Linear(64, classes),
        )
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
                continue
            width = (2 / parameter[0].numel()) ** 0.5
            scale = width / 2 if name.startswith("head") else width
            parameter.normal_(0, scale, generator=generator)
    return model


def stack(models: Sequence[nn.Module]) -> Weights:
    """Stack the parameters of models of one network, as copies."""
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([each[name].detach() for each in named]) for name in named[0]}


def repeat(weights: Weights, count: int) -> Weights:
    """Return ``count`` copies of the weights of one model."""
    return {
        name: values.expand(count, *values.shape[1:]).clone() for name, values in weights.items()
    }


class Cohort:
    """Clients that train one network, each on its own samples.

    Args:
        template: the network; its own weights do not matter.
        samples: the samples of each client, ``(clients, n, channels, side, side)``.
        labels: the labels of the samples, ``(clients, n)``.
    """

    def __init__(self, template: nn.Module, samples: Tensor, labels: Tensor) -> None:
        self.template, self.samples, self.labels = template, samples, labels

        def outputs(weights: Weights, x: Tensor) -> Tensor:
            found: Tensor = functional_call(template, weights, (x,))
            return found

        def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
            return nn.functional.cross_entropy(outputs(weights, x), y)

        self.outputs, self._gradients = vmap(outputs), vmap(grad(loss))

    def __len__(self) -> int:
        return len(self.labels)

    def train(
        self,
        weights: Weights,
        epochs: int,
        generator: torch.Generator,
        *,
        rate: float = RATE,
        decay: float = DECAY,
        kept: Weights | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        """Change weights by stochastic gradient descent, in batches in random order.

        Args:
            weights: the weights of all clients.
            epochs: passes over each client's samples; samples that fill no batch are left out.
            generator: the source of the random order.
            rate: the learning rate.
            decay: the weight decay, added to the gradients after ``on_step``.
            kept: a mask, true for weights that stay as they are; None to train all.
            on_step: called before each step.
        """
        speed = {name: torch.zeros_like(values) for name, values in weights.items()}
        size = self.labels.shape[1]
        for _ in range(epochs):
            order = torch.rand(len(self), size, generator=generator).argsort(1)
            for batch in order[:, : size // BATCH * BATCH].split(BATCH, dim=1):
                x = torch.stack([own[at] for own, at in zip(self.samples, batch, strict=True)])
                found = self._gradients(weights, x, self.labels.gather(1, batch))
                if on_step is not None:
                    on_step(found)
                for name, values in weights.items():
                    step = found[name].add(values, alpha=decay)
                    if kept is not None:
                        step.masked_fill_(kept[name], 0.0)
                    speed[name].mul_(MOMENTUM).add_(step)
                    values.sub_(speed[name], alpha=rate)

    @torch.no_grad()
    def accuracies(self, weights: Weights, samples: Tensor, labels: Tensor) -> Tensor:
        """The share of each client's test samples that its model classifies right."""
        guesses = self.outputs(weights, samples).argmax(-1)
        return (guesses == labels).double().mean(1)
