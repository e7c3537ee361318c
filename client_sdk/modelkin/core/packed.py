"""``PackedSupport``: a support in the form from which overlaps are counted, in mapped memory.

A dense support is a bitmap of M bits, a sparse one its sorted list of indices, whichever is
smaller. Behind either come the octaves of an ordered support, a byte an index, or the gaps of one
that does not cover all parameters: their ranges, their number and a mark. The form is for a
service's own disk, and trusts its bytes; ``modelkin.wire`` has the forms that cross a network.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import gaps as gap_stream
from modelkin.core.gaps import (
    MAX_RANGES,
    NO_GAPS,
    Gaps,
    bits_before,
    indices_between,
    words_between,
)
from modelkin.core.indices import IndexArray, check_indices, check_same_space, index_dtype
from modelkin.core.kernels.choice import kernels
from modelkin.core.octaves import Octaves, require_octaves
from modelkin.core.sketching.minima import IndexMembers, Members, hash_minima
from modelkin.core.sketching.probe_tables import Table
from modelkin.core.sketching.schemes import ValueArray
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import DEFAULT_SIZE, Sketch
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport

__all__ = [
    "PackedSupport",
    "packed_bytes",
    "packed_shared_count",
    "packed_sizes",
]

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

_FEW_RANGES = 64
"""Ranges of a bitmap that are counted one by one; with more, all words between them are read."""
_WORDS_A_STEP = 1 << 14
"""How many words of a bitmap a digest reads at a time: their indices stay in cache."""

_GAPS = struct.Struct("<4sI")
"""The end of a form with gaps: a mark, and how many ranges stand before it."""
_MARK = b"GAPS"


class PackedSupport:
    """A support of K out of M parameters, ready for overlap.

    Made by :meth:`pack` or :meth:`from_buffer`.
    """

    __slots__ = ("_array", "_k", "_kind", "_num_parameters", "_octaves", "gaps")

    def __init__(
        self,
        array: Words | IndexArray,
        num_parameters: int,
        k: int,
        octaves: Octaves | None = None,
        gaps: Gaps = NO_GAPS,
    ) -> None:
        """Trust the caller: ``array`` is as :meth:`pack` would make it."""
        self._array = array
        self.gaps = gaps
        self._octaves = octaves
        self._kind = _form(num_parameters, k)[0]
        self._num_parameters = num_parameters
        self._k = k

    @classmethod
    def pack(cls, support: Support) -> PackedSupport:
        """The packed form of a support; a list and octaves share the support's memory."""
        m, k = support.num_parameters, support.k
        kind, _, _ = _form(m, k)
        array = kernels().bitmap(support.indices, m) if kind == "bitmap" else support.indices
        return cls(array, m, k, support.octaves, support.gaps)

    @classmethod
    def from_buffer(
        cls, buffer: bytes | bytearray | memoryview | mmap.mmap, num_parameters: int, k: int
    ) -> PackedSupport:
        """The packed support that :meth:`to_bytes` wrote, without a copy if the buffer is aligned.

        Args:
            buffer: bytes, a memory map or a view of one; it must not change.
            num_parameters: M.
            k: K.

        Raises:
            InvalidSupport: the buffer has another length than M and K require, is a list that is
                not ascending and below M, or a bitmap without K bits set, or has octaves that are
                not those of ranks: a flipped bit is never counted.
        """
        kind, dtype, size = _form(num_parameters, k)
        gaps = _gaps_at_end(memoryview(buffer).cast("B"), size * dtype.itemsize, num_parameters)
        length, plain = memoryview(buffer).nbytes - _gap_bytes(gaps), size * dtype.itemsize
        if length not in (plain, plain + k):
            raise InvalidSupport(
                f"a packed support of {k} of {num_parameters} parameters has {plain} bytes, or "
                f"{plain + k} with octaves, not {length}"
            )
        array = np.frombuffer(buffer, dtype, size)
        array = array if array.flags.aligned else array.copy()
        if kind == "list" and not (array[-1] < num_parameters and (array[1:] > array[:-1]).all()):
            raise InvalidSupport(f"a packed support of {k} indices is damaged")
        if kind == "bitmap" and kernels().and_count(array, array) != k:
            raise InvalidSupport(f"a packed support of {k} indices is damaged")
        if length == plain:
            packed = cls(array, num_parameters, k, gaps=gaps)
            if packed.count_in(gaps):
                raise InvalidSupport(f"a packed support of {k} indices has some in its gaps")
            return packed
        octaves = np.frombuffer(buffer, np.uint8, length - plain, offset=plain)
        require_octaves(octaves, k)
        return cls(array, num_parameters, k, octaves)

    @property
    def kind(self) -> Literal["bitmap", "list"]:
        """``bitmap`` if M bits take fewer bytes than K indices, else ``list``."""
        return self._kind

    @property
    def num_parameters(self) -> int:
        """M."""
        return self._num_parameters

    @property
    def k(self) -> int:
        """K."""
        return self._k

    @property
    def array(self) -> Words | IndexArray:
        """The words of the bitmap, uint64 of shape ``(ceil(M / 64),)``, or the ``k`` indices."""
        return self._array

    @property
    def ordered(self) -> bool:
        """Whether the support has octaves."""
        return self._octaves is not None

    @property
    def nbytes(self) -> int:
        """The bytes that the form takes, octaves included."""
        plain = packed_bytes(self._num_parameters, self._k, ordered=self.ordered)
        return plain + _gap_bytes(self.gaps)

    def to_bytes(self) -> bytes:
        """Return little-endian words or indices, and octaves: the caller keeps M and K."""
        data = self._array.astype(self._array.dtype.newbyteorder("<"), copy=False).tobytes()
        if self.gaps:
            return data + self.gaps.to_bytes() + _GAPS.pack(_MARK, len(self.gaps.ranges))
        return data if self._octaves is None else data + self._octaves.tobytes()

    def unpack(self) -> Support:
        """The support.

        Raises:
            InvalidSupport: the bytes are not a support of K out of M.
        """
        m = self._num_parameters
        if self._kind == "list":
            indices = check_indices(self._array, m)
        else:
            indices = kernels().set_bits(self.words(0, self._array.size), index_dtype(m))
            if indices.size != self._k or int(indices[-1]) >= m:
                raise InvalidSupport(
                    f"the bitmap holds {indices.size} indices, not {self._k} of {m} parameters"
                )
        return Support.trusted(indices, m, octaves=self._octaves, gaps=self.gaps)

    @property
    def digest(self) -> str:
        """The digest of the support, in little memory: computed at each call."""
        m, k = self._num_parameters, self._k
        if self._kind == "list":
            stream = gap_stream.encode(self._array, m)
            return gap_stream.digest(stream, m, k, self._octaves, self.gaps)
        return gap_stream.digest_of_parts(self._symbols(), m, k, self._octaves, self.gaps)

    def _symbols(self) -> Iterator[npt.NDArray[np.uint8]]:
        """The gap stream of a bitmap, part by part: at its density a gap has no low bytes."""
        dtype, before = index_dtype(self._num_parameters), 0
        for begin in range(0, self._array.size, _WORDS_A_STEP):
            words = self.words(begin, begin + _WORDS_A_STEP)
            indices = kernels().set_bits(words, dtype)
            if indices.size:
                yield gap_stream.encode_part(indices + dtype.type(before), 0, 0)[0]
                before = words.size * 64 - int(indices[-1]) - 1
            else:
                before += words.size * 64

    def signature(self, num_perm: int = 256, seed: int = 1, scheme: str | None = None) -> Signature:
        """The signature of the support, of whose form hardly more than h * M / K bits are read.

        Args and errors are those of :meth:`Support.signature`.
        """
        members = self.members()
        return Signature.of_members(members, num_perm=num_perm, seed=seed, scheme=scheme)

    def members(self) -> Members:
        """The members of the support, for a signature."""
        if self._kind == "bitmap":
            return _BitmapMembers(self)
        return IndexMembers(self._array, self._num_parameters)

    def sketch(self, size: int = DEFAULT_SIZE, seed: int = 1) -> Sketch:
        """The sketch of the support, of whose form only the sample is read.

        Args and errors are those of :meth:`Support.sketch`.
        """
        if self._kind == "bitmap":
            words = self.words(0, self._array.size)
            return Sketch.of_bitmap(words, self._num_parameters, self._k, size=size, seed=seed)
        return Sketch.of(self._array, self._num_parameters, size=size, seed=seed)

    def words(self, begin: int, end: int) -> Words:
        """The words ``begin`` to ``end`` of the bitmap, computed if the form is a list."""
        if self._kind == "bitmap":
            return self._array[begin:end].astype(np.uint64, copy=False)
        ends = np.searchsorted(self._array, np.array([begin * 64, end * 64], np.uint64))
        inside = self._array[ends[0] : ends[1]] - self._array.dtype.type(begin * 64)
        words: Words = kernels().bitmap(inside, (end - begin) * 64)
        return words

    def count_in(self, gaps: Gaps) -> int:
        """How many indices lie in the gaps, of which alone is read."""
        return int(self.counts_in(gaps.ranges).sum())

    def counts_in(self, ranges: Sequence[Sequence[int]] | Integers) -> Integers:
        """How many indices lie in each of some ranges, shape ``(n,)``.

        Args:
            ranges: half-open, ascending, and not empty.
        """
        cut = np.array(ranges, np.int64).reshape(-1, 2)
        if self._kind == "list":
            # The last index of a range fits the dtype; its end may not.
            begins, lasts = (each.astype(self.array.dtype) for each in (cut[:, 0], cut[:, 1] - 1))
            low = np.searchsorted(self.array, begins, side="left")
            return np.searchsorted(self.array, lasts, side="right") - low
        if len(cut) <= _FEW_RANGES:
            counts = [_count(self.array, begin, end) for begin, end in cut.tolist()]
            return np.array(counts, np.int64)
        before = bits_before(self.array, cut.ravel())
        return before[1::2] - before[::2]

    def __repr__(self) -> str:
        return (
            f"<PackedSupport of {self._k:,} of {self._num_parameters:,} parameters, a {self._kind}>"
        )


