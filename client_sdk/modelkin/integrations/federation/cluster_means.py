"""``cluster_means``: the mean model of each cluster of clients, whichever engine carries models.

Sums are of float64 in the order of the clients' names, and are rounded once. So a mean depends
neither on the order of arrival nor on the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.federation.layouts import misfit
from modelkin.federation.learngenes.aggregate import weighted_mean

__all__ = ["Mean", "Model", "cluster_means", "mean_model", "misfits", "rounded"]

Id = TypeVar("Id", int, str)
Model = Mapping[str, npt.NDArray[Any]]
"""The arrays of a model by name: floating-point numbers, whole numbers or truth values."""
Mean = Callable[[Mapping[Any, Model], Mapping[Any, float], Callable[[Any], str]], dict[str, Any]]
"""Makes the mean of models by member, weights above 0 of those that count, and names."""


def cluster_means(
    models: Mapping[Id, Model],
    clusters: Mapping[int, Sequence[Id]],
    weights: Mapping[Id, float],
    name_of: Callable[[Id], str] = str,
    mean: Mean | None = None,
) -> dict[int, dict[str, npt.NDArray[Any]]]:
    """The mean model of each cluster; a cluster of whose members none counts has none.

    Args:
        models: models of one layout, by member; others have no part (:func:`misfits`).
        clusters: the members of each cluster.
        weights: the weight of each member in its cluster; 0, or none, leaves a member out.
        name_of: a member's name, by which members are ordered.
        mean: makes the mean model; :func:`mean_model` where none is given.
    """
    found = {}
    for cluster, members in clusters.items():
        counted = {m: weights[m] for m in members if m in models and weights.get(m, 0.0) > 0}
        if counted:
            found[cluster] = (mean or mean_model)(models, counted, name_of)
    return found


def mean_model(
    models: Mapping[Id, Model],
    weights: Mapping[Id, float],
    name_of: Callable[[Id], str] = str,
    like: Model | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """``sum(w * model) / sum(w)``; whole numbers are rounded to the nearest.

    Args:
        models: models of one layout, by member.
        weights: at least one member that counts, each with a weight above 0.
        name_of: a member's name, by which members are ordered.
        like: a model whose types the mean has; the first member's where none is given.
    """
    order = sorted(weights, key=lambda member: (name_of(member), member))
    found = {}
    for name, values in (models[order[0]] if like is None else like).items():
        mean = weighted_mean((weights[member], models[member][name]) for member in order)
        found[name] = rounded(mean, values.dtype)
    return found


def rounded(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Values in a type, in which whole numbers are the nearest ones."""
    whole = dtype.kind != "f" and values.dtype.kind == "f"
    # numpy makes a scalar of an array without dimensions
    return np.asarray(np.rint(values) if whole else values).astype(dtype, copy=False)


def misfits(models: Mapping[Id, Model], like: Model) -> dict[Id, str]:
    """The reasons why some models cannot be averaged, by member.

    Args:
        models: models, by member.
        like: the model that was sent; see :func:`modelkin.federation.layouts.misfit`.
    """
    reasons = {member: misfit(model, like) for member, model in models.items()}
    return {member: why for member, why in reasons.items() if why is not None}
