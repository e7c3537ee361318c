"""The tensors of a fingerprint: what it knows of each, and why some have no lines to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from modelkin.core.codecs import fingerprint as codec
from modelkin.core.codecs.fingerprint import AGAIN, refuse
from modelkin.core.fingerprints.matrices import sides
from modelkin.core.foreign_json import has_control_character
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.core.quoting import quote

__all__ = ["LinesOfTensor", "NotComparable", "check_tensors"]


class NotComparable(Enum):
    """Why a tensor has no lines to compare."""

    SHORT = "short"
    """It is a vector, or a side is below 64."""
    STRUCTURED = "structured"
    """It is a table that no training made, see ``tables``."""
    FEW_VALUES = "few_values"
    """Its largest magnitudes are equal, as those of ternary weights."""
    NO_KEYS = "no_keys"
    """No line has a set: all are constant, or repeated too often."""


@dataclass(frozen=True)
class LinesOfTensor:
    """What a fingerprint knows of a tensor.

    Attributes:
        names: its name, and those of equal tensors of the checkpoint, such as a tied head.
        shape: as it is stored.
        lines: the distinct keys of each length, before the sample is taken.
        reason: why there are none; None for tensors that are compared.
        signature: of its rows, 128 bytes; None where there are no lines.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    lines: Mapping[int, int]
    reason: NotComparable | None = None
    signature: bytes | None = None

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def size(self) -> int:
        """The number of its parameters."""
        return prod(self.shape)

    @property
    def row_length(self) -> int:
        """The length of the rows of its matrices."""
        return sides(self.shape)[1]


def check_tensors(tensors: Sequence[LinesOfTensor], lengths: Sequence[tuple[int, int]]) -> None:
    """Refuse tensors that no checkpoint has, or of which the format cannot say all.

    Args:
        lengths: the shorter and the longer side of the matrices of each; 0 and 0 without lines.

    Raises:
        InvalidFingerprint: names field, value and what to do.
    """
    _check_names(tensors)
    parameters, sizes = 0, dict[tuple[Any, ...], int]()
    for number, (tensor, both) in enumerate(zip(tensors, lengths, strict=True)):
        signed = None if tensor.signature is None else len(tensor.signature)
        kind = (tensor.shape, tensor.reason, signed, *tensor.lines.items())
        size = sizes.get(kind)
        if size is None:  # else one of the same kind was checked
            where = f"tensors[{number}]"
            _check_shape(where, tensor.shape)
            size = sizes[kind] = tensor.size
            _check_tensor(where, tensor, size, *both)
        parameters += size
    if parameters > MAX_PARAMETERS:
        refuse("tensors", f"they have {quote(parameters)} parameters, more than 2^63 - 1: {AGAIN}")


def _check_names(tensors: Sequence[LinesOfTensor]) -> None:
    known, text = set[str](), "".join(name for tensor in tensors for name in tensor.names)
    is_plain = text.isascii() and not has_control_character(text)
    for number, tensor in enumerate(tensors):
        if not tensor.names:
            refuse(f"tensors[{number}].names", "a tensor has one name or more: give it one")
        for name in tensor.names:
            where = f"tensors[{number}].names"
            if not 1 <= len(name) <= codec.MAX_NAME:
                refuse(
                    where,
                    f"{quote(name)} has {len(name):,} characters, 1 to {codec.MAX_NAME} are "
                    f"allowed: give the tensor a shorter name",
                )
            if not is_plain:
                _check_text(where, name)
            if name in known:
                refuse(where, f"{quote(name)} is there twice: name each tensor once")
            known.add(name)


def _check_text(where: str, name: str) -> None:
    if has_control_character(name):
        refuse(where, f"{quote(name)} has a control character: give the tensor another name")
    if any(0xD800 <= ord(each) < 0xE000 for each in name):
        refuse(where, f"{quote(name)} is no text: give the tensor another name")


def _check_shape(where: str, shape: tuple[int, ...]) -> None:
    if len(shape) > codec.MAX_AXES:
        refuse(
            f"{where}.shape",
            f"{quote(list(shape))} has {len(shape)} axes, at most {codec.MAX_AXES} are allowed: "
            f"store the tensor with fewer",
        )
    if shape and not 0 <= min(shape) <= max(shape) <= MAX_PARAMETERS:
        refuse(f"{where}.shape", f"{quote(list(shape))} has a side beyond 2^63 - 1: {AGAIN}")


def _check_tensor(where: str, tensor: LinesOfTensor, size: int, shorter: int, longer: int) -> None:
    if bool(tensor.lines) == (tensor.reason is not None):
        refuse(f"{where}.reason", f"a tensor has either lines or a reason why not: {AGAIN}")
    if (tensor.reason is NotComparable.SHORT) != (shorter == 0):
        reason = None if tensor.reason is None else tensor.reason.value
        refuse(
            f"{where}.reason",
            f"{reason!r} does not fit a tensor of shape {quote(list(tensor.shape))}: {AGAIN}",
        )
    for length, count in tensor.lines.items():
        most = size // max(1, length) * (1 + (shorter == longer))
        if length not in (shorter, longer) or not 1 <= count <= most:
            refuse(
                f"{where}.lines",
                f"a tensor of shape {quote(list(tensor.shape))} has no {quote(count)} lines of "
                f"length {quote(length)}: {AGAIN}",
            )
    if tensor.signature is not None and (
        len(tensor.signature) != codec.SIGNATURE_BYTES or not tensor.lines
    ):
        refuse(
            f"{where}.signature",
            f"a tensor has one of {codec.SIGNATURE_BYTES} bytes, and only with lines: {AGAIN}",
        )
