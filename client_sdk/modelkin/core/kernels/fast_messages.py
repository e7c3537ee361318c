"""The loop of ``reference_messages``, compiled: each message is read and written once a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.compiled import compiled, read_only, scratch

Floats = npt.NDArray[np.float64]


def pass_messages(
    s: Floats, availability: Floats, responsibility: Floats, support: Floats, damping: float
) -> None:
    both = scratch(len(s), np.float64)
    shares = np.array([damping, 1 - damping])
    before = support.copy()
    _pass_messages(
        read_only(s),
        availability,
        responsibility,
        before,
        support,
        shares,
        both,
        both.view(np.int64),
    )


@compiled
def _pass_messages(
    s: Any,
    availability: Any,
    responsibility: Any,
    before: Any,
    support: Any,
    shares: Any,
    both: Any,
    bits: Any,
) -> None:
    n, old, new = s.shape[0], shares[0], shares[1]
    support[:] = 0.0
    for i in range(n):
        near, a, r = s[i], availability[i], responsibility[i]
        own = old * a[i] - (r[i] - before[i]) * new
        for j in range(n):
            a[j] = old * a[j] - max(max(r[j], 0.0) - before[j], 0.0) * new
            both[j] = a[j] + near[j] + 0.0  # so that a zero has no sign
        a[i] = own
        both[i] = own + near[i] + 0.0
        best = _first_of_largest(bits)
        highest, both[best] = both[best], -np.inf
        second = both[_first_of_largest(bits)]
        to_best, of_best, of_own = r[best], support[best], support[i]
        for j in range(n):
            r[j] = old * r[j] + (near[j] - highest) * new
            support[j] += max(r[j], 0.0)
        r[best] = old * to_best + (near[best] - second) * new
        support[best] = of_best + max(r[best], 0.0)
        support[i] = of_own + r[i]


@compiled
def _first_of_largest(bits: Any) -> Any:
    """Where the largest of some floats is, by their bits: of these, vectors find the largest."""
    rest = np.int64(0x7FFFFFFFFFFFFFFF)
    largest = -rest
    for j in range(bits.size):
        largest = max(largest, bits[j] ^ ((bits[j] >> 63) & rest))
    where = 0
    while bits[where] ^ ((bits[where] >> 63) & rest) != largest:
        where += 1
    return where


def warm() -> None:
    """Compile the loop."""
    pass_messages(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 2)), np.zeros(2), 0.5)
