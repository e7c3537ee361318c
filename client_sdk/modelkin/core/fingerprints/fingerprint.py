"""The fingerprint of a checkpoint: a sample of the keys of its lines, with the tensor of each.

The sample has the keys below ``2^64 / scale``. So fingerprints of two models hold the same part of
their common keys, and one of a finer scale holds that of each coarser one.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modelkin._whole_files import write_whole
from modelkin.core.codecs import fingerprint as codec
from modelkin.core.codecs.checks import Payload
from modelkin.core.fingerprints.arrays import (
    MAX_SCALE,
    arrays_of,
    check,
    kept,
    sides_of,
    tensors_of,
    totals_of,
)
from modelkin.core.fingerprints.lines import distinct
from modelkin.core.fingerprints.matrices import part_of
from modelkin.core.fingerprints.tensor_lines import TensorLines, read_lines
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from modelkin.core.quoting import quote
from modelkin.errors import InvalidParameter

__all__ = [
    "MAX_KEYS_A_TENSOR",
    "MIN_KEYS",
    "Fingerprint",
    "FingerprintMaker",
    "LinesOfTensor",
    "NotComparable",
    "check_scale",
]

MIN_KEYS: Final = 4096
"""The keys that a fingerprint may have, whatever the number of its tensors."""
MAX_KEYS_A_TENSOR: Final = 32
"""The keys that it may have for each of its tensors, where these are more."""
_NO_REALS: Final = "cOSUmM"
"""Kinds of dtypes that are no real numbers; bfloat16 of other packages is of kind V."""
_ENTRY: Final = np.dtype([("key", "u8"), ("owner", "u4"), ("length", "u4")])


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The sampled keys of a checkpoint's lines.

    Attributes:
        scale: a power of two; of the distinct keys one in so many is kept.
        tensors: all tensors, also those that are not compared.
        lines: the distinct keys of each length in the whole checkpoint, before the sample.
        keys: ascending; a key is repeated for each tensor that has it, shape ``(n,)``.
        owners: the number of the tensor of each key, ascending among equal keys, shape ``(n,)``.
        lengths: the length of the line of each key, shape ``(n,)``.
    """

    scale: int
    tensors: tuple[LinesOfTensor, ...]
    lines: Mapping[int, int]
    keys: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.uint32]
    lengths: npt.NDArray[np.uint32]

    def at(self, scale: int) -> Fingerprint:
        """The fingerprint of a coarser scale, or of the same.

        Raises:
            InvalidParameter: the scale is finer, or no power of two.
        """
        scale = check_scale(scale, self.scale)
        if scale == self.scale:
            return self
        end = kept(self.keys, scale)
        return replace(
            self,
            scale=scale,
            keys=self.keys[:end],
            owners=self.owners[:end],
            lengths=self.lengths[:end],
        )

    @cached_property
    def distinct(self) -> npt.NDArray[np.uint64]:
        """Its keys, each once, ascending."""
        return distinct(self.keys)

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and 64 hexadecimal digits: equal for equal fingerprints alone.

        Raises:
            InvalidFingerprint: as :meth:`to_bytes`.
        """
        return codec.digest(arrays_of(self))

    def to_bytes(self) -> bytes:
        """The native format, ``application/vnd.modelkin.fingerprint+zstd``.

        Raises:
            InvalidFingerprint: it has too many tensors or keys, or a name that is too long; says
                which, and what to do.
        """
        return codec.encode(arrays_of(self))

    @classmethod
    def from_bytes(cls, data: Payload, *, max_tensors: int | None = None) -> Fingerprint:
        """A fingerprint from its native format.

        Args:
            data: the whole payload, not trusted.
            max_tensors: the most tensors to accept; None for the 100,000 of the format.

        Raises:
            InvalidFingerprint: not this format, another version or scheme, truncated, damaged,
                followed by other bytes, or not the values of a fingerprint; names the field.
        """
        arrays = codec.decode(data, max_tensors=max_tensors)
        tensors = tensors_of(arrays)
        lines, sides = totals_of(arrays, tensors), sides_of(arrays, tensors)
        lengths = sides.lengths.ravel()[sides.places]
        found = cls(arrays.scale, tensors, lines, arrays.keys, arrays.owners, lengths)
        check(found, sides)
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Write the native format to a file.

        Raises:
            InvalidFingerprint: as :meth:`to_bytes`.
            OSError: the file cannot be written.
        """
        write_whole(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Fingerprint:
        """The fingerprint of a file.

        Raises:
            InvalidFingerprint: as :meth:`from_bytes`.
            OSError: the file cannot be read.
        """
        with open(path, "rb") as file:
            return cls.from_bytes(file.read(codec.MAX_PAYLOAD_BYTES + 1))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint):
            return NotImplemented
        mine = (self.scale, self.tensors, self.lines)
        return mine == (other.scale, other.tensors, other.lines) and all(
            np.array_equal(*pair)
            for pair in (
                (self.keys, other.keys),
                (self.owners, other.owners),
                (self.lengths, other.lengths),
            )
        )

    def __hash__(self) -> int:
        return hash((self.scale, self.keys.tobytes(), self.owners.tobytes()))

    def __repr__(self) -> str:
        return (
            f"<Fingerprint of {len(self.tensors):,} tensors, {self.keys.size:,} keys at scale "
            f"{self.scale:,}>"
        )


