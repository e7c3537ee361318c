"""Inputs from the gradient of a linear layer that meets them: a matrix of rank one, completed.

The gradient of such a layer's weight is ``delta x^T`` of one sample, with ``delta`` the gradient of
its bias. A party that sees a part of the entries completes the matrix and has the input. In a sum,
a unit that only one sample drives shows that sample's input as the ratio of its row to its bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from modelkin.torch.privacy.flat_network import FlatNetwork

__all__ = ["InputLayer", "complete", "find_input_layer", "row_ratios"]

_SWEEPS = 200


@dataclass(frozen=True, slots=True)
class InputLayer:
    """A linear layer whose input is the network's own: where its parameters lie in the vector."""

    weight: slice
    bias: slice | None
    inputs: int


def find_input_layer(network: FlatNetwork, sample: Tensor) -> InputLayer | None:
    """The first linear layer that is given the network's input itself, flattened or not.

    Args:
        network: any.
        sample: one input as a batch, of shape ``(1, ...)``.

    Returns:
        None where another layer comes first, such as a convolution.
    """
    found: list[str] = []
    hooks = [
        module.register_forward_pre_hook(_note(found, name, sample))
        for name, module in network.network.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            network.network(sample)
    finally:
        for hook in hooks:
            hook.remove()
    for name in found:
        weight = network.positions(f"{name}.weight" if name else "weight")
        if weight is not None:
            bias = network.positions(f"{name}.bias" if name else "bias")
            return InputLayer(weight, bias, sample.numel())
    return None


def _note(found: list[str], name: str, sample: Tensor):  # type: ignore[no-untyped-def]
    def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        given = inputs[0]
        if given.numel() == sample.numel() and torch.equal(given.flatten(), sample.flatten()):
            found.append(name)

    return note


def complete(layer: InputLayer, seen: Tensor, at: Tensor, prior: Tensor) -> Tensor:
    """The input of one sample, by alternating least squares on the entries that were seen.

    Args:
        layer: that meets the input.
        seen: values of the gradient, of shape ``(values,)``.
        at: their coordinates in the network's vector.
        prior: an input as far as the attacker knows without the gradient; it stands where no entry
            was seen, and fixes the scale where no bias was.

    Returns:
        The input as a vector, float64.
    """
    rows, row, column, values = _entries(layer, seen, at)
    delta = torch.zeros(rows, dtype=torch.float64, device=seen.device)
    known = torch.zeros_like(prior, dtype=torch.bool)
    known[column] = True
    vector = torch.zeros_like(prior).index_add(0, column, values.abs()) + 1e-300
    for _ in range(_SWEEPS):
        delta = _ratio(row, values * vector[column], vector[column] ** 2, delta)
        vector = _ratio(column, values * delta[row], delta[row] ** 2, vector)
    scale = _scale(layer, seen, at, delta)
    if scale is None:
        scale = _prior_scale(vector[known], prior[known])
    return torch.where(known, vector / scale, prior)


def row_ratios(layer: InputLayer, seen: Tensor, at: Tensor, prior: Tensor) -> Tensor:
    """Each unit's row divided by its bias, of shape ``(units, inputs)``; the prior elsewhere.

    The arguments are those of :func:`complete`.
    """
    rows, row, column, values = _entries(layer, seen, at)
    found = prior.repeat(rows, 1)
    if layer.bias is None:
        return found
    biases = torch.zeros(rows, dtype=torch.float64, device=seen.device)
    inside = (at >= layer.bias.start) & (at < layer.bias.stop)
    biases[at[inside] - layer.bias.start] = seen[inside].double()
    driven = biases[row] != 0
    found[row[driven], column[driven]] = values[driven] / biases[row[driven]]
    return found


def _entries(layer: InputLayer, seen: Tensor, at: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
    """How many rows the weight has; the row, the column and the value of each entry seen."""
    inside = (at >= layer.weight.start) & (at < layer.weight.stop)
    place = at[inside] - layer.weight.start
    rows = (layer.weight.stop - layer.weight.start) // layer.inputs
    return rows, place // layer.inputs, place % layer.inputs, seen[inside].double()


def _ratio(at: Tensor, above: Tensor, below: Tensor, like: Tensor) -> Tensor:
    """Sums of both by place, divided; zero where nothing was seen."""
    top, bottom = (torch.zeros_like(like).index_add(0, at, part) for part in (above, below))
    return torch.where(bottom > 0, top / bottom.clamp_min(1e-300), torch.zeros_like(top))


def _scale(layer: InputLayer, seen: Tensor, at: Tensor, delta: Tensor) -> float | None:
    """The divisor of the vector, from the biases that were seen."""
    if layer.bias is None:
        return None
    inside = (at >= layer.bias.start) & (at < layer.bias.stop)
    units, biases = at[inside] - layer.bias.start, seen[inside].double()
    power = float(delta[units].square().sum())
    scale = float((biases * delta[units]).sum()) / power if power > 0 else 0.0
    return scale if scale else None


def _prior_scale(vector: Tensor, prior: Tensor) -> float:
    """The scale and the sign under which the vector is nearest to the prior's direction."""
    size = float(vector.norm()) / max(float(prior.norm()), 1e-300)
    return (size if float(vector @ prior) >= 0 else -size) or 1.0