class _BitmapMembers:
    """The support of a bitmap, to be signed."""

    question_work: float = 150

    def __init__(self, packed: PackedSupport) -> None:
        self._packed = packed
        self.num_parameters = packed.num_parameters
        self.k = packed.k

    def first(self, table: Table) -> npt.NDArray[np.int64]:
        words = self._packed.words(0, self._packed.array.size)
        rows: npt.NDArray[np.int64] = kernels().probe_bitmap(table, words)
        return rows

    def least(self, a: Any, b: Any) -> ValueArray:
        return hash_minima(self._packed.unpack().indices, a, b)


def packed_bytes(num_parameters: int, k: int, *, ordered: bool = False) -> int:
    """How many bytes :meth:`PackedSupport.to_bytes` has for a support of K out of M parameters."""
    _, dtype, size = _form(num_parameters, k)
    return size * dtype.itemsize + (k if ordered else 0)


def packed_sizes(size: int, num_parameters: int, k: int, *, ordered: bool = False) -> bool:
    """Whether a form of K out of M parameters can have so many bytes, with gaps or without."""
    more = size - packed_bytes(num_parameters, k, ordered=ordered)
    ranges = more - _GAPS.size
    return not more or (0 < ranges <= 16 * MAX_RANGES and ranges % 16 == 0 and not ordered)


