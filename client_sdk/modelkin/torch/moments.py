"""``GradientMoment``: a running average of squared mini-batch gradients, kept while training.

The moment reads the gradients that training computes anyway, just before an optimizer uses them. It
never changes a gradient, a weight or the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from modelkin.errors import InvalidLayout, InvalidParameter
from modelkin.torch.vector import in_layout_order, join_names, readable_parameters

__all__ = ["GradientMoment"]

MAX_GROWTH = 2.0**16
"""The largest weight of the newest gradients before all moments are scaled back: squares of
gradients stay 10^33 below the largest float32."""


class GradientMoment:
    """The average ``s <- beta * s + (1 - beta) * g ** 2`` over optimizer steps.

    The average is a cheap proxy of the Fisher diagonal.

    Use the moment around any training loop, in one of two ways::

        with GradientMoment(model, optimizer) as moment:
            train(model, optimizer)
        importance = moment.importance()

        moment = GradientMoment(model)
        optimizer.register_step_pre_hook(moment)

    or ``moment.update()`` after ``backward()``, where no torch optimizer steps.

    A step counts the gradients that the optimizer is about to use: summed over all accumulated
    micro-batches, and clipped if they were clipped. A parameter without a gradient counts as zero,
    with ``.grad`` None or zeros alike; a step without any gradient is not counted. Frozen
    parameters (``requires_grad=False``) are not read while they are frozen. For an optimizer with a
    closure (LBFGS) the closure's first gradients count, those at the weights where the step starts.
    Under ``torch.amp.GradScaler`` gradients are read unscaled, and skipped steps are not counted.

    The moment needs a float32 for each parameter that ever had a gradient (float64 for float64
    parameters). A step costs one fused multiply-add of each: instead of shrinking the old average,
    the weight of the new gradients grows, and is scaled back now and then.

    Args:
        model: the module whose gradients are averaged, unsharded.
        optimizer: the optimizer that ``with`` hooks into; needed for ``with`` only.
        beta: the factor of the old average per step, between 0 and 1. The average is over about
            ``1 / (1 - beta)`` steps, 20 by default. The paper's 0.8 is for rounds of many steps.

    Raises:
        InvalidParameter: a parameter is sharded, complex or quantised; beta is out of range; the
            optimizer trains no parameter of the model.
        InvalidLayout: see ``layout_of``.

    Source: the Index-Overlap Similarity paper, section 3.1 (importance accumulation and its EMA)
    and section 4.3.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        beta: float = 0.95,
    ) -> None:
        self._parameters = readable_parameters(model)
        self._optimizer = optimizer
        self._beta = _check_beta(beta)
        self._handle: RemovableHandle | None = None
        self.reset()
        if optimizer is not None:
            trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
            if not trained & {id(p) for p in self._parameters.values()}:
                raise InvalidParameter(
                    f"this {type(optimizer).__name__} trains no parameter of the model",
                    field="optimizer",
                )

    @property
    def beta(self) -> float:
        """The share of the average that remains after a step."""
        return self._beta

    @property
    def steps(self) -> int:
        """The number of steps since the start, or the last :meth:`reset`."""
        return self._steps

    def reset(self) -> None:
        """Start from zero, for the next of adjacent windows."""
        self._moments: dict[str, Tensor] = {}
        self._growth = 1.0
        self._steps = 0

    def __enter__(self) -> Self:
        """Hook into the optimizer until the end of the block.

        Raises:
            InvalidParameter: no optimizer was given, or such a block is active already.
        """
        if self._optimizer is None:
            raise InvalidParameter(
                "give the optimizer: GradientMoment(model, optimizer)", field="optimizer"
            )
        if self._handle is not None:
            raise InvalidParameter(
                "this GradientMoment is in a with block already", field="optimizer"
            )
        self._handle = self._optimizer.register_step_pre_hook(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def __call__(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The hook for ``optimizer.register_step_pre_hook``; ``args`` begin with the optimizer."""
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self._counting_closure(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._counting_closure(args[1]), *args[2:]), kwargs
        # A fused optimizer unscales by itself: GradScaler passes it the scale, and whether to skip.
        skipped, scale = (
            getattr(optimizer, "found_inf", None),
            getattr(optimizer, "grad_scale", None),
        )
        if skipped is None or not bool(skipped):
            self.update(scale=1.0 if scale is None else float(scale))
        return None

    @torch.no_grad()
    def update(self, *, scale: float = 1.0) -> None:
        """Count the current gradients of the parameters as one step.

        Args:
            scale: the factor of the gradients, for losses that were scaled up by hand.
        """
        found = [
            (name, p)
            for name, p in self._parameters.items()
            if p.requires_grad and p.grad is not None
        ]
        if not found:
            return
        self._age()
        weight = self._growth / scale**2
        for name, parameter in found:
            moment = self._moment(name, parameter)
            gradient = _dense(parameter.grad).to(moment.dtype)  # squared in float32
            moment.addcmul_(gradient, gradient, value=weight)
        self._steps += 1

    def importance(self) -> Tensor:
        """The average so far, corrected for its start: the weights of all counted steps sum to one.

        Returns:
            float32 of shape ``(M,)`` on the device of the first parameter, in the order of
            ``layout_of(model)``; exactly 0 for parameters that are frozen now or never had a
            gradient.

        Raises:
            InvalidParameter: no step with a gradient was counted.
            InvalidImportance: the gradient of a step was NaN or infinite, or its square is beyond
                float32.
        """
        if self._steps == 0:
            raise InvalidParameter(
                "no step with a gradient was counted: train inside the with block, register the "
                "moment as the optimizer's step_pre_hook, or call update() between backward() and "
                "zero_grad()",
                field="model",
            )
        share = (1.0 - self._beta) / (1.0 - self._beta**self._steps) / self._growth

        def average(name: str) -> Tensor | None:
            moment = self._moments.get(name)
            frozen = not self._parameters[name].requires_grad
            return None if moment is None or frozen else moment * share

        return in_layout_order(self._parameters, average, "squared gradient", kind="grad_moment")

    def state_dict(self) -> dict[str, Any]:
        """The state for :meth:`load_state_dict` after a restart; for ``torch.save``."""
        return {
            "beta": self._beta,
            "steps": self._steps,
            "growth": self._growth,
            "moments": dict(self._moments),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a :meth:`state_dict`, with its beta.

        Raises:
            InvalidLayout: the state has parameters that are not in the model, or of another shape.
            InvalidParameter: the state is not of a GradientMoment.
        """
        if not isinstance(state, Mapping) or state.keys() != self.state_dict().keys():
            raise InvalidParameter("this is not a state of a GradientMoment", field="state")
        wrong = [
            name
            for name, moment in state["moments"].items()
            if name not in self._parameters or moment.shape != self._parameters[name].shape
        ]
        if wrong:
            raise InvalidLayout(
                f"the state is of another model: {join_names(wrong)} are not in this one, or of "
                f"another shape",
                field="state",
            )
        self._beta = _check_beta(state["beta"])
        self._steps, self._growth = int(state["steps"]), float(state["growth"])
        self._moments = {
            name: moment.detach().to(self._parameters[name].device, copy=True)
            for name, moment in state["moments"].items()
        }

    def _counting_closure(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that also counts the first gradients of the given one."""
        counted = False

        def closure_and_count() -> Any:
            nonlocal counted
            loss = closure()
            if not counted:
                counted = True
                self.update()
            return loss

        return closure_and_count

    def _age(self) -> None:
        """Scale all earlier steps by ``beta`` relative to the next one."""
        self._growth /= self._beta
        if self._growth > MAX_GROWTH:
            for moment in self._moments.values():
                moment.mul_(1.0 / self._growth)
            self._growth = 1.0

    def _moment(self, name: str, parameter: nn.Parameter) -> Tensor:
        moment = self._moments.get(name)
        if moment is None:
            dtype = torch.float64 if parameter.dtype == torch.float64 else torch.float32
            moment = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
        elif moment.device != parameter.device:  # the model has moved
            moment = moment.to(parameter.device)
        self._moments[name] = moment
        return moment


def _dense(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return gradient.to_dense() if gradient.is_sparse else gradient


def _check_beta(beta: Any) -> float:
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 0 < beta < 1:
        raise InvalidParameter(f"beta must be between 0 and 1, not {beta!r}", field="beta")
    return float(beta)
