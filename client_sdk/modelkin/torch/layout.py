"""The layout of a torch model: its parameters and their order.

Importance and layout both take the order from here, so index i means the same parameter in both.
Values are never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from torch import nn
from torch.nn.parameter import UninitializedParameter

from modelkin.core.layout import Layout
from modelkin.errors import InvalidLayout, InvalidParameter

__all__ = ["layout_of", "parameters_of"]


def layout_of(model: nn.Module, exclude: Iterable[str] = ()) -> Layout:
    """The names and shapes of a model's parameters, in the order of ``model.named_parameters()``.

    The layout has tied parameters once, under their first name. It has frozen parameters, too, so
    that freezing never changes the meaning of an index. Buffers are not parameters.

    Args:
        model: any ``torch.nn.Module``, on any device, in any mode.
        exclude: shell patterns of parameters to leave out, such as ``"*.stft.*"``.

    Raises:
        InvalidLayout: the model has no parameters, or lazy ones without a shape, because no
            forward pass has run.
        InvalidParameter: a pattern matches no parameter, or no parameter is left.
    """
    return Layout.of(_shapes(parameters_of(model, exclude)))


def parameters_of(model: nn.Module, exclude: Iterable[str] = ()) -> dict[str, nn.Parameter]:
    """The parameters by name, in layout order; raises what :func:`layout_of` does."""
    parameters = _all_parameters(model)
    if isinstance(exclude, str):
        raise InvalidParameter("exclude is one string; give a list of patterns", field="exclude")
    patterns = tuple(exclude)
    if not patterns:
        return parameters
    kept = Layout.of(_shapes(parameters)).without(patterns)
    return {tensor.name: parameters[tensor.name] for tensor in kept.tensors}


def _shapes(parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, tuple[int, ...]]]:
    return ((name, tuple(p.shape)) for name, p in parameters.items())


def _all_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
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