class FingerprintMaker:
    """A fingerprint in the making: takes tensors one after the other, in any order.

    The order decides the numbers of the tensors, and no key.
    """

    def __init__(self) -> None:
        self._tensors: list[LinesOfTensor] = []
        self._keys: list[npt.NDArray[Any]] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, name: str, values: npt.NDArray[Any]) -> None:
        """Take a tensor in memory.

        Args:
            name: as the checkpoint has it.
            values: floats of any shape.

        Raises:
            InvalidImportance: a value of a matrix is NaN or infinite.
            InvalidParameter: the values are no real numbers.
        """
        if values.dtype.kind in _NO_REALS:
            raise InvalidParameter(
                f"tensor {quote(name)} has values of {values.dtype}: give floats", field=name
            )
        self.take(name, read_lines(name, values.shape, part_of(values)))

    def take(self, name: str, found: TensorLines) -> None:
        """Take the lines of a tensor.

        Args:
            name: as the checkpoint has it.
            found: they.
        """
        if not found.keys:
            self._tensors.append(LinesOfTensor((name,), found.shape, {}, found.reason))
            return
        number = self._numbers.setdefault(found.identity, len(self._tensors))
        if number < len(self._tensors):
            same = self._tensors[number]
            self._tensors[number] = replace(same, names=(*same.names, name))
            return
        lines = {length: keys.size for length, keys in found.keys.items()}
        self._tensors.append(LinesOfTensor((name,), found.shape, lines, None, found.signature))
        for length, keys in found.keys.items():
            entries = np.empty(keys.size, _ENTRY)
            entries["key"], entries["owner"], entries["length"] = keys, number, length
            self._keys.append(entries)

    def finish(self, scale: int | None = None) -> Fingerprint:
        """The fingerprint of all tensors that were added.

        Args:
            scale: a power of two; by default the least that leaves 4,096 keys at most, or 32 a
                tensor where these are more, and never more than 65,536.

        Raises:
            InvalidParameter: the scale is no power of two.
        """
        entries = np.concatenate([np.empty(0, _ENTRY), *self._keys])
        order = np.argsort(entries["key"], kind="stable")  # so owners ascend among equal keys
        entries = entries[order]
        keys = entries["key"].copy()
        first = np.unique(keys, return_index=True)[1]  # a key is of one length, as its hash is
        lengths, counts = np.unique(entries["length"][first], return_counts=True)
        whole = Fingerprint(
            1,
            tuple(self._tensors),
            dict(zip(lengths.tolist(), counts.tolist(), strict=True)),
            keys,
            entries["owner"].copy(),
            entries["length"].copy(),
        )
        return whole.at(_default_scale(whole) if scale is None else scale)


def check_scale(scale: Any, least: int = 1) -> int:
    """Return a scale that is a power of two, no finer than the least one, and 2^63 at most.

    Raises:
        InvalidParameter: it is none.
    """
    try:
        number = 0 if isinstance(scale, bool) else operator.index(scale)
    except TypeError:
        number = 0
    if not least <= number <= MAX_SCALE or number & (number - 1):
        raise InvalidParameter(
            f"scale must be a power of two of at least {least}, and at most 2^63, not "
            f"{quote(scale)}",
            field="scale",
        )
    return number


def _default_scale(whole: Fingerprint) -> int:
    most = min(max(MIN_KEYS, MAX_KEYS_A_TENSOR * len(whole.tensors)), codec.MAX_KEYS)
    scale = 1
    while kept(whole.keys, scale) > most:
        scale *= 2
    return scale
