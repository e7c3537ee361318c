"""Means of adapters of any ranks, and the best approximations of a rank.

The mean of differences is not the product of the means of A and of B, whatever their ranks. So the
factors are stacked, which is exact, and cut by singular values, which no matrix of that rank beats.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from modelkin.errors import InvalidParameter
from modelkin.federation.adapters.low_rank import Adapter, LowRank

__all__ = ["Approximation", "check_rank", "mean_of_rank", "odd_adapters", "of_rank", "stacked_mean"]

Id = TypeVar("Id", int, str)


@dataclass(frozen=True, slots=True, eq=False)
class Approximation:
    """An adapter in place of another one, and how far it is from that one.

    Attributes:
        adapter: the differences; each has the wanted rank, or less where that is exact.
        errors: the Frobenius norm of what is missing over that of the whole, by tensor, 0 to 1.
        error: the same over all tensors.
    """

    adapter: dict[str, LowRank]
    errors: dict[str, float]
    error: float


def stacked_mean(
    adapters: Mapping[Id, Adapter], weights: Mapping[Id, float] | None = None
) -> dict[str, LowRank]:
    """The weighted mean of differences, exact: factors side by side, of the sum of all ranks.

    Args:
        adapters: of one base and one set of targets, by client.
        weights: of each client, 0 or more, of any sum; None for equal weights.

    Raises:
        InvalidParameter: no adapter, other tensors or shapes than most have, a weight that is none;
            names the client.

    Source: Wang et al., FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous
        Low-Rank Adaptations (2024), section 3.2.
    """
    shares = _shares(adapters, weights)
    for client, why in odd_adapters(adapters).items():
        raise InvalidParameter(f"client {client!r}: {why}", field="adapters")
    parts = [(share, adapters[client]) for client, share in shares.items() if share > 0]
    return {
        name: LowRank(
            np.hstack([share * adapter[name].b for share, adapter in parts]),
            np.vstack([adapter[name].a for _, adapter in parts]),
        )
        for name in parts[0][1]
    }


def mean_of_rank(
    adapters: Mapping[Id, Adapter],
    weights: Mapping[Id, float] | None = None,
    *,
    rank: int,
) -> Approximation:
    """The best approximation of rank ``rank`` of the weighted mean, with its error.

    Raises:
        InvalidParameter: see :func:`stacked_mean`; or a rank below 1.
    """
    return of_rank(stacked_mean(adapters, weights), rank)


def of_rank(adapter: Adapter, rank: int | Mapping[str, int]) -> Approximation:
    """The best approximation of an adapter by one of a lower rank; none is nearer (Eckart, Young).

    Args:
        adapter: the differences.
        rank: the rank of all, or of each by the name of its tensor.

    Raises:
        InvalidParameter: a rank is no whole number of at least 1, or missing.
    """
    found, lost, whole = dict[str, LowRank](), dict[str, float](), dict[str, float]()
    for name, each in adapter.items():
        wanted = check_rank(rank.get(name) if isinstance(rank, Mapping) else rank)
        u, s, v = each.singular_values()
        root = np.sqrt(s[:wanted])
        found[name] = LowRank(u[:, :wanted] * root, root[:, None] * v[:wanted])
        lost[name], whole[name] = float(np.linalg.norm(s[wanted:])), float(np.linalg.norm(s))
    errors = {name: _ratio(lost[name], whole[name]) for name in found}
    return Approximation(
        found, errors, _ratio(math.hypot(*lost.values()), math.hypot(*whole.values()))
    )


def odd_adapters(adapters: Mapping[Id, Adapter], like: Adapter | None = None) -> dict[Id, str]:
    """The reasons why some adapters have no mean with the others: other tensors, other shapes.

    Args:
        adapters: by client.
        like: an adapter of the usual tensors and shapes; None for those that most have.
    """
    forms = {client: _form(adapters[client]) for client in sorted(adapters)}
    if like is not None:
        usual = _form(like)
    else:
        counted = Counter(tuple(form.items()) for form in forms.values())
        usual = dict(counted.most_common(1)[0][0]) if counted else {}
    return {
        client: _difference(form, usual)
        for client, form in forms.items()
        if not form or form != usual
    }


def _form(adapter: Adapter) -> dict[str, tuple[int, int]]:
    return {name: adapter[name].shape for name in sorted(adapter)}


def _difference(form: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """How one adapter differs from the usual ones, by the first tensor that tells."""
    if not form:
        return "its adapter changes no tensor"
    name = next(each for each in sorted({*form, *usual}) if form.get(each) != usual.get(each))
    if name not in usual:
        return f"its adapter targets {name[:200]!r}, and others do not"
    if name not in form:
        return f"its adapter does not target {name[:200]!r}, and others do"
    return f"its {name[:200]!r} has the shape {list(form[name])}, not {list(usual[name])}"


def _shares(adapters: Mapping[Id, Adapter], weights: Mapping[Id, float] | None) -> dict[Id, float]:
    """The share of each client in ascending order, which sum to 1."""
    if not adapters:
        raise InvalidParameter("there is no adapter to average", field="adapters")
    given = {
        client: 1.0 if weights is None else _check_weight(weights.get(client), client)
        for client in sorted(adapters)
    }
    total = math.fsum(given.values())
    if total == 0:
        raise InvalidParameter("the weights of all clients are 0", field="weights")
    return {client: weight / total for client, weight in given.items()}


def _check_weight(weight: Any, client: object) -> float:
    number = isinstance(weight, (int, float, np.integer, np.floating)) and type(weight) is not bool
    if not number or not 0 <= weight < math.inf:
        raise InvalidParameter(
            f"client {client!r}: a weight is a number of 0 or more, not {weight!r}", field="weights"
        )
    return float(weight)


def check_rank(rank: Any) -> int:
    """A rank; raises :class:`InvalidParameter` unless it is a whole number of at least 1."""
    if not isinstance(rank, (int, np.integer)) or isinstance(rank, bool) or rank < 1:
        raise InvalidParameter(
            f"rank must be a whole number of at least 1, not {rank!r}", field="rank"
        )
    return int(rank)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
