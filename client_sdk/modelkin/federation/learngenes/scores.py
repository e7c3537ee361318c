"""Scores of layers: how far each has moved, and how much members differ in it.

Use them to inspect a model, and to reproduce the paper. A low change or dispersion means a
layer that members have in common; the layers that Eq. 8 ranks are sorted by their size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter

__all__ = ["changes", "dispersion", "printed_scores"]

Tensors = Mapping[str, npt.NDArray[Any]]


def changes(before: Tensors, after: Tensors) -> dict[str, float]:
    """``||after - before|| / ||before||`` of each layer: the relative change, low where shared.

    Args:
        before: the tensors by name.
        after: the same ones later.

    Returns:
        By layer, in the order of ``before``; infinite for a layer that was all zeros and is not.

    Raises:
        InvalidParameter: the tensors differ in names or shapes.
    """
    _check_alike([before, after])
    found = {}
    for layer, names in _layers(before).items():
        moved = math.sqrt(sum(_squares(_doubles(after[n]) - _doubles(before[n])) for n in names))
        norm = math.sqrt(sum(_squares(_doubles(before[n])) for n in names))
        found[layer] = moved / norm if norm else (math.inf if moved else 0.0)
    return found


def dispersion(members: Sequence[Tensors]) -> dict[str, float]:
    """The variance of each layer over members by the square of its mean, low where shared.

    It is ``sum_i ||theta_i - mean||^2 / (N ||mean||^2)``.

    Args:
        members: the tensors of each, at least two members.

    Returns:
        By layer, in the order of the first; infinite where the mean is zero and members differ.

    Raises:
        InvalidParameter: fewer than two members, or tensors that differ in names or shapes.
    """
    if len(members) < 2:
        raise InvalidParameter("a dispersion needs two members or more", field="members")
    _check_alike(members)
    found = {}
    for layer, names in _layers(members[0]).items():
        variance = norm = 0.0
        for name in names:
            mean = _mean(member[name] for member in members)
            norm += _squares(mean)
            variance += sum(_squares(_doubles(member[name]) - mean) for member in members)
        variance /= len(members)
        found[layer] = variance / norm if norm else (math.inf if variance else 0.0)
    return found


def printed_scores(before: Tensors, after: Tensors) -> dict[str, float]:
    """Eq. 8 as printed: ``cos(after, before) / dim`` of each layer, scaled to the sum 1.

    It sorts layers by their size, and hardly by how they moved: ``dim`` differs a thousandfold
    where the cosine stays near 1. It is here to reproduce the paper.

    Args:
        before: as for :func:`changes`; ``after`` likewise.

    Returns:
        By layer, in the order of ``before``.

    Raises:
        InvalidParameter: as :func:`changes`.

    Source: DFL2G, Eq. 8.
    """
    _check_alike([before, after])
    raw = {}
    for layer, names in _layers(before).items():
        dot = sum(float(np.vdot(_doubles(after[n]), _doubles(before[n]))) for n in names)
        norms = [sum(_squares(_doubles(side[n])) for n in names) for side in (before, after)]
        length = math.sqrt(norms[0]) * math.sqrt(norms[1])
        raw[layer] = (dot / length if length else 0.0) / sum(before[n].size for n in names)
    total = sum(raw.values())
    return {layer: score / total if total else 0.0 for layer, score in raw.items()}


def _layers(tensors: Tensors) -> dict[str, list[str]]:
    """The names of each layer's tensors; empty tensors count for nothing."""
    found: dict[str, list[str]] = {}
    for name, values in tensors.items():
        if values.size:
            found.setdefault(name.rpartition(".")[0], []).append(name)
    return found


def _check_alike(sides: Sequence[Tensors]) -> None:
    first = sides[0]
    for other in sides[1:]:
        for name in first.keys() | other.keys():
            if name not in first or name not in other:
                raise InvalidParameter(f"only one of them has the tensor {name!r}", field="after")
            if first[name].shape != other[name].shape:
                raise InvalidParameter(
                    f"tensor {name!r} has the shape {list(first[name].shape)} in one and "
                    f"{list(other[name].shape)} in the other",
                    field="after",
                )


def _doubles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return values.astype(np.float64, copy=False)


def _squares(values: npt.NDArray[np.float64]) -> float:
    return float(np.vdot(values, values))


def _mean(values: Iterable[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    summed, count = None, 0
    for each in values:
        count += 1
        if summed is None:
            summed = each.astype(np.float64)
        else:
            summed += each
    assert summed is not None
    return summed / count
