"""``cluster_means``: the mean model of each cluster of clients, whichever engine carries models.

Sums are of float64 in the order of the clients' names, and are rounded once. So a mean depends
neither on the order of arrival nor on the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from modelkin.federation.learngenes.aggregate import weighted_mean

__all__ = ["Mean", "Model", "cluster_means", "mean_model", "misfits"]

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
) -> dict[str, npt.NDArray[Any]]:
    """``sum(w * model) / sum(w)``; whole numbers are rounded to the nearest.

    Args:
        models: models of one layout, by member.
        weights: at least one member that counts, each with a weight above 0.
        name_of: a member's name, by which members are ordered.
    """
    order = sorted(weights, key=lambda member: (name_of(member), member))
    found = {}
    for name in models[order[0]]:
        values = [models[member][name] for member in order]
        mean = weighted_mean((weights[m], v) for m, v in zip(order, values, strict=True))
        dtype = np.result_type(*values)
        found[name] = (mean if dtype.kind == "f" else np.rint(mean)).astype(dtype)
    return found


def misfits(models: Mapping[Id, Model], like: Model) -> dict[Id, str]:
    """The reasons why some models cannot be averaged, by member.

    They have another layout than the model that was sent, or values that are no finite numbers.

    Args:
        models: models, by member.
        like: the model that was sent: most members do not decide, since they may be wrong.
    """
    reasons = {member: _misfit(model, like) for member, model in models.items()}
    return {member: why for member, why in reasons.items() if why is not None}


def _misfit(model: Model, like: Model) -> str | None:
    if not model:
        return "it sent no array"
    odd = sorted(model.keys() ^ like.keys())
    if odd:
        whose = "the model does not have" if odd[0] in model else "the model has"
        return f"its arrays are of another layout: {whose} {odd[0][:80]!r}"
    for name, values in model.items():
        if values.shape != like[name].shape:
            usual = list(like[name].shape)
            return f"its array {name[:80]!r} has the shape {list(values.shape)}, not {usual}"
        if values.dtype.kind not in "fiub":
            return f"its array {name[:80]!r} is of {values.dtype}, not of numbers"
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return f"its array {name[:80]!r} has a value that is NaN or infinite"
    return None
