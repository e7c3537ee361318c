"""Per-sample gradients of a model: all at once through ``torch.func``, or one by one with autograd.

The model is called with copies of its buffers and with detached weights, so it never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from modelkin.errors import InvalidParameter
from modelkin.torch.batches import batch_of_one, description, rows_of
from modelkin.torch.independence import RANDOM_OUTPUT, refuse_dependent_samples, samples_second
from modelkin.torch.trees import leaves_of

__all__ = ["Forward", "LossFunction", "SampleGradients", "Tensors"]

Forward = Callable[[nn.Module, Any], Any]
LossFunction = Callable[[Any, Any], Tensor]
Tensors = dict[str, Tensor]

_SPARSE: Final[dict[Any, int]] = {
    nn.functional.embedding: 6,
    nn.functional.embedding_bag: 7,
    torch.embedding: 4,
    torch.embedding_bag: 5,
}
"""The functions that take sparse gradients, and the place of the argument that asks for them."""


class SampleGradients:
    """Per-sample gradients of one model and loss, with respect to its trainable parameters."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFunction,
        forward: Forward | None,
        trainable: Tensors,
        vectorize: bool,
    ) -> None:
        self._module = _Forward(model, forward)
        self._is_sparse = any(getattr(module, "sparse", False) for module in model.modules())
        self._loss_fn = loss_fn
        self._names = tuple(trainable)
        self._weights = {f"model.{name}": p.detach() for name, p in trainable.items()}
        self._vectorize = vectorize

    def probe(self, inputs: Any, targets: Any) -> None:
        """Run a few samples without gradients, and refuse a model without per-sample gradients.

        An error of the model itself, such as a wrong input shape, is raised as torch raises it.
        """
        suspect = samples_second(self._module)

        def output(batch: Any) -> Any:
            return self._output(self._weights, self._buffers(), batch)

        with torch.no_grad():
            refuse_dependent_samples(output, inputs, suspect)
            one = slice(0, 1)
            sample, target = rows_of(inputs, one), rows_of(targets, one)
            try:
                self._loss(self._weights, self._buffers(), sample, target)
            except (ValueError, RuntimeError) as error:
                shapes = [leaf.shape for leaf in leaves_of(output(sample)) if leaf.dim()]
                if not suspect or not shapes or shapes[0][0] == 1:
                    raise
                raise InvalidParameter(
                    f"loss_fn takes no output of shape {tuple(shapes[0])} for one sample "
                    f"({error}){suspect}",
                    field="model",
                ) from error

    def of(self, inputs: Any, targets: Any) -> Iterator[Tensors]:
        """The gradients of n samples by name, each of shape ``(rows, *shape)``, n rows in all.

        The caller may remove tensors from the dict, to free their memory early.
        """
        return (self._all_at_once if self._vectorize else self._one_by_one)(inputs, targets)

    def _all_at_once(self, inputs: Any, targets: Any) -> Iterator[Tensors]:
        """The gradients of all samples together, each of shape ``(n, *shape)``."""

        def loss(weights: Tensors, buffers: Tensors, sample: Any, target: Any) -> Tensor:
            return self._loss(weights, buffers, batch_of_one(sample), batch_of_one(target))

        per_sample = vmap(grad(loss), in_dims=(None, None, 0, 0))
        try:
            with sdpa_kernel(SDPBackend.MATH):  # the one attention kernel that vmap can batch
                found = per_sample(self._weights, self._buffers(), inputs, targets)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise _not_vectorizable(error) from error
        yield {name: found.pop(f"model.{name}") for name in self._names}

    def _one_by_one(self, inputs: Any, targets: Any) -> Iterator[Tensors]:
        """The gradients of one sample at a time, each of shape ``(1, *shape)``."""
        leaves = {name: weight.detach().requires_grad_() for name, weight in self._weights.items()}
        for i in range(len(leaves_of(inputs)[0])):
            one = slice(i, i + 1)
            with torch.enable_grad():
                loss = self._loss(
                    leaves, self._buffers(), rows_of(inputs, one), rows_of(targets, one)
                )
            if loss.requires_grad:
                found = torch.autograd.grad(
                    loss, list(leaves.values()), allow_unused=True, materialize_grads=True
                )
                dense = (g.to_dense() if g.is_sparse else g for g in found)
                yield {name: g.unsqueeze(0) for name, g in zip(self._names, dense, strict=True)}

    def _loss(self, weights: Tensors, buffers: Tensors, inputs: Any, targets: Any) -> Tensor:
        loss = self._loss_fn(self._output(weights, buffers, inputs), targets)
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            raise InvalidParameter(
                f"loss_fn must return one number, a tensor of shape (), it returned "
                f"{description(loss)}: use reduction='mean'",
                field="loss_fn",
            )
        return loss

    def _output(self, weights: Tensors, buffers: Tensors, inputs: Any) -> Any:
        with _DenseGradients() if self._is_sparse else nullcontext():
            return functional_call(self._module, (weights, buffers), (inputs,))

    def _buffers(self) -> Tensors:
        """Fresh copies, so that a forward pass never updates the model's own buffers."""
        return {name: buffer.clone() for name, buffer in self._module.named_buffers()}


class _Forward(nn.Module):
    """The model with the caller's ``forward``, as one module for ``functional_call``."""

    def __init__(self, model: nn.Module, forward: Forward | None) -> None:
        super().__init__()
        self.model = model
        self._call = forward

    def forward(self, inputs: Any) -> Any:
        return self.model(inputs) if self._call is None else self._call(self.model, inputs)


class _DenseGradients(TorchFunctionMode):
    """Has embeddings look up rows with dense gradients: vmap has no sparse ones."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = {} if kwargs is None else dict(kwargs)
        place = _SPARSE.get(func)
        if place is not None and len(args) > place:
            args = (*args[:place], False, *args[place + 1 :])
        elif place is not None:
            kwargs["sparse"] = False
        return func(*args, **kwargs)


def _not_vectorizable(error: RuntimeError) -> InvalidParameter:
    """An error with a remedy for a model that vmap refuses; without vmap the model has run."""
    message = str(error)
    if "random" in message:
        return InvalidParameter(RANDOM_OUTPUT, field="model")
    if any(words in message for words in ("in-place", "inplace", "in place", "broadcast shape")):
        cause = (
            "it changes a tensor in place with values of the sample (a buffer, or a recurrent "
            "layer's state)"
        )
    elif "Sparse" in message or "sparse" in message:
        cause = "it takes sparse gradients by a function (torch.nn.functional.embedding)"
    elif ".item()" in message or "dynamic shape" in message:
        cause = (
            "its control flow or its shapes depend on the values of the sample (.item(), if, a "
            "boolean mask)"
        )
    else:
        cause = message.splitlines()[0] if message else type(error).__name__
    return InvalidParameter(
        f"torch.func.vmap cannot run this model or its loss on several samples at once: {cause}. "
        f"Pass vectorize=False to take the samples one by one",
        field="model",
    )
