"""An upper bound on what aggregators can learn of a member's data, in nats.

It counts the values that they see, and each as if it said something of its own. So it is far above
the entropy of any data that a federation has, and no guarantee: a few values of a gradient show an
example (docs/sharing.md). A guarantee is differential privacy.
"""

from __future__ import annotations

import math
from typing import Any, Final

from modelkin.errors import InvalidParameter

__all__ = ["leakage_bound"]

_MOST: Final = 1e60
"""The largest argument: no product of such arguments overflows."""


def leakage_bound(
    *,
    num_parameters: int,
    rounds: int,
    shards: int,
    colluders: int = 1,
    one_in: float = 1.0,
    snr: float,
) -> float:
    """The mutual information between a member's data and what colluding aggregators see, at most.

    ``rounds * M * min(r / A, 1) / c * log(1 + snr) / 2`` nats; divide by ``log(2)`` for bits. It
    is of shards that are not concealed.

    Args:
        num_parameters: M.
        rounds: T; 0 or more.
        shards: A.
        colluders: r, aggregators that put together what they see; 0 or more.
        one_in: c; of c values one is sent.
        snr: the variance of a value that the data cause, over its other variance; 0 or more.

    Raises:
        InvalidParameter: an argument out of its range.

    Source: ERIS, theorem 3.7 with remark 3.8, and corollary D.2 for colluders.
    """
    _check("num_parameters", num_parameters, 1, int)
    _check("rounds", rounds, 0, int)
    _check("shards", shards, 1, int)
    _check("colluders", colluders, 0, int)
    _check("one_in", one_in, 1, (int, float))
    _check("snr", snr, 0, (int, float))
    seen = num_parameters * min(colluders / shards, 1.0) / one_in
    return rounds * seen * math.log1p(snr) / 2


def _check(field: str, value: Any, least: float, kind: Any) -> None:
    sound = isinstance(value, kind) and not isinstance(value, bool)
    if not (sound and least <= value <= _MOST):
        whole = "a whole number" if kind is int else "a number"
        message = f"{field} must be {whole}, {least} or more, not {value!r}"
        raise InvalidParameter(message, field=field)
