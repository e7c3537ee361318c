"""The checks of a learngene: the header of its file, its tensors and their values, its digest.

A learngene is one safetensors file of floating-point tensors. It comes from a stranger, so each
limit holds before anything of that size is made. Nothing here reads a file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from modelkin.core.quoting import quote
from modelkin.core.safetensors_header import (
    BITS,
    LENGTH_BYTES,
    TensorEntry,
    length_problem,
    parse_header,
)
from modelkin.errors import InvalidCheckpoint, InvalidLearngene

__all__ = [
    "ALL",
    "FLOAT_DTYPES",
    "MAX_HEADER_BYTES",
    "MAX_TENSORS",
    "LearngeneTensor",
    "Shapes",
    "check_among",
    "check_digest",
    "check_finite",
    "check_finite_parts",
    "check_size",
    "check_tensors",
    "digest_of",
    "header_bytes",
    "same_tensors",
    "tensors_of",
]

ALL: Final = "all"
"""The cluster of a learngene that is for the whole space."""
MAX_HEADER_BYTES: Final = 8_000_000
MAX_TENSORS: Final = 100_000
MAX_NAME_LENGTH: Final = 1000
MAX_DIMENSIONS: Final = 32
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_SIZE: Final = 2**63 - 1
_CHUNK_BYTES: Final = 1 << 24

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The shapes of tensors by their names."""

_Test: TypeAlias = Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]


def _mask_test(mask: int) -> _Test:
    """Return a test whether all bits of an exponent are set: the value is infinite or NaN."""
    return lambda bits: (bits & bits.dtype.type(mask)) == bits.dtype.type(mask)


FLOAT_DTYPES: Final[Mapping[str, tuple[str, _Test]]] = {
    "F64": ("<u8", _mask_test(0x7FF0_0000_0000_0000)),
    "F32": ("<u4", _mask_test(0x7F80_0000)),
    "F16": ("<u2", _mask_test(0x7C00)),
    "BF16": ("<u2", _mask_test(0x7F80)),
    "F8_E4M3": ("u1", _mask_test(0x7F)),
    "F8_E5M2": ("u1", _mask_test(0x7C)),
    "F8_E4M3FNUZ": ("u1", lambda bits: bits == 0x80),
    "F8_E5M2FNUZ": ("u1", lambda bits: bits == 0x80),
}
"""The types that a learngene may have: the type of their bits, and which of these are not finite.

No value is converted for that: it is the fastest check, and needs the memory of its mask alone.
"""


