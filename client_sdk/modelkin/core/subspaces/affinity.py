"""Affinities: how much the samples of two clients have in common, as their subspaces see it.

``S(U, V) = sum_ab sigma_a tau_b (u_a . v_b)^2`` over the blocks that both have: the inner product
of the roots of truncated density operators, so 0 to 1, and 1 for the same subspace. It depends on
no basis and no sign. With flat weights it is the mean squared cosine of the principal angles, and
for coordinate axes the overlap of two supports of one size.

Columns are scaled by the root of their weight first, so that a block of affinities is one product
of matrices, squared and summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from modelkin.core.subspaces.subspace import Compare, Subspace
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = [
    "Stack",
    "SubspaceDistances",
    "affinities",
    "affinity",
    "between",
    "check_comparable",
    "scaled_columns",
]

Floats = npt.NDArray[np.float64]
Columns = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_STEP = 1 << 22
"""Products held at a time: 16 MiB."""


def affinity(a: Subspace, b: Subspace, *, compare: Compare | None = None) -> float:
    """S of two subspaces, 0 to 1.

    Args:
        a: a subspace of m features.
        b: a subspace of the same m, constant and weighting.
        compare: ``classes``: directions of equal classes meet; ``whole``: those of all samples.
            None for ``classes`` where both have any.

    Raises:
        SpaceMismatch: another m, constant or weighting.
        InvalidParameter: another ``compare``, or one of them has no such block.
    """
    check_comparable(a, b)
    compare = a.usual_compare(b) if compare is None else compare
    mine, other = (_blocks(each, compare) for each in (a, b))
    total = 0.0
    for label in mine.keys() & other.keys():
        # In float64: of two subspaces, digits count more than time.
        product = mine[label].astype(np.float64) @ other[label].astype(np.float64).T
        total += float((product**2).sum())
    return min(1.0, total)


def check_comparable(a: Subspace, b: Subspace) -> None:
    """Raise :class:`SpaceMismatch` unless both are of one space's m, constant and weighting."""
    for name in ("num_features", "constant", "weighting"):
        mine, other = getattr(a, name), getattr(b, name)
        if mine != other:
            raise SpaceMismatch(f"{name} is {mine} of one subspace and {other} of the other")


def scaled_columns(subspace: Subspace, compare: Compare) -> dict[int, Columns]:
    """The columns of each class, -1 for all samples, times the root of their weights.

    One column a row, shape ``(r, dimension)``, float32.
    """
    return {
        -1 if block.label is None else block.label: np.asarray(
            block.columns * np.sqrt(block.weights)[:, None]
        )
        for block in subspace.of(compare)
    }


def _blocks(subspace: Subspace, compare: Compare) -> dict[int, Columns]:
    if compare not in ("classes", "whole"):
        raise InvalidParameter(f"compare is classes or whole, not {compare!r}", field="compare")
    found = scaled_columns(subspace, compare)
    if not found:
        what = "no class" if compare == "classes" else "no block of all samples"
        raise InvalidParameter(f"{subspace!r} has {what} to compare", field="compare")
    return found


