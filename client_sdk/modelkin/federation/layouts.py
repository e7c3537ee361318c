"""The check of a client's arrays by the model that it was sent: names, shapes, kinds and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["MOST_EXACT", "holds", "misfit", "other_layout"]

Arrays = Mapping[str, npt.NDArray[Any]]

MOST_EXACT: Final = 2**53
"""The whole number up to which float64 has all of them, and so the most of a weight in a mean.

More would make a sum of weights infinite, or the shares of other clients zero.
"""


def misfit(arrays: Arrays, like: Arrays) -> str | None:
    """Say why arrays cannot count in a mean of models such as ``like``; None where they can.

    Args:
        arrays: what a client sent.
        like: the model that the client was sent, with whose types the mean is rounded. What most
            clients sent does not decide, since most may be wrong.
    """
    if not arrays:
        return "it sent no array"
    if (why := other_layout(arrays, like)) is not None:
        return why
    for name, values in arrays.items():
        usual = like[name].dtype
        if not holds(usual, values):
            range_of = "infinite" if usual.kind == "f" else "out of range"
            return f"its array {name[:80]!r} has a value that is NaN or {range_of} in {usual}"
    return None


def other_layout(arrays: Arrays, like: Arrays) -> str | None:
    """Say how arrays differ from a model by names or shapes, or are no numbers; None where not."""
    odd = sorted(arrays.keys() ^ like.keys(), key=str)
    if odd:
        whose = "the model does not have" if odd[0] in arrays else "the model has"
        return f"its arrays are of another layout: {whose} {odd[0][:80]!r}"
    for name, values in arrays.items():
        what, shape = f"its array {name[:80]!r}", like[name].shape
        if values.shape != shape:
            return f"{what} has the shape {list(values.shape)}, not {list(shape)}"
        if values.dtype.kind not in "fiub":
            return f"{what} is of {values.dtype}, not of numbers"
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
    return bool(((wide >= low) & (wide < high if high > MOST_EXACT else wide <= high)).all())
