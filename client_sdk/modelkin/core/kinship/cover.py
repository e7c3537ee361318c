"""The greedy cover of a target: donors that together hold as much of its support as few can.

Each next donor is the one that holds most of what those before it do not. No algorithm of
polynomial time does better than this one's ``1 - 1/e`` of the best possible share in general
(Feige, "A threshold of ln n for approximating set cover", JACM 1998). It never chooses whom to
consider.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["Step", "greedy_cover"]

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Step:
    """One donor of a cover.

    Attributes:
        row: which of those considered.
        explained: the share of the target that it holds and none before it.
        cumulative: the share that it and all before it hold.
    """

    row: int
    explained: float
    cumulative: float


def greedy_cover(rows: Words, columns: int, most: int) -> list[Step]:
    """Donors in the order in which they are taken, until nothing is left that one could add.

    Args:
        rows: what each of those considered holds of the target, shape ``(n, ceil(columns / 64))``;
            the bits behind the last column are zero.
        columns: how many indices the target has.
        most: donors at most.

    Returns:
        At most ``most`` steps, each of which adds something; of equally good ones the first row's.
    """
    missing = np.full(rows.shape[1], 2**64 - 1, np.uint64)
    missing[-1:] >>= np.uint64(-columns % 64)
    everyone = np.arange(rows.shape[0])
    steps: list[Step] = []
    covered = 0
    while len(steps) < min(most, everyone.size):
        adds = kernels().and_count_rows(rows, missing, everyone)
        best = int(np.argmax(adds))
        if not adds[best]:
            break
        covered += int(adds[best])
        missing &= ~rows[best]
        steps.append(Step(best, int(adds[best]) / columns, covered / columns))
    return steps
