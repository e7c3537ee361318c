"""The mean of the members' layers, tensor by tensor, over those that sent it (Eq. 9).

Sums are of float64 in ascending member ids and are rounded once, so the result depends neither on
the order of arrival nor on how many tensors a member sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.layouts import holds

__all__ = [
    "MIN_MEMBERS",
    "Aggregate",
    "aggregate",
    "check_min_members",
    "check_weight",
    "real_number",
    "unfit",
    "weighted_mean",
]

Array = npt.NDArray[Any]
Id = TypeVar("Id", int, str)

MIN_MEMBERS: Final = 3
"""The fewest members whose tensors are averaged: a mean of two shows each of them the other's."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A cluster's tensors after a round.

    Attributes:
        tensors: the tensors by name, with the dtypes they had before.
        members: how many members sent each tensor.
        kept: the tensors that too few members sent, which have their old values.
    """

    tensors: dict[str, Array]
    members: dict[str, int]
    kept: tuple[str, ...]


def aggregate(
    before: Mapping[str, Array],
    sent: Mapping[Id, Mapping[str, Array]],
    *,
    examples: Mapping[Id, float] | None = None,
    min_members: int = MIN_MEMBERS,
) -> Aggregate:
    """The weighted mean of each tensor over the members that sent it.

    Args:
        before: the cluster's tensors, which those of few members keep.
        sent: what each member sent: tensors of ``before``, all or some, by the member's id.
        examples: the weight of each member; None for equal weights, as the paper has it.
        min_members: a tensor that fewer sent keeps its old value.

    Raises:
        InvalidParameter: a member's tensor is unknown, of another shape or not finite, or its
            weight is not a positive number; names the member.

    Source: DFL2G, Eq. 9; weights as in FedAvg.
    """
    check_min_members(min_members)
    weights = {member: _weight(member, examples) for member in sorted(sent)}
    for member in weights:
        wrong = unfit(sent[member], before)
        if wrong is not None:
            raise InvalidParameter(f"member {member!r}: {wrong}", field="sent")
    tensors, counts = dict[str, Array](), dict[str, int]()
    for name, old in before.items():
        senders = [member for member in weights if name in sent[member]]
        counts[name] = len(senders)
        if len(senders) < min_members:
            tensors[name] = old
            continue
        mean = weighted_mean((weights[member], sent[member][name]) for member in senders)
        tensors[name] = mean.astype(old.dtype)
    return Aggregate(tensors, counts, tuple(n for n in before if counts[n] < min_members))


def weighted_mean(parts: Iterable[tuple[float, Array]]) -> npt.NDArray[np.float64]:
    """``sum(w * v) / sum(w)`` in float64, in the order given, with one part in memory at a time.

    Args:
        parts: at least one pair of a positive weight and values, all of one shape.
    """
    summed: npt.NDArray[np.float64] | None = None
    total = 0.0
    for weight, values in parts:
        total += weight
        if summed is None:
            summed = np.multiply(values, weight, dtype=np.float64)
        else:
            summed += np.multiply(values, weight, dtype=np.float64)
    assert summed is not None
    return np.asarray(summed / total)


def unfit(tensors: Mapping[str, Array], like: Mapping[str, Array]) -> str | None:
    """Say why tensors cannot count in the mean of tensors such as ``like``; None where they can."""
    if not tensors:
        return "it sent no tensor"
    for name, values in tensors.items():
        if name not in like:
            return f"it sent a tensor {name[:80]!r} that the cluster does not have"
        if values.shape != like[name].shape:
            shape = list(like[name].shape)
            return f"tensor {name!r} has the shape {list(values.shape)}, not {shape}"
        if values.dtype.kind != "f":
            return f"tensor {name!r} is of {values.dtype}, not of floats"
        if not holds(like[name].dtype, values):
            return f"tensor {name!r} has a value that is NaN or infinite"
    return None


def check_min_members(min_members: Any) -> None:
    """Raise :class:`InvalidParameter` unless it is a whole number of at least 1."""
    if not isinstance(min_members, int) or isinstance(min_members, bool) or min_members < 1:
        raise InvalidParameter(
            f"min_members must be a whole number of at least 1, not {min_members!r}",
            field="min_members",
        )


def check_weight(examples: Any, what: str) -> float:
    """A number of examples as a weight.

    Raises:
        InvalidParameter: not a positive finite number; ``what`` says whose.
    """
    value = real_number(examples)
    if 0 < value < math.inf:
        return value
    shown = value if math.isinf(value) else examples
    raise InvalidParameter(
        f"the examples of {what} must be a positive number, not {shown!r:.80}", field="examples"
    )


def real_number(value: object) -> float:
    """A number as a float: infinity beyond all floats, NaN for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number of more than 308 digits
        return math.inf


def _weight(member: Id, examples: Mapping[Id, float] | None) -> float:
    return 1.0 if examples is None else check_weight(examples.get(member), f"member {member!r}")
