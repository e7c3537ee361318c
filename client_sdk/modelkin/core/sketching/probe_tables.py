"""Probe tables: the first indices of each permutation by hash value, made once for M, h and seed.

A signature that is probed asks for each permutation, from the least hash value up, whether the
index of that value is a member. The indices depend on scheme, M, h and seed alone. So the tables
are kept for the next support of the same space.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin._processes import PerProcess
from modelkin.core.kernels.choice import kernels
from modelkin.core.sketching.schemes import SCHEMES, permutations

__all__ = ["MAX_TABLE_BYTES", "Permutations", "ProbeTables", "Table", "make_table"]

Table = npt.NDArray[np.uint32]
"""Indices, shape ``(depth, h)``: a column for each permutation, in the order of hash values."""

MAX_TABLE_BYTES = 1 << 26
"""The memory of all tables of a process. A table of h = 256 for supports of 5% takes 256 KiB."""

_MAX_MAKING = 1 << 34
"""The most work that making a table may take, in hashes of the direct kernel: some .3 s. No table
of more than 2^32 parameters takes so little, and indices of 64 bits are always hashed."""
_MAX_WAITING = 1024
"""How many permutations without a table are remembered."""

# Measured costs in hashes of the direct kernel, of .017 to .05 ns each. They need not be exact:
# where probing and hashing cost the same, either will do.
_HASHES_AN_INVERSION = 16
_HASHES_A_COMPARISON = 5


@dataclass(frozen=True, slots=True)
class Permutations:
    """The permutations of a space.

    Attributes:
        scheme: ``affine32`` or ``affine64``.
        num_parameters: M.
        num_perm: h.
        seed: 0 to 2^32 - 1; equal seeds draw the same permutations.
    """

    scheme: str
    num_parameters: int
    num_perm: int
    seed: int

    @property
    def factors(self) -> tuple[Any, Any]:
        """The odd factors and the offsets, shape ``(h,)`` each."""
        return permutations(self.scheme, self.num_perm, self.seed)

    def depth(self, k: int) -> int:
        """The depth of a table for supports of K indices, a power of two or M.

        One support in sixteen then has a permutation without a member in the table.
        """
        missed = math.log(16 * self.num_perm)
        wanted = missed * self.num_parameters / k
        return min(self.num_parameters, 1 << math.ceil(math.log2(max(1.0, wanted))))

    def table_bytes(self, depth: int) -> int:
        """The size of a table."""
        return depth * self.num_perm * 4

    def making(self, depth: int) -> float:
        """The work to make a table, in hashes of the direct kernel."""
        return min(self._inverting(depth), self._hashing())

    def inverts(self, depth: int) -> bool:
        """Whether a table is made by inverting hash values, not by hashing all indices."""
        return self._inverting(depth) <= self._hashing()

    def _inverting(self, depth: int) -> float:
        # So few 64-bit values have a preimage below M that hashing all indices is less work.
        if SCHEMES[self.scheme] != 32:
            return math.inf
        values = max(2048, depth * 2**32 / self.num_parameters)
        return self.num_perm * values * _HASHES_AN_INVERSION

    def _hashing(self) -> float:
        return self.num_perm * self.num_parameters * _HASHES_A_COMPARISON

    def questions(self, k: int) -> float:
        """How many indices are asked for to probe a support of K indices."""
        return self.num_perm * self.num_parameters / k


class ProbeTables:
    """The tables of a process, the least recently used dropped first.

    A table is made once the direct kernel has done as much work for its permutations as making it
    takes. So supports of a space cost at most twice what the better of both ways would have cost.

    Args:
        max_bytes: the most bytes of all tables together.
    """

    def __init__(self, max_bytes: int = MAX_TABLE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = PerProcess(threading.Lock)
        self._tables: OrderedDict[Permutations, Table] = OrderedDict()
        self._spent: OrderedDict[Permutations, float] = OrderedDict()

    def table_for(self, drawn: Permutations, k: int, question_work: float) -> Table | None:
        """A table for a support, None to hash its indices directly.

        Args:
            drawn: the permutations.
            k: K of the support.
            question_work: the work to ask whether an index is a member, in hashes of the direct
                kernel.
        """
        direct, depth = float(k * drawn.num_perm), drawn.depth(k)
        making, room = drawn.making(depth), self._max_bytes // 2
        if drawn.questions(k) * question_work >= direct:
            return None
        if making > _MAX_MAKING or drawn.table_bytes(depth) > room:
            return None
        with self._lock.get():
            held = self._tables.get(drawn)
            if held is not None and held.shape[0] >= depth:
                self._tables.move_to_end(drawn)
                return held
            if not self._due(drawn, direct, making):
                return None
        made = make_table(drawn, depth)
        with self._lock.get():
            self._keep(drawn, made)
        return made

    def _due(self, drawn: Permutations, direct: float, making: float) -> bool:
        """Add the work of this support; return whether the sum pays for making the table."""
        spent = self._spent.pop(drawn, 0.0) + direct
        if making <= spent:
            return True
        self._spent[drawn] = spent
        if len(self._spent) > _MAX_WAITING:
            self._spent.popitem(last=False)
        return False

    def _keep(self, drawn: Permutations, made: Table) -> None:
        self._tables[drawn] = made
        self._tables.move_to_end(drawn)
        held = sum(table.nbytes for table in self._tables.values())
        while held > self._max_bytes:
            held -= self._tables.popitem(last=False)[1].nbytes


def make_table(drawn: Permutations, depth: int) -> Table:
    """The first indices of each permutation, in the order of their hash values.

    Args:
        drawn: the permutations.
        depth: 1 to M.

    Returns:
        Read-only.
    """
    a, b = drawn.factors
    table: Table
    if drawn.inverts(depth):
        table = kernels().least_preimages(a, b, drawn.num_parameters, depth)
    else:
        table = _hash_all(a, b, drawn.num_parameters, depth)
    table.flags.writeable = False
    return table


def _hash_all(a: Any, b: Any, num_parameters: int, depth: int) -> Table:
    """Make the table by hashing all indices, with a limit that hardly any permutation misses."""
    values, most = 1 << 8 * a.dtype.itemsize, depth + 8 * math.isqrt(depth) + 16
    while True:
        limit = min(values - 1, most * values // num_parameters)
        room = min(num_parameters, 2 * most)
        kept, counts = kernels().least_hash_indices(a, b, num_parameters, limit, room)
        if (counts >= depth).all() and (counts <= room).all():
            return _in_order(kept, counts, a, b, depth)
        most *= 2


def _in_order(kept: Any, counts: Any, a: Any, b: Any, depth: int) -> Table:
    table = np.empty((depth, a.size), kept.dtype)
    for j, count in enumerate(counts.tolist()):
        found = kept[j, :count]
        order = np.argsort(kernels().hashes(found, a[j : j + 1], b[j : j + 1]))
        table[:, j] = found[order[:depth]]
    return table