@dataclass(frozen=True, slots=True)
class Stack:
    """The scaled columns of many subspaces, by class, ready for queries.

    Attributes:
        count: n, how many subspaces there are.
        columns: the columns of all subspaces, by class; shape ``(d, dimension)``, float32.
        owners: the subspace of each column, ascending; shape ``(d,)``.
    """

    count: int
    columns: Mapping[int, Columns]
    owners: Mapping[int, npt.NDArray[np.intp]]

    @classmethod
    def of(cls, subspaces: Sequence[Subspace], compare: Compare) -> Stack:
        """Stack subspaces that are comparable; one without such blocks is like none."""
        return cls.of_blocks([scaled_columns(each, compare) for each in subspaces])

    @classmethod
    def of_blocks(cls, subspaces: Sequence[Mapping[int, Columns]]) -> Stack:
        """Stack what :func:`scaled_columns` makes of each subspace."""
        columns: dict[int, list[Columns]] = {}
        owners: dict[int, list[npt.NDArray[np.intp]]] = {}
        for row, blocks in enumerate(subspaces):
            for label, block in blocks.items():
                columns.setdefault(label, []).append(block)
                owners.setdefault(label, []).append(np.full(block.shape[0], row))
        return cls(
            len(subspaces),
            {label: np.concatenate(parts) for label, parts in columns.items()},
            {label: np.concatenate(parts) for label, parts in owners.items()},
        )

    def query(self, blocks: Mapping[int, Columns]) -> Floats:
        """S of one subspace, as :func:`scaled_columns`, with each of the n; shape ``(n,)``."""
        out = np.zeros(self.count)
        for label in blocks.keys() & self.columns.keys():
            mine, columns, owners = blocks[label], self.columns[label], self.owners[label]
            step = max(1, _STEP // mine.shape[0])
            for at in range(0, columns.shape[0], step):
                product = mine @ columns[at : at + step].T
                energy = np.einsum("ij,ij->j", product, product)
                out += np.bincount(owners[at : at + step], energy, self.count)
        return np.minimum(out, 1.0)


def affinities(subspaces: Sequence[Subspace], compare: Compare) -> Floats:
    """S of all pairs, shape ``(n, n)``, symmetric, with ones on the diagonal.

    Args:
        subspaces: comparable; one without such blocks has S = 0 with all others.
        compare: which blocks meet.
    """
    stack = Stack.of(subspaces, compare)
    found = between(stack, stack)
    found = (found + found.T) / 2
    np.fill_diagonal(found, 1.0)
    return found


def between(first: Stack, second: Stack) -> Floats:
    """S of each subspace of one stack with each of another, shape ``(first, second)``."""
    out = np.zeros((first.count, second.count))
    for label in first.columns.keys() & second.columns.keys():
        mine, columns = first.columns[label], second.columns[label]
        rows, row_starts = np.unique(first.owners[label], return_index=True)
        present, starts = np.unique(second.owners[label], return_index=True)
        row_ends = np.append(row_starts[1:], mine.shape[0])
        each = -(-mine.shape[0] // rows.size) * columns.shape[0]
        step = max(1, _STEP // each)
        for at in range(0, rows.size, step):
            some = slice(at, at + step)
            begin, end = int(row_starts[at]), int(row_ends[some][-1])
            product = mine[begin:end] @ columns.T
            by_column = np.add.reduceat(product**2, starts, axis=1, dtype=np.float64)
            by_row = np.add.reduceat(by_column, row_starts[some] - begin, axis=0)
            out[np.ix_(rows[some], present)] += by_row
    return np.minimum(out, 1.0)


class SubspaceDistances:
    """The distances 1 - S of all pairs of subspaces, computed at each call.

    Args:
        blocks: what :func:`scaled_columns` makes of each.
    """

    def __init__(self, blocks: Sequence[Mapping[int, Columns]]) -> None:
        self._blocks = tuple(blocks)
        self._stack = Stack.of_blocks(self._blocks)

    @property
    def cost(self) -> int:
        """See :class:`modelkin.core.similarity.distances.Distances`."""
        columns = sum(int(each.shape[0]) for each in self._stack.columns.values())
        return max(1, columns // max(1, len(self)))

    def __len__(self) -> int:
        return len(self._blocks)

    def block(self, rows: Rows, columns: Rows | None = None) -> Floats:
        """See :class:`modelkin.core.similarity.distances.Distances`."""
        others = np.arange(len(self)) if columns is None else columns
        second = self._stack if columns is None else self._of(columns)
        distances = 1.0 - between(self._of(rows), second)
        distances[rows[:, None] == others] = 0.0
        return distances

    def _of(self, rows: Rows) -> Stack:
        return Stack.of_blocks([self._blocks[row] for row in rows.tolist()])
