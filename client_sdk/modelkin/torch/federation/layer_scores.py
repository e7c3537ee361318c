"""Scores of a model's layers: how far each layer has moved, and how much members differ in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes import scores
from modelkin.torch.layout import parameters_of
from modelkin.torch.vector import is_sharded, wide_dtype

__all__ = ["layer_changes", "layer_dispersion", "printed_scores"]

Weights: TypeAlias = nn.Module | Mapping[str, Tensor]


def layer_changes(before: Weights, after: Weights) -> dict[str, float]:
    """The relative change of each layer, ``||after - before|| / ||before||``.

    A layer that changes little in the training of one member is likely to suit other members, too.
    The scores describe a model. They do not choose a learngene: a trunk is worth more to a newcomer
    than the layers that change least.

    Args:
        before: a model or a state dict, such as the cluster's model at the start of a round. A
            model is compared by its parameters, two state dicts by all tensors of floats.
        after: the model or state dict at a later time.

    Returns:
        The change by layer, in the order of the model.

    Raises:
        InvalidParameter: the tensors differ in names or shapes, or one is sharded.
    """
    first, second = _arrays([before, after])
    return scores.changes(first, second)


def layer_dispersion(members: Sequence[Weights]) -> dict[str, float]:
    """The variance of each layer over the members of a cluster, by the square of its mean.

    A server or a hub that has several models of one cluster can compute the variance.

    Args:
        members: two or more models or state dicts, see :func:`layer_changes`.

    Returns:
        The variance by layer, in the order of the first member.

    Raises:
        InvalidParameter: there are fewer than two members, their tensors differ, or one is sharded.
    """
    return scores.dispersion(_arrays(members))


def printed_scores(before: Weights, after: Weights) -> dict[str, float]:
    """Eq. 8 of DFL2G as printed, to reproduce it: the cosine of a layer by its number of weights.

    The scores sort layers by size, and say next to nothing about how they moved.

    Args:
        before: see :func:`layer_changes`, also for ``after``.

    Returns:
        The score by layer, in the order of the model, with the sum 1.

    Raises:
        InvalidParameter: see :func:`layer_changes`.
    """
    first, second = _arrays([before, after])
    return scores.printed_scores(first, second)


@torch.no_grad()
def _arrays(sides: Sequence[Weights]) -> list[dict[str, npt.NDArray[Any]]]:
    """The tensors of each side by name, in this machine's memory."""
    named = next((list(parameters_of(s)) for s in sides if isinstance(s, nn.Module)), None)
    return [{name: _array(name, tensor) for name, tensor in _tensors(s, named)} for s in sides]


def _tensors(weights: Any, names: Sequence[str] | None) -> list[tuple[str, Tensor]]:
    if isinstance(weights, nn.Module):
        return list(parameters_of(weights).items())
    if not isinstance(weights, Mapping):
        raise InvalidParameter(
            f"weights must be a model or a state dict, not a {type(weights).__name__}",
            field="weights",
        )
    if names is not None:
        return [(name, weights[name]) for name in names if name in weights]
    return [(name, tensor) for name, tensor in weights.items() if tensor.is_floating_point()]


def _array(name: str, tensor: Tensor) -> npt.NDArray[Any]:
    if is_sharded(tensor) or not tensor.is_floating_point():
        raise InvalidParameter(
            f"{name!r} is {'sharded' if is_sharded(tensor) else tensor.dtype}: gather or "
            f"dequantise it first",
            field="weights",
        )
    return np.asarray(tensor.detach().to("cpu", wide_dtype(tensor)).numpy())