@dataclass(frozen=True, slots=True)
class LearngeneTensor:
    """A tensor of a learngene.

    Attributes:
        name: the tensor's name in the model.
        dtype: the type in the words of safetensors, such as ``"F32"``.
        shape: ``()`` for a scalar.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]


class _Tensor(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def header_bytes(first: bytes, file_size: int) -> int:
    """The bytes of a file's header, from the first 8 of the file.

    Raises:
        InvalidLearngene: it is not a safetensors file, or its header is too long.
    """
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if file_size < LENGTH_BYTES + 2 or not 2 <= length <= file_size - LENGTH_BYTES:
        raise InvalidLearngene(length_problem(file_size, first))
    if length > MAX_HEADER_BYTES:
        raise InvalidLearngene(
            f"its header has {length} bytes, that of a learngene {MAX_HEADER_BYTES} at most"
        )
    return length


def tensors_of(header: bytes, file_size: int) -> tuple[TensorEntry, ...]:
    """The tensors of a learngene, in the order of their bytes.

    Args:
        header: as long as :func:`header_bytes` says, without the 8 bytes before it.
        file_size: bytes of the whole file.

    Raises:
        InvalidLearngene: holes or overlaps, a tensor that is not of floating-point numbers, or one
            of the limits.
    """
    try:
        entries = parse_header(header, file_size, "the learngene")
    except InvalidCheckpoint as error:
        raise InvalidLearngene(str(error)) from None
    check_tensors(entries)
    return entries


def check_tensors(tensors: Sequence[_Tensor]) -> None:
    """Check the names, types and shapes of a learngene's tensors.

    Raises:
        InvalidLearngene: names the first that cannot be; or there are none, or too many.
    """
    if not 1 <= len(tensors) <= MAX_TENSORS:
        raise InvalidLearngene(
            f"a learngene has 1 to {MAX_TENSORS} tensors, not {len(tensors)}", field="tensors"
        )
    names: set[str] = set()
    for place, tensor in enumerate(tensors):
        field = f"tensors[{place}]"
        _check_name(tensor.name, field)
        if tensor.name in names:
            raise InvalidLearngene(f"tensor {quote(tensor.name)} is repeated", field=field)
        names.add(tensor.name)
        if tensor.dtype not in FLOAT_DTYPES:
            raise InvalidLearngene(
                f"tensor {quote(tensor.name)} has the dtype {quote(tensor.dtype)}: a learngene is "
                f"of floating-point numbers, {', '.join(FLOAT_DTYPES)}",
                field=field,
            )
        if len(tensor.shape) > MAX_DIMENSIONS or any(not 0 <= n <= _MAX_SIZE for n in tensor.shape):
            raise InvalidLearngene(
                f"tensor {quote(tensor.name)} has a shape that no tensor has", field=field
            )


def check_among(tensors: Iterable[_Tensor], known: Shapes, where: str) -> None:
    """Check that each tensor is among those of the space, and of the same shape.

    Args:
        tensors: what the manifest of a learngene lists.
        known: what there may be.
        where: what ``known`` is of, for errors.

    Raises:
        InvalidLearngene: names the first tensor that differs.
    """
    for tensor in tensors:
        shape = known.get(tensor.name)
        if shape is None:
            raise InvalidLearngene(
                f"tensor {quote(tensor.name)} is not in {where}", field="tensors"
            )
        if shape != tuple(tensor.shape):
            raise InvalidLearngene(
                f"tensor {quote(tensor.name)} has shape {quote(list(tensor.shape))}, and "
                f"{quote(list(shape))} in {where}",
                field="tensors",
            )


def same_tensors(one: Iterable[_Tensor], other: Iterable[_Tensor]) -> bool:
    """Whether two lists name the same tensors, of the same types and shapes, in any order."""
    return _descriptions(one) == _descriptions(other)


def check_size(tensors: Iterable[_Tensor], size: int) -> None:
    """Check that a file of these tensors can have so many bytes.

    Raises:
        InvalidLearngene: the file cannot have so many.
    """
    values = 0
    for tensor in tensors:
        values += _bytes_of(tensor)
        if values > _MAX_SIZE:
            break
    if not values + LENGTH_BYTES + 2 <= size <= values + LENGTH_BYTES + MAX_HEADER_BYTES:
        raise InvalidLearngene(
            f"the tensors have {values} bytes of values, so a file of them has "
            f"{values + LENGTH_BYTES + 2} or more with its header, and not {size}",
            field="bytes",
        )


def check_finite(data: bytes | bytearray | memoryview, entries: Iterable[TensorEntry]) -> None:
    """Check that all values of a file in memory are finite, as :func:`check_finite_parts` does."""
    view = memoryview(data)
    check_finite_parts(lambda begin, end: view[begin:end], entries)


def check_finite_parts(
    read: Callable[[int, int], bytes | memoryview], entries: Iterable[TensorEntry]
) -> None:
    """Check that all values of a file are finite.

    Args:
        read: returns the bytes of the file between two places.
        entries: the tensors that its header declares.

    Raises:
        InvalidLearngene: names the first tensor with another value.
    """
    for entry in entries:
        bits, is_wrong = FLOAT_DTYPES[entry.dtype]
        for begin in range(entry.begin, entry.end, _CHUNK_BYTES):
            part = read(begin, min(entry.end, begin + _CHUNK_BYTES))
            if is_wrong(np.frombuffer(part, bits)).any():
                raise InvalidLearngene(
                    f"tensor {quote(entry.name)} has a value that is not finite", field="tensors"
                )


def check_digest(digest: Any) -> str:
    """Check that a digest is ``sha256:`` and 64 hexadecimal digits.

    Raises:
        InvalidLearngene: another form.
    """
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise InvalidLearngene(
            "a digest is sha256: and 64 hexadecimal digits in lower case", field="digest"
        )
    return digest


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """The digest of a file's bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptions(tensors: Iterable[_Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {tensor.name: (tensor.dtype, tuple(tensor.shape)) for tensor in tensors}


def _check_name(name: str, field: str) -> None:
    if not 1 <= len(name) <= MAX_NAME_LENGTH or "\0" in name or not _encodes(name):
        raise InvalidLearngene(
            f"{quote(name)} is not the name of a tensor: those have 1 to {MAX_NAME_LENGTH} "
            f"characters",
            field=field,
        )


def _encodes(text: str) -> bool:
    """Whether a name can be stored: JSON may hold half of a pair of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bytes_of(tensor: _Tensor) -> int:
    """Count the bytes of a tensor's values; stop where the count is absurd."""
    size = BITS[tensor.dtype] // 8
    if 0 in tensor.shape:
        return 0
    for dimension in tensor.shape:
        size *= dimension
        if size > _MAX_SIZE:
            break
    return size
