"""Models as one vector, in the order in which the server holds their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.aggregate import weighted_mean
from modelkin.integrations.federation.cluster_means import Model, rounded

__all__ = ["add_update", "average", "check_kinds", "difference", "num_values"]

Floats = npt.NDArray[np.float32]


def num_values(model: Model) -> int:
    """Count the values of all arrays, M."""
    return sum(values.size for values in model.values())


def check_kinds(dtypes: dict[str, np.dtype[Any]]) -> None:
    """Check that arrays of some types can be averaged.

    Raises:
        InvalidParameter: an array holds neither floating-point nor whole numbers.
    """
    for name, dtype in dtypes.items():
        if dtype.kind not in "fiu":
            raise InvalidParameter(
                f"array {name!r} is of {dtype}: only floating-point and whole numbers are averaged",
                field="arrays",
            )


def difference(local: Model, received: Model) -> Floats:
    """The update: trained arrays minus received ones, shape ``(num_values,)``.

    Raises:
        InvalidParameter: names or shapes differ, or an array is not of numbers.
    """
    if set(local) != set(received):
        odd = sorted(set(local) ^ set(received))
        raise InvalidParameter(f"its arrays are of another layout: {odd[:3]}", field="arrays")
    update, at = np.empty(num_values(received), np.float32), 0
    for name, old in received.items():
        new = local[name]
        if new.shape != old.shape:
            raise InvalidParameter(
                f"its array {name!r} has shape {new.shape}, not {old.shape}", field="arrays"
            )
        if new.dtype.kind not in "fiu":
            raise InvalidParameter(f"its array {name!r} is of {new.dtype}", field="arrays")
        step = update[at : at + new.size].reshape(new.shape)
        wide = np.float32 if new.dtype == old.dtype == np.float32 else np.float64
        np.subtract(new, old, out=step, dtype=wide, casting="unsafe")
        at += new.size
    return update


def add_update(model: Model, update: Floats) -> dict[str, npt.NDArray[Any]]:
    """Add an update to arrays; arrays of whole numbers are rounded."""
    found, at = dict[str, npt.NDArray[Any]](), 0
    for name, old in model.items():
        step = update[at : at + old.size].reshape(old.shape)
        found[name] = rounded(old.astype(np.float64) + step, old.dtype)
        at += old.size
    return found


def average(models: Sequence[Model], weights: Sequence[float]) -> Model:
    """The weighted mean of models of one layout, in float64; equal models come back as they are."""
    if all(model is models[0] for model in models):
        return models[0]
    return {
        name: rounded(
            weighted_mean(zip(weights, (model[name] for model in models), strict=True)), first.dtype
        )
        for name, first in models[0].items()
    }
