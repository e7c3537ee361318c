"""The layout of a torch model: its parameters and their order.

Importance and layout both take the order from here, so index i means the same parameter in both.
Values are never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from torch import nn
from torch.nn.parameter import UninitializedParameter

from modelkin.core.layout import Layout
from modelkin.core.matching.names import plain_names
from modelkin.errors import InvalidLayout, InvalidParameter

__all__ = ["layout_by_name", "layout_of", "parameters_of", "plain"]

T = TypeVar("T")


def layout_of(model: nn.Module, exclude: Iterable[str] = ()) -> Layout:
    """The names and shapes of a model's parameters, in the order of ``model.named_parameters()``.

    The layout has tied parameters once, under their first name. It has frozen parameters, too, so
    that freezing never changes the meaning of an index. Buffers are not parameters. Names lack the
    marks of what wraps the model: ``_orig_mod.`` of ``torch.compile``, ``module.`` of DDP.

    Args:
        model: any ``torch.nn.Module``, on any device, in any mode.
        exclude: shell patterns of parameters to leave out, such as ``"*.stft.*"``.

    Raises:
        InvalidLayout: the model has no parameters, or lazy ones without a shape, because no
            forward pass has run.
        InvalidParameter: a pattern matches no parameter, or no parameter is left.
    """
    return layout_by_name(parameters_of(model, exclude))


def layout_by_name(parameters: Mapping[str, nn.Parameter]) -> Layout:
    """The layout of parameters in order, named without the marks of what wraps their model."""
    return Layout.of((name, tuple(p.shape)) for name, p in plain(parameters).items())


def plain(tensors: Mapping[str, T]) -> dict[str, T]:
    """Tensors by their names without the marks of ``torch.compile``, DDP and FSDP."""
    return dict(zip(plain_names(list(tensors)), tensors.values(), strict=True))


def parameters_of(model: nn.Module, exclude: Iterable[str] = ()) -> dict[str, nn.Parameter]:
    """The parameters by name, in layout order; raises what :func:`layout_of` does."""
    parameters = _all_parameters(model)
    if isinstance(exclude, str):
        raise InvalidParameter("exclude is one string; give a list of patterns", field="exclude")
    patterns = tuple(exclude)
    if not patterns:
        return parameters
    kept = {tensor.name for tensor in layout_by_name(parameters).without(patterns).tensors}
    names = zip(plain(parameters), parameters, strict=True)
    return {name: parameters[name] for shown, name in names if shown in kept}


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
