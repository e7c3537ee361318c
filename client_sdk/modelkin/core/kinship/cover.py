"""The greedy cover of a target: few donors that together hold as much of its support as possible.

Each next donor is the one that adds most to those before it. In general no polynomial algorithm
guarantees more than this one's ``1 - 1/e`` of the best possible share (Feige, "A threshold of ln n
for approximating set cover", JACM 1998). The caller chooses the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["Step", "greedy_cover"]

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Step:
    """One donor of a cover.

    Attributes:
        row: the candidate, by its row.
        explained: the share of the target that it adds to the donors before it.
        cumulative: the share of the target that all donors so far hold.
    """

    row: int
    explained: float
    cumulative: float


def greedy_cover(
    rows: Words,
    columns: int,
    max_donors: int,
    groups: Sequence[Rows] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[Step]:
    """Donors in the order in which they are taken, until no candidate adds an index.

    Args:
        rows: the bits of each candidate, shape ``(n, ceil(columns / 64))``; the bits after the last
            column are zero.
        columns: how many indices the target has.
        max_donors: the most donors to take.
        groups: the rows that are candidates, ascending; those of a group are taken before those of
            the next. By default all are of one.
        stop: asked before each step; once it is true, the steps so far are returned.

    Returns:
        At most ``max_donors`` steps, each with a gain; of equally good candidates the first row.
    """
    missing = np.full(rows.shape[1], 2**64 - 1, np.uint64)
    missing[-1:] >>= np.uint64(-columns % 64)
    steps: list[Step] = []
    covered = 0
    for candidates in [np.arange(rows.shape[0])] if groups is None else groups:
        while candidates.size and len(steps) < max_donors:
            if stop is not None and stop():
                return steps
            adds = kernels().and_count_rows(rows, missing, candidates)
            best = int(np.argmax(adds))
            if not adds[best]:
                break
            covered += int(adds[best])
            missing &= ~rows[candidates[best]]
            steps.append(Step(int(candidates[best]), int(adds[best]) / columns, covered / columns))
    return steps
