"""Small networks as functions of one vector, for all clients of a federation at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from benchmarks.eris.data import Clients

__all__ = ["Flat", "lenet", "logistic", "mlp"]


def mlp(inputs: int = 64, classes: int = 10, *, hidden: int = 64, seed: int = 0) -> nn.Module:
    """One hidden layer."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes)
    )


def logistic(inputs: int = 64, classes: int = 10, *, seed: int = 0) -> nn.Module:
    """Multinomial logistic regression."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))


def lenet(side: int, *, seed: int = 0, width: float = 0.5) -> nn.Module:
    """The network of DLG, three convolutions with sigmoids, started uniformly in +-width.

    Source: Zhu, Liu and Han, "Deep leakage from gradients", 2019.
    """
    torch.manual_seed(seed)
    network = nn.Sequential(
        *(nn.Conv2d(1, 12, 5, padding=2, stride=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 5, padding=2, stride=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 5, padding=2, stride=1), nn.Sigmoid()),
        *(nn.Flatten(), nn.Linear(12 * (side // 4) ** 2, 10)),
    )
    for parameter in network.parameters():
        parameter.data.uniform_(-width, width)
    return network


class Flat:
    """A network whose weights are a vector; many vectors, with data of their own, at once.

    Args:
        network: where it starts.
        decay: half of it times the squared weights is added to each loss.
    """

    def __init__(self, network: nn.Module, decay: float = 0.0) -> None:
        self._network, self._decay = network, decay
        self._shapes = [(name, p.shape) for name, p in network.named_parameters()]
        self.start = torch.cat([p.detach().reshape(-1) for p in network.parameters()])
        self.gradients: Callable[[Tensor, Tensor, Tensor], Tensor] = vmap(grad(self._loss))
        """Mean gradients of ``(n, M)`` weights on data of ``(n, samples, ...)``."""
        self._each = vmap(vmap(grad(self._of_one), in_dims=(None, 0, 0)))
        self.weighted_gradients: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = vmap(
            grad(self._weighted)
        )
        """The same with a weight a sample, of shape ``(n, samples)``."""

    @property
    def size(self) -> int:
        return len(self.start)

    def outputs(self, weights: Tensor, inputs: Tensor) -> Tensor:
        """The outputs of the network with one vector of weights."""
        parts = weights.split([shape.numel() for _, shape in self._shapes])
        named = zip(self._shapes, parts, strict=True)
        found: Tensor = functional_call(
            self._network, {name: part.view(shape) for (name, shape), part in named}, (inputs,)
        )
        return found

    def _loss(self, weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        loss = cross_entropy(self.outputs(weights, inputs), labels)
        return loss + self._decay / 2 * weights.square().sum() if self._decay else loss

    def _weighted(self, weights: Tensor, inputs: Tensor, labels: Tensor, share: Tensor) -> Tensor:
        losses = cross_entropy(self.outputs(weights, inputs), labels, reduction="none")
        return (share * losses).sum()

    def sample_gradients(self, weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        """The gradient of each sample alone, shape ``(n, samples, M)``; arguments as before."""
        found: Tensor = self._each(weights, inputs, labels)
        return found

    def _of_one(self, weights: Tensor, sample: Tensor, label: Tensor) -> Tensor:
        return self._loss(weights, sample[None], label[None])

    def accuracy(self, weights: Tensor, data: Clients) -> float:
        """On the samples that no client has."""
        guesses = self.outputs(weights, data.test_inputs).argmax(1)
        return float((guesses == data.test_labels).float().mean())

    def stepped(self, weights: Tensor, data: Clients, rate: float, steps: int) -> Tensor:
        """Each client's weights after some steps on all of its data, shape ``(clients, M)``."""
        found = weights.expand(data.count, -1)
        for _ in range(steps):
            found = found - rate * self.gradients(found, data.inputs, data.labels)
        return found
