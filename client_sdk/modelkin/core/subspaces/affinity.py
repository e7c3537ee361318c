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

__all__ = ["Stack", "affinities", "affinity", "check_comparable", "scaled"]

Floats = npt.NDArray[np.float64]
Columns = npt.NDArray[np.float32]

_STEP = 1 << 22
"""Products held at a time: 16 MiB."""


def affinity(a: Subspace, b: Subspace, *, compare: Compare | None = None) -> float:
    """S of two subspaces, 0 to 1.

    Args:
        a: of m features.
        b: of the same m, constant and weighting.
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


def scaled(subspace: Subspace, compare: Compare) -> dict[int, Columns]:
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
    found = scaled(subspace, compare)
    if not found:
        what = "no class" if compare == "classes" else "no block of all samples"
        raise InvalidParameter(f"{subspace!r} has {what} to compare", field="compare")
    return found


@dataclass(frozen=True, slots=True)
class Stack:
    """The scaled columns of many subspaces, by class, ready for queries.

    Attributes:
        count: n, how many subspaces there are.
        columns: of each class, those of all subspaces; shape ``(d, dimension)``, float32.
        owners: the subspace of each column, ascending; shape ``(d,)``.
    """

    count: int
    columns: Mapping[int, Columns]
    owners: Mapping[int, npt.NDArray[np.intp]]

    @classmethod
    def of(cls, subspaces: Sequence[Subspace], compare: Compare) -> Stack:
        """Stack subspaces that are comparable; one without such blocks is like none."""
        return cls.of_blocks([scaled(each, compare) for each in subspaces])

    @classmethod
    def of_blocks(cls, subspaces: Sequence[Mapping[int, Columns]]) -> Stack:
        """Stack what :func:`scaled` makes of each subspace."""
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
        """S of one subspace, as :func:`scaled`, with each of the n; shape ``(n,)``."""
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
    out = np.zeros((stack.count, stack.count))
    for label, columns in stack.columns.items():
        owners = stack.owners[label]
        present, starts = np.unique(owners, return_index=True)
        step = max(1, _STEP * present.size // columns.shape[0] ** 2)
        for first in range(0, present.size, step):
            rows = present[first : first + step]
            ends = np.append(starts, columns.shape[0])
            own = columns[ends[first] : ends[first + rows.size]]
            product = own @ columns.T
            by_column = np.add.reduceat(product**2, starts, axis=1, dtype=np.float64)
            by_row = np.add.reduceat(by_column, starts[first : first + step] - ends[first], axis=0)
            out[np.ix_(rows, present)] += by_row
    out = np.minimum((out + out.T) / 2, 1.0)
    np.fill_diagonal(out, 1.0)
    return out
