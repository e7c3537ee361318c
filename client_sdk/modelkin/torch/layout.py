"""The layout of a torch model: its parameters and their order.

Importance and layout both take the order from here, so that index i means the same parameter in
each. Values are never read.
"""

from __future__ import annotations

from torch import nn
from torch.nn.parameter import UninitializedParameter

from modelkin.core.layout import Layout
from modelkin.errors import InvalidLayout

__all__ = ["layout_of", "parameters_of"]


def layout_of(model: nn.Module) -> Layout:
    """The names and shapes of a model's parameters, in the order of ``model.named_parameters()``.

    Tied parameters are in it once, under their first name. Frozen ones are in it like all others,
    so that freezing never changes the meaning of an index. Buffers are not parameters.

    Args:
        model: any ``torch.nn.Module``, on any device, in any mode.

    Raises:
        InvalidLayout: the model has no parameters, or lazy ones without a shape, because no
            forward pass has run.
    """
    return Layout.of((name, tuple(p.shape)) for name, p in parameters_of(model).items())


def parameters_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, in layout order; raises what :func:`layout_of` does."""
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        if isinstance(parameter, UninitializedParameter):
            raise InvalidLayout(
                f"parameter {name!r} has no shape yet: run one batch through the model first",
                field="model",
            )
    if not parameters:
        raise InvalidLayout(f"this {type(model).__name__} has no parameters", field="model")
    return parameters
