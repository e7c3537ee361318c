"""The check of a client's arrays by the model that it was sent: names, shapes, kinds and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["holds", "misfit"]

Arrays = Mapping[str, npt.NDArray[Any]]


def misfit(arrays: Arrays, like: Arrays) -> str | None:
    """Say why arrays cannot count in a mean of models such as ``like``; None where they can.

    Args:
        arrays: what a client sent.
        like: the model that the client was sent, with whose types the mean is rounded. What most
            clients sent does not decide, since most may be wrong.
    """
    if not arrays:
        return "it sent no array"
    odd = sorted(arrays.keys() ^ like.keys(), key=str)
    if odd:
        whose = "the model does not have" if odd[0] in arrays else "the model has"
        return f"its arrays are of another layout: {whose} {odd[0][:80]!r}"
    for name, values in arrays.items():
        usual, what = like[name], f"its array {name[:80]!r}"
        if values.shape != usual.shape:
            return f"{what} has the shape {list(values.shape)}, not {list(usual.shape)}"
        if values.dtype.kind not in "fiub":
            return f"{what} is of {values.dtype}, not of numbers"
        if not holds(usual.dtype, values):
            range_of = "infinite" if usual.dtype.kind == "f" else "out of range"
            return f"{what} has a value that is NaN or {range_of} in {usual.dtype}"
    return None


def holds(dtype: np.dtype[Any], values: npt.NDArray[Any]) -> bool:
    """Whether a type holds all values, up to rounding: finite ones, in its range.

    A float64 of 1e300 is finite, and infinite in a model of float32.
    """
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return bool(np.isfinite(values.astype(dtype, copy=False)).all())
    if values.dtype == dtype:
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if values.dtype.kind != "f":
        return bool(((values >= low) & (values <= high)).all())
    wide = values.astype(np.float64, copy=False)
    # A float of 2^63 equals the largest int64 when compared, and does not fit.
    return bool(((wide >= low) & (wide < high if high > 2**53 else wide <= high)).all())