def _gap_bytes(gaps: Gaps) -> int:
    return 16 * len(gaps.ranges) + _GAPS.size if gaps else 0


def _gaps_at_end(data: memoryview, plain: int, m: int) -> Gaps:
    """The gaps of a form whose indices have so many bytes; octaves never look like their mark."""
    if len(data) < plain + _GAPS.size:
        return NO_GAPS
    mark, count = _GAPS.unpack(data[-_GAPS.size :])
    begin = len(data) - _GAPS.size - 16 * count
    if mark != _MARK or begin != plain:
        return NO_GAPS
    gaps = Gaps.from_bytes(data[begin : -_GAPS.size])
    if gaps and gaps.ranges[-1][1] > m:
        raise InvalidSupport(f"a packed support has gaps beyond its {m} parameters")
    return gaps


def packed_shared_count(a: PackedSupport, b: PackedSupport, gaps: Gaps = NO_GAPS) -> int:
    """How many indices two packed supports share outside the gaps, exactly.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
    """
    check_same_space(a.num_parameters, b.num_parameters)
    inside = sum(_shared(a, b, begin, end) for begin, end in gaps.ranges)
    return _shared_in_all(a, b) - inside


def _shared_in_all(a: PackedSupport, b: PackedSupport) -> int:
    if a.kind == "bitmap" and b.kind == "bitmap":
        return int(kernels().and_count(a.array, b.array))
    if a.kind == "list" and b.kind == "list":
        return int(kernels().intersect_count(a.array, b.array))
    bitmap, indices = (a, b) if a.kind == "bitmap" else (b, a)
    return int(kernels().probe_count(bitmap.array, indices.array))


def _count(bitmap: npt.NDArray[Any], begin: int, end: int) -> int:
    """How many bits of a bitmap are set in a range."""
    words = words_between(bitmap, begin, end)
    return sum(int(kernels().and_count(each, each)) for each in words)


def _shared(a: PackedSupport, b: PackedSupport, begin: int, end: int) -> int:
    """How many indices in a range two supports share."""
    if a.kind == "bitmap" and b.kind == "bitmap":
        ours, theirs = (words_between(each.array, begin, end) for each in (a, b))
        pairs = zip(ours, theirs, strict=True)
        return sum(int(kernels().and_count(one, other)) for one, other in pairs)
    bitmap, indices = (a, b) if a.kind == "bitmap" else (b, a)
    inside = indices_between(indices.array, begin, end)
    if not inside.size:
        return 0
    if bitmap.kind == "bitmap":
        return int(kernels().probe_count(bitmap.array, inside))
    others = indices_between(bitmap.array, begin, end)
    return int(kernels().intersect_count(others, inside)) if others.size else 0


@lru_cache(maxsize=4096)
def _form(num_parameters: int, k: int) -> tuple[Literal["bitmap", "list"], np.dtype[Any], int]:
    """The form for M and K, the dtype of its items, and their number."""
    words, dtype = -(-num_parameters // 64), index_dtype(num_parameters)
    if words * 8 < k * dtype.itemsize:
        return "bitmap", np.dtype("<u8"), words
    return "list", dtype.newbyteorder("<"), k
