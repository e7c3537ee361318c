"""The values of a signature: the least hash value of a support under each of h permutations.

They are found by probing, from the least hash values up, or by hashing every index, whichever is
less work; both give the same values. ``Members`` is what either needs of a support.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from modelkin.core.indices import IndexArray
from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.probe_tables import Permutations, ProbeTables, Table
from modelkin.core.sketching.schemes import ValueArray

__all__ = ["IndexMembers", "Members", "hash_minima", "minima"]

_TABLES = ProbeTables()


class Members(Protocol):
    """A support of K out of M parameters, in whatever form it has."""

    @property
    def num_parameters(self) -> int:
        """M."""
        ...

    @property
    def k(self) -> int:
        """K."""
        ...

    @property
    def question_work(self) -> float:
        """The work to ask whether an index is a member, in hashes of the direct kernel."""
        ...

    def first(self, table: Table) -> npt.NDArray[np.int64]:
        """The row of the first member in each column of a probe table.

        Args:
            table: indices, shape ``(depth, h)``.

        Returns:
            Shape ``(h,)``; ``depth`` for a column without a member.
        """
        ...

    def least(self, a: Any, b: Any) -> ValueArray:
        """The least hash values of all members.

        Args:
            a: odd factors, shape ``(h,)``, of the dtype of the values.
            b: offsets of the same shape and dtype.
        """
        ...


class IndexMembers:
    """The ascending indices of a support, uint32 where M <= 2^32, else uint64."""

    __slots__ = ("_indices", "num_parameters")

    question_work: float = 800

    def __init__(self, indices: IndexArray, num_parameters: int) -> None:
        self._indices = indices
        self.num_parameters = num_parameters

    @property
    def k(self) -> int:
        return int(self._indices.size)

    def first(self, table: Table) -> npt.NDArray[np.int64]:
        rows: npt.NDArray[np.int64] = kernels().probe_list(table, self._indices)
        return rows

    def least(self, a: Any, b: Any) -> ValueArray:
        return hash_minima(self._indices, a, b)


def hash_minima(indices: IndexArray, a: Any, b: Any) -> ValueArray:
    """Hash every index, and return the least values."""
    direct = kernels().minhash32 if a.dtype == np.uint32 else kernels().minhash64
    values: ValueArray = direct(indices, a, b)
    return values


def minima(
    members: Members, scheme: str, num_perm: int, seed: int, tables: ProbeTables = _TABLES
) -> ValueArray:
    """The h values of a signature.

    Args:
        members: the indices of the support, with ways to read only some.
        scheme: ``affine32`` or ``affine64``, as M asks for.
        num_perm: h.
        seed: 0 to 2^32 - 1; equal seeds make signatures comparable.
        tables: the probe tables of the process.
    """
    drawn = Permutations(scheme, members.num_parameters, num_perm, seed)
    a, b = drawn.factors
    table = tables.table_for(drawn, members.k, members.question_work)
    if table is None:
        return members.least(a, b)
    rows = members.first(table)
    missed = rows == table.shape[0]
    if missed.any():
        rows[missed] = 0
    values: ValueArray = kernels().hashes(table[rows, np.arange(num_perm)], a, b)
    if missed.any():
        values[missed] = members.least(a[missed], b[missed])
    return values
