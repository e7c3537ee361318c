"""The assignment problem: pair two sets one to one with the largest sum of shared members.

Source: Kuhn's Hungarian method, by shortest augmenting paths (Jonker and Volgenant 1987).
Independent groups are solved separately, so many small groups cost little.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["best_pairs"]

Integers = npt.NDArray[np.int64]


def best_pairs(left: Integers, right: Integers, shared: Integers) -> list[tuple[int, int]]:
    """The pairs with the largest sum of ``shared``, each side in at most one pair.

    Args:
        left: the first side of each possible pair, any non-negative numbers, ``(p,)``.
        right: the second side, ``(p,)``; no pair is repeated.
        shared: how much each pair shares, at least 1, ``(p,)``.

    Returns:
        Pairs of ``left`` and ``right``, by their left sides. Of several best sums the same pairs in
        the same order always give the same one.
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
    """The connected components of the pairs, as positions: no two groups share a side."""
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
    """An optimal assignment of a dense table, ``(a, b)``: min(a, b) pairs."""
    if table.shape[0] > table.shape[1]:
        return [(row, column) for column, row in _solve(table.T)]
    cost = int(table.max()) - table
    a, b = cost.shape
    # Potentials of rows and columns; column b means "not assigned yet", row a means no row.
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
