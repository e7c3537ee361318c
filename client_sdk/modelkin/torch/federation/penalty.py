"""``ClusterPenalty``: pulls a model to its cluster's model while it is trained.

The pull is added to the gradients in place, just before the optimizer uses them. Nothing is added
to the graph of the loss.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter, LearngeneMismatch
from modelkin.torch.federation.learngene import read_learngene
from modelkin.torch.layout import parameters_of
from modelkin.torch.vector import join_names, readable_parameters, wide_dtype

__all__ = ["ClusterPenalty"]

Anchor: TypeAlias = nn.Module | Mapping[str, Tensor] | str | os.PathLike[str]

_PRINTED: Final = 0.5
"""The paper's threshold of the Fisher information, scaled to 0 to 1."""


class ClusterPenalty:
    """The gradient of ``smooth/2 ||t - T||^2 + elastic/2 ||m * (t - T)||^2``, for an optimizer.

    t are the model's parameters and T the cluster's; m selects those that matter little to the
    model, where the empirical Fisher information is at most a quantile of it::

        penalty = ClusterPenalty(model, "gene.safetensors", smooth=0.05)
        handle = optimizer.register_step_pre_hook(penalty)
        train(model, optimizer)
        handle.remove()

    or ``penalty.add()`` after ``backward()``, where no torch optimizer steps. A hook pulls only the
    parameters that the optimizer trains. Make a new penalty each round, with the new T. Both
    factors are 0 by default: no setting that was measured moved the accuracy beyond the noise.

    Args:
        model: the module in training.
        anchor: the cluster's tensors: a model, a state dict, or the file of a learngene. Parameters
            that it lacks are not pulled.
        smooth: lambda 1, at least 0.
        elastic: lambda 2, at least 0; above 0 it needs ``fisher``.
        fisher: the importance at the start of the round, as ``fisher_importance(model, ...)``:
            shape ``(M,)`` in the order of ``layout_of(model)``.
        threshold: the share of all parameters that m selects, those of least importance. Or
            ``"printed"``, as in the paper: the parameters with at most half of the largest
            importance, which are nearly all.
        relative: whether the pull of each layer is divided by ``||T||^2`` of the layer.

    Raises:
        LearngeneMismatch: the anchor has a tensor that the model lacks or has in another shape, or
            no tensor of the model.
        InvalidLearngene: the file is damaged, or has a value that is not finite.
        InvalidParameter: an argument is out of its range; a parameter is sharded; with
            ``relative``, a layer of the anchor is zero.

    Source: DFL2G, Eq. 3 to 7, with the norms squared; FedProx (Li et al., 2020); EWC (Kirkpatrick
    et al., 2017).
    """

    def __init__(
        self,
        model: nn.Module,
        anchor: Anchor,
        *,
        smooth: float = 0.0,
        elastic: float = 0.0,
        fisher: Tensor | None = None,
        threshold: float | Literal["printed"] = 0.9,
        relative: bool = False,
    ) -> None:
        parameters = readable_parameters(model)
        smooth, elastic = _strength(smooth, "smooth"), _strength(elastic, "elastic")
        anchors = _anchors(model, parameters, anchor)
        low = _low_entries(parameters, fisher, threshold) if elastic else None
        self._parameters = {name: parameters[name] for name in anchors}
        self._anchors = anchors
        norms = _divisors(anchors) if relative else dict.fromkeys(map(_layer, anchors), 1.0)
        self._factors = {name: smooth / norms[_layer(name)] for name in anchors}
        # Where m counts, the factors of all single parameters: smooth, or smooth + elastic.
        self._entry_factors: dict[str, Tensor] | None = None
        if low is not None:
            self._entry_factors = {
                name: low[name]
                .to(tensor)
                .mul_(elastic / norms[_layer(name)])
                .add_(self._factors[name])
                for name, tensor in anchors.items()
            }

    @property
    def pulled(self) -> tuple[str, ...]:
        """The names of the parameters that the anchor has."""
        return tuple(self._anchors)

    def __call__(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The hook for ``optimizer.register_step_pre_hook``; ``args`` begin with the optimizer."""
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._with_pull(kwargs["closure"], trained)}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._with_pull(args[1], trained), *args[2:]), kwargs
        # A fused optimizer unscales by itself: GradScaler passes it the scale, and whether to skip.
        skipped, scale = (
            getattr(optimizer, "found_inf", None),
            getattr(optimizer, "grad_scale", None),
        )
        if skipped is None or not bool(skipped):
            self.add(trained, scale=1.0 if scale is None else float(scale))
        return None

    @torch.no_grad()
    def add(self, parameters: Sequence[Tensor] | None = None, *, scale: float = 1.0) -> None:
        """Add the pull to the gradients of the trainable parameters, which are made where missing.

        Args:
            parameters: the parameters to pull; None for all.
            scale: the factor of the gradients, for losses that were scaled up by hand.

        Raises:
            InvalidParameter: a gradient is sparse.
        """
        wanted = None if parameters is None else {id(parameter) for parameter in parameters}
        for name, parameter in self._parameters.items():
            if parameter.requires_grad and (wanted is None or id(parameter) in wanted):
                self._pull(name, parameter, scale)

    def _pull(self, name: str, parameter: nn.Parameter, scale: float) -> None:
        """Add the pull to the gradient of one parameter."""
        gradient = _gradient(name, parameter)
        away = parameter - self._anchor(name, parameter)
        if self._entry_factors is None:
            gradient.add_(away, alpha=scale * self._factors[name])
        else:
            gradient.addcmul_(away, self._entry_factors[name], value=scale)

    @torch.no_grad()
    def value(self, parameters: Sequence[Tensor] | None = None) -> float:
        """The penalty now, of all parameters or of some, for a loss that is shown."""
        wanted = None if parameters is None else {id(parameter) for parameter in parameters}
        total = 0.0
        factors: Mapping[str, Any]
        factors = self._factors if self._entry_factors is None else self._entry_factors
        for name, parameter in self._parameters.items():
            if wanted is None or id(parameter) in wanted:
                away = (parameter - self._anchor(name, parameter)).double().square_()
                total += float((away * factors[name]).sum()) / 2
        return total

    def _anchor(self, name: str, parameter: Tensor) -> Tensor:
        """The anchor on the parameter's device, where the model may have been moved."""
        if self._anchors[name].device != parameter.device:
            self._anchors[name] = self._anchors[name].to(parameter.device)
            if self._entry_factors is not None:
                self._entry_factors[name] = self._entry_factors[name].to(parameter.device)
        return self._anchors[name]

    def _with_pull(
        self, closure: Callable[[], Any], trained: Sequence[Tensor]
    ) -> Callable[[], Any]:
        """Return a closure that adds the penalty to the loss and gradients of the given one."""

        def closure_and_pull() -> Any:
            loss = closure()
            self.add(trained)
            return None if loss is None else loss + self.value(trained)

        return closure_and_pull


@torch.no_grad()
def _anchors(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], anchor: Anchor
) -> dict[str, Tensor]:
    """Copies of the cluster's tensors by the names of the model's parameters."""
    given = _tensors(anchor)
    first = {id(parameter): name for name, parameter in parameters.items()}
    aliases = {n: first[id(p)] for n, p in model.named_parameters(remove_duplicate=False)}
    unknown = [n for n in given if n not in aliases and n not in dict(model.named_buffers())]
    if unknown:
        raise LearngeneMismatch(
            f"the model has no tensor {join_names(name[:80] for name in unknown)} of the anchor"
        )
    anchors: dict[str, Tensor] = {}
    for alias, tensor in given.items():
        if alias not in aliases:
            continue
        name = aliases[alias]
        if tensor.shape != parameters[name].shape:
            raise LearngeneMismatch(
                f"tensor {alias!r} of the anchor has the shape {tuple(tensor.shape)}, and "
                f"{tuple(parameters[name].shape)} in the model"
            )
        anchors[name] = tensor.detach().to(parameters[name], copy=True)
        if not bool(torch.isfinite(anchors[name].to(wide_dtype(tensor))).all()):
            raise LearngeneMismatch(
                f"tensor {alias!r} of the anchor has a value that is not finite as "
                f"{parameters[name].dtype}"
            )
    if not anchors:
        raise LearngeneMismatch("the anchor has no parameter of the model")
    return {name: anchors[name] for name in parameters if name in anchors}


