"""Pairing two sets one to one so that what the pairs share is most: the assignment problem.

Source: Kuhn's Hungarian method, by shortest augmenting paths (Jonker and Volgenant 1987). What
cannot matter to each other is solved apart, so many small groups cost little.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["best_pairs"]

Integers = npt.NDArray[np.int64]


def best_pairs(left: Integers, right: Integers, shared: Integers) -> list[tuple[int, int]]:
    """The pairs, each side in at most one, whose sum of ``shared`` is the largest there is.

    Args:
        left: of each pair that shares anything the one side, any non-negative numbers, ``(p,)``.
        right: the other side, ``(p,)``; no pair stands twice.
        shared: how much it shares, at least 1, ``(p,)``.

    Returns:
        Pairs of ``left`` and ``right`` that share something, by their left sides. Of several best
        sums it is always the same one for the same pairs in the same order.
    """
    chosen: list[tuple[int, int]] = []
    for group in _groups(left, right):
        rows, i = np.unique(left[group], return_inverse=True)
        columns, j = np.unique(right[group], return_inverse=True)
        table = np.zeros((rows.size, columns.size), np.int64)
        table[i, j] = shared[group]
        for row, column in _solve(table):
            if table[row, column]:
                chosen.append((int(rows[row]), int(columns[column])))
    return sorted(chosen)


def _groups(left: Integers, right: Integers) -> list[Integers]:
    """The pairs that hang together, as positions: no two groups have a side in common."""
    parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(node: tuple[str, int]) -> tuple[str, int]:
        while (above := parent.setdefault(node, node)) != node:
            parent[node] = parent[above]
            node = above
        return node

    for one, other in zip(left.tolist(), right.tolist(), strict=True):
        parent[root(("left", one))] = root(("right", other))
    groups: dict[tuple[str, int], list[int]] = {}
    for position, one in enumerate(left.tolist()):
        groups.setdefault(root(("left", one)), []).append(position)
    return [np.array(group) for group in groups.values()]


def _solve(table: Integers) -> list[tuple[int, int]]:
    """A best assignment of a dense table, ``(a, b)``: min(a, b) pairs."""
    if table.shape[0] > table.shape[1]:
        return [(row, column) for column, row in _solve(table.T)]
    cost = int(table.max()) - table
    a, b = cost.shape
    # Potentials of rows and columns; column b stands for "none yet", row a for no row.
    of_row, of_column = np.zeros(a + 1, np.int64), np.zeros(b + 1, np.int64)
    row_of = np.full(b + 1, a)
    for row in range(a):
        row_of[b] = row
        at, seen = b, np.zeros(b + 1, np.bool_)
        least = np.full(b, np.iinfo(np.int64).max)
        came_from = np.full(b, b)
        while row_of[at] != a:
            seen[at] = True
            here = row_of[at]
            reduced = cost[here] - of_row[here] - of_column[:b]
            open_ = ~seen[:b]
            shorter = open_ & (reduced < least)
            least[shorter], came_from[shorter] = reduced[shorter], at
            following = int(np.where(open_, least, np.iinfo(np.int64).max).argmin())
            step = least[following]
            of_row[row_of[seen]] += step
            of_column[seen] -= step
            least[open_] -= step
            at = following
        while at != b:  # along the path back, each column takes the row of the one before
            row_of[at] = row_of[came_from[at]]
            at = int(came_from[at])
    return [(int(row_of[column]), column) for column in range(b) if row_of[column] != a]
