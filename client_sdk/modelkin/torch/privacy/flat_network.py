"""A network as a function of one vector: its trainable parameters in layout order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from modelkin.errors import InvalidParameter
from modelkin.torch.batches import batch_of_one
from modelkin.torch.gradients import LossFunction, SampleGradients, Tensors
from modelkin.torch.independence import refuse_known_modules
from modelkin.torch.vector import readable_parameters, trainable_of

__all__ = ["FlatNetwork"]


class FlatNetwork:
    """Gradients and losses of a network at any weights. The network itself never changes.

    Args:
        network: any network in the mode for its gradients; samples must not depend on each other.
        loss: called as ``loss(output, target)`` on a batch; gives one number, a mean over it.

    Attributes:
        weights: the trainable parameters as they are, of shape ``(M,)``.

    Raises:
        InvalidParameter: the network mixes samples or draws random numbers; no parameter is
            trainable; the parameters have several dtypes.
    """

    def __init__(self, network: nn.Module, loss: LossFunction) -> None:
        refuse_known_modules(network)
        self.network, self._loss = network, loss
        trainable: Tensors = dict(trainable_of(readable_parameters(network)))
        if len({p.dtype for p in trainable.values()}) > 1:
            raise InvalidParameter(
                "the trainable parameters have several dtypes: call network.float() on a copy",
                field="network",
            )
        self._samples = SampleGradients(network, loss, None, trainable, vectorize=True)
        self._shapes = {name: p.shape for name, p in trainable.items()}
        self.weights = _flat(p.detach() for p in trainable.values())

    @property
    def size(self) -> int:
        """M, the number of trainable values."""
        return len(self.weights)

    def probe(self, inputs: Any, targets: Any) -> None:
        """Refuse a network whose output for a sample depends on the other samples."""
        self._samples.probe(inputs, targets)

    def positions(self, name: str) -> slice | None:
        """The slice of the vector that holds a parameter; None if the parameter is not trained."""
        start = 0
        for other, shape in self._shapes.items():
            if other == name:
                return slice(start, start + shape.numel())
            start += shape.numel()
        return None

    def gradient(self, inputs: Any, targets: Any, *, differentiable: bool = False) -> Tensor:
        """The gradient of a batch's loss, of shape ``(M,)``.

        Args:
            inputs: the samples.
            targets: what the loss compares the outputs with, n samples first.
            differentiable: whether the gradient itself may be differentiated by the inputs.
        """
        leaves = {name: p.requires_grad_() for name, p in self._split(self.weights).items()}
        with torch.enable_grad():
            loss = self._loss(self._output(leaves, inputs), targets)
            found = torch.autograd.grad(
                loss,
                list(leaves.values()),
                create_graph=differentiable,
                allow_unused=True,
                materialize_grads=True,
            )
        return _flat(found)

    def sample_gradients(self, inputs: Any, targets: Any) -> Tensor:
        """The gradient of each sample alone, of shape ``(n, M)``."""
        rows = self._samples.of(inputs, targets)
        return torch.cat([_flat_rows(row[name] for name in self._shapes) for row in rows])

    @torch.no_grad()
    def losses(self, weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample alone at the given weights, of shape ``(n,)``."""
        parts = self._split(weights)
        return torch.stack(
            [
                self._loss(self._output(parts, batch_of_one(x)), batch_of_one(y)).double()
                for x, y in zip(inputs, targets, strict=True)
            ]
        )

    def _output(self, parts: Tensors, inputs: Any) -> Any:
        buffers = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        return functional_call(self.network, (parts, buffers), (inputs,))

    def _split(self, vector: Tensor) -> Tensors:
        parts = vector.detach().split([shape.numel() for shape in self._shapes.values()])
        shaped = zip(self._shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in shaped}


def _flat(tensors: Any) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _flat_rows(tensors: Any) -> Tensor:
    return torch.cat([tensor.reshape(len(tensor), -1) for tensor in tensors], dim=1)