def _tensors(anchor: Any) -> Mapping[str, Tensor]:
    if isinstance(anchor, nn.Module):
        return parameters_of(anchor)
    if isinstance(anchor, Mapping):
        return anchor
    if isinstance(anchor, (str, os.PathLike)):
        return read_learngene(Path(anchor))[0]
    raise InvalidParameter(
        f"anchor must be a model, a state dict or a file, not a {type(anchor).__name__}",
        field="anchor",
    )


def _low_entries(
    parameters: Mapping[str, nn.Parameter], fisher: Any, threshold: Any
) -> dict[str, Tensor]:
    """The m of each parameter: True where the importance is low."""
    size = sum(parameter.numel() for parameter in parameters.values())
    if not isinstance(fisher, Tensor) or fisher.shape != (size,):
        found = tuple(fisher.shape) if isinstance(fisher, Tensor) else type(fisher).__name__
        raise InvalidParameter(
            f"elastic needs fisher, an importance of shape ({size},) as fisher_importance gives "
            f"it, not {found}",
            field="fisher",
        )
    values = fisher.detach().to("cpu", torch.float32).numpy()
    if not np.isfinite(values).all() or values.min() < 0:
        raise InvalidParameter("fisher has a value that is negative or not finite", field="fisher")
    low = torch.from_numpy(values <= _limit(values, threshold))
    parts = low.split([parameter.numel() for parameter in parameters.values()])
    return {n: m.reshape(p.shape) for (n, p), m in zip(parameters.items(), parts, strict=True)}


def _limit(values: Any, threshold: Any) -> float:
    """The largest importance that counts as low."""
    if threshold == "printed":
        least, most = float(values.min()), float(values.max())
        return least + _PRINTED * (most - least)
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
        threshold = math.nan
    if not 0 < threshold <= 1:
        raise InvalidParameter(
            "threshold must be above 0 and at most 1, or 'printed'", field="threshold"
        )
    # A limit that is one of the values, so that rounding selects no parameter too few.
    return float(np.quantile(values, threshold, method="inverted_cdf"))


def _divisors(anchors: Mapping[str, Tensor]) -> dict[str, float]:
    """The divisor ``||T||^2`` of each layer."""
    found: dict[str, float] = {}
    for name, tensor in anchors.items():
        layer = _layer(name)
        found[layer] = found.get(layer, 0.0) + float(tensor.double().square().sum())
    zero = [layer for layer, square in found.items() if not square]
    if zero:
        raise InvalidParameter(
            f"relative divides by the layers of the anchor, and {join_names(zero)} are zero",
            field="relative",
        )
    return found


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _gradient(name: str, parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    if parameter.grad.is_sparse:
        raise InvalidParameter(
            f"the gradient of {name!r} is sparse, and a penalty pulls all of it: leave it out of "
            f"the anchor, or use sparse=False",
            field="model",
        )
    return parameter.grad


def _strength(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        value = math.nan
    if not 0 <= value < math.inf:
        raise InvalidParameter(f"{field} must be a number of at least 0", field=field)
    return float(value)
