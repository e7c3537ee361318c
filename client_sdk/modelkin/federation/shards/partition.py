"""``Partition``: which shard each parameter is in, by draws instead of a stored permutation.

Each block of A consecutive parameters is dealt one to each shard, rotated by a draw: parameter
``b * A + (a - r_b) mod A`` is in shard a. So sizes differ by one at most, a parameter is in any
shard with probability 1/A, and neighbours in a layer are in different shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels
from modelkin.errors import InvalidParameter
from modelkin.federation.shards.draws import Label, below, draws, stream

__all__ = ["MAX_SHARDS", "Partition"]

MAX_SHARDS = 2**20
"""The most shards: more than any federation has aggregators, few enough for 32-bit draws."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Disjoint shards of a vector of M parameters.

    Args:
        num_parameters: M, 1 or more.
        shards: A, 1 to M.
        seed: 0 to 2^64 - 1; a party that knows it knows the partition.

    Raises:
        InvalidParameter: an argument is out of its range.
    """

    num_parameters: int
    shards: int
    seed: int

    def __post_init__(self) -> None:
        if self.num_parameters < 1:
            message = f"num_parameters must be 1 or more, not {self.num_parameters}"
            raise InvalidParameter(message, field="num_parameters")
        most = min(self.num_parameters, MAX_SHARDS)
        if not 1 <= self.shards <= most:
            message = f"{self.num_parameters} parameters make 1 to {most} shards, not {self.shards}"
            raise InvalidParameter(message, field="shards")
        if not 0 <= self.seed < 2**64:
            raise InvalidParameter("seed must be 0 to 2^64 - 1", field="seed")

    @property
    def blocks(self) -> int:
        """How many blocks of A parameters there are; the last one may be short."""
        return -(-self.num_parameters // self.shards)

    def size(self, shard: int) -> int:
        """How many parameters a shard has."""
        return int(self.sizes()[self._check(shard)])

    def sizes(self, first_block: int = 0, count: int | None = None) -> npt.NDArray[np.int64]:
        """How many of some blocks' parameters each shard has, shape ``(A,)``.

        Args:
            first_block: the number of the first block.
            count: how many parameters the blocks have; None for all from there on.
        """
        if count is None:
            count = self.num_parameters - first_block * self.shards
        whole, rest = divmod(count, self.shards)
        sizes = np.full(self.shards, whole)
        if rest:
            turn = below(self._draws(first_block + whole, 1), self.shards)
            sizes[(turn + np.arange(rest)) % self.shards] += 1
        return sizes

    def indices(self, shard: int) -> npt.NDArray[np.int64]:
        """The parameters of a shard, ascending, shape ``(size,)``."""
        turn = below(self._draws(0, self.blocks), self.shards)
        found = np.arange(self.blocks) * self.shards + (self._check(shard) - turn) % self.shards
        return found[found < self.num_parameters]

    def split(
        self, vector: npt.NDArray[Any], out: npt.NDArray[Any] | None = None
    ) -> list[npt.NDArray[Any]]:
        """The shards of a vector.

        Args:
            vector: shape ``(M,)``, of four bytes an entry.
            out: takes the shards: contiguous, shape ``(M,)``, the vector's dtype, another array. A
                caller that passes the same one each round spares the system new pages, half of
                the time of a large split.

        Returns:
            A views of one array, of shapes ``(size(a),)``; a single shard is the vector itself.

        Raises:
            InvalidParameter: another shape; or ``out`` does not fit.
        """
        if vector.shape != (self.num_parameters,):
            message = f"a vector of {self.num_parameters} is expected, not of {vector.shape}"
            raise InvalidParameter(message, field="vector")
        if out is not None:
            _check_out(out, vector)
        return self._dealt(vector, 0, out)

    def join(self, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The inverse of :meth:`split`, shape ``(M,)``.

        Raises:
            InvalidParameter: not A parts, or not of the shards' sizes.
        """
        if sum(part.size for part in parts) != self.num_parameters:
            raise InvalidParameter("the parts are not of the shards' sizes", field="parts")
        return self.join_stretch(parts, 0)

    def split_stretch(self, values: npt.NDArray[Any], first_block: int) -> list[npt.NDArray[Any]]:
        """The shards' parts of whole blocks out of a longer vector.

        Args:
            values: the values of these blocks, shape ``(n,)``; n is a multiple of A except at the
                end.
            first_block: the number of the block that they begin with.
        """
        return self._dealt(values, first_block, None)

    def _dealt(
        self, values: npt.NDArray[Any], first_block: int, out: npt.NDArray[Any] | None
    ) -> list[npt.NDArray[Any]]:
        sizes = self.sizes(first_block, values.size)
        if self.shards == 1:
            return [values]
        words = np.ascontiguousarray(values).view(np.uint32)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        target = None if out is None else out.view(np.uint32)
        dealt = kernels().deal(words, self._stream, first_block, starts[:-1], target)
        dealt = dealt.view(values.dtype)
        return [dealt[start : start + size] for start, size in zip(starts, sizes, strict=False)]

    def join_stretch(self, parts: Sequence[npt.NDArray[Any]], first_block: int) -> npt.NDArray[Any]:
        """The inverse of :meth:`split_stretch`.

        Raises:
            InvalidParameter: not A parts, or not of the sizes that these blocks have.
        """
        sizes = [part.size for part in parts]
        wanted = self.sizes(first_block, sum(sizes)).tolist()
        if sizes != wanted:
            message = f"the parts have {sizes} entries, and the shards {wanted}"
            raise InvalidParameter(message, field="parts")
        if self.shards == 1:
            return parts[0]
        words = np.concatenate(parts).view(np.uint32)
        starts = np.cumsum([0, *wanted[:-1]])
        joined: npt.NDArray[Any] = kernels().collect(words, self._stream, first_block, starts)
        return joined.view(parts[0].dtype)

    @property
    def _stream(self) -> int:
        return stream(self.seed, Label.ROTATIONS)

    def _draws(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        return draws(self._stream, count, first)

    def _check(self, shard: int) -> int:
        if not 0 <= shard < self.shards:
            message = f"there are shards 0 to {self.shards - 1}, and no {shard}"
            raise InvalidParameter(message, field="shard")
        return shard


def _check_out(out: npt.NDArray[Any], vector: npt.NDArray[Any]) -> None:
    fits = out.shape == vector.shape and out.dtype == vector.dtype and out.flags.c_contiguous
    if not fits or not out.flags.writeable or np.may_share_memory(out, vector):
        message = (
            f"out must be another contiguous, writeable array of {vector.size} {vector.dtype}, "
            f"not of {out.shape} {out.dtype}"
        )
        raise InvalidParameter(message, field="out")
