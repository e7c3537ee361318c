"""A fingerprint as the arrays of its format, and back, with all that a fingerprint promises.

Writers and readers share one check. So what is written is read, and what is read is written as the
same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import fingerprint as codec
from modelkin.core.codecs.fingerprint import AGAIN, FingerprintArrays, refuse
from modelkin.core.fingerprints.matrices import MIN_SIDE, sides
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable
from modelkin.core.foreign_json import has_control_character
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.core.quoting import quote

if TYPE_CHECKING:
    from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = [
    "MAX_SCALE",
    "arrays_of",
    "check",
    "kept",
    "lengths_of_keys",
    "tensors_of",
    "totals_of",
]

_REASONS: Final = (
    None,
    NotComparable.SHORT,
    NotComparable.STRUCTURED,
    NotComparable.FEW_VALUES,
    NotComparable.NO_KEYS,
)
"""Why a tensor has no lines, by its number in the format."""
_MAX_LENGTH: Final = 2**32 - 1
MAX_SCALE: Final = 1 << 63

Lengths = npt.NDArray[np.uint32]


def arrays_of(fingerprint: Fingerprint) -> FingerprintArrays:
    """The arrays of a fingerprint.

    Raises:
        InvalidFingerprint: the format has no place for it, or it is none; names field and value.
    """
    check(fingerprint)
    tensors = fingerprint.tensors
    lengths = _lengths(tensors)
    table = np.zeros(len(tensors), codec.TENSOR)
    table["names"] = [len(tensor.names) for tensor in tensors]
    table["axes"] = [len(tensor.shape) for tensor in tensors]
    table["reason"] = [_REASONS.index(tensor.reason) for tensor in tensors]
    table["signed"] = [tensor.signature is not None for tensor in tensors]
    table["shorter"], table["longer"] = _counts(tensors, lengths).T
    signatures = b"".join(tensor.signature or b"" for tensor in tensors)
    arrays = FingerprintArrays(
        fingerprint.scale,
        table,
        [name for tensor in tensors for name in tensor.names],
        np.array([side for tensor in tensors for side in tensor.shape], np.uint64),
        np.frombuffer(signatures, np.uint8).reshape(-1, codec.SIGNATURE_BYTES),
        np.array([fingerprint.lines[length] for length in sorted(fingerprint.lines)], np.uint64),
        fingerprint.keys,
        fingerprint.owners,
        fingerprint.lengths != lengths[fingerprint.owners, 0],
    )
    codec.check_sizes(arrays)
    return arrays


def tensors_of(arrays: FingerprintArrays) -> tuple[LinesOfTensor, ...]:
    """The tensors of arrays that were decoded, and not checked.

    Raises:
        InvalidFingerprint: a reason is unknown, or a tensor without lines has some.
    """
    tensors, name, side, signed = list[LinesOfTensor](), 0, 0, 0
    shape = arrays.sides.tolist()
    for number, (names, axes, reason, has_signature, _, *counts) in enumerate(
        arrays.tensors.tolist()
    ):
        if reason >= len(_REASONS):
            refuse(
                f"tensors[{number}].reason",
                f"{reason} is unknown, a newer modelkin may read it, or {AGAIN}",
            )
        of_tensor = tuple(shape[side : side + axes])
        tensors.append(
            LinesOfTensor(
                tuple(arrays.names[name : name + names]),
                of_tensor,
                _lines(number, of_tensor, counts),
                _REASONS[reason],
                arrays.signatures[signed].tobytes() if has_signature else None,
            )
        )
        name, side, signed = name + names, side + axes, signed + has_signature
    return tuple(tensors)


def totals_of(arrays: FingerprintArrays, tensors: tuple[LinesOfTensor, ...]) -> Mapping[int, int]:
    """The lines of the whole checkpoint by length.

    Raises:
        InvalidFingerprint: there are more or fewer than the lengths of the tensors' lines.
    """
    lengths = sorted({length for tensor in tensors for length in tensor.lines})
    if len(lengths) != arrays.lines.size:
        refuse(
            "lines",
            f"there are {arrays.lines.size} counts, and lines of {len(lengths)} lengths: {AGAIN}",
        )
    return dict(zip(lengths, arrays.lines.tolist(), strict=True))


def lengths_of_keys(arrays: FingerprintArrays, tensors: tuple[LinesOfTensor, ...]) -> Lengths:
    """The length of the line of each key, shape ``(n,)``.

    Raises:
        InvalidFingerprint: one is of the longer side of a tensor whose sides are equal.
    """
    shorter, longer = _lengths(tensors)[arrays.owners].T
    wrong = arrays.longer & (shorter == longer)
    if wrong.any():
        at = int(wrong.argmax())
        refuse(
            f"longer[{at}]",
            f"it is set, and tensor {arrays.owners[at]} has no longer side: {AGAIN}",
        )
    lengths: Lengths = np.where(arrays.longer, longer, shorter)
    return lengths


def check(fingerprint: Fingerprint) -> None:
    """Refuse what a fingerprint cannot be.

    Raises:
        InvalidFingerprint: names field, value and what to do.
    """
    scale = fingerprint.scale
    if not 1 <= scale <= MAX_SCALE or scale & (scale - 1):
        refuse("scale", f"it must be a power of two up to 2^63, not {quote(scale)}: {AGAIN}")
    lengths = _lengths(fingerprint.tensors)
    _check_tensors(fingerprint.tensors, lengths)
    counts = _counts(fingerprint.tensors, lengths)
    _check_totals(fingerprint.lines, lengths, counts)
    _check_order(fingerprint)
    _check_number(fingerprint)
    _check_lines(fingerprint, lengths, counts)


@lru_cache(maxsize=4096)  # a checkpoint has few shapes, and each is asked for in several checks
def _lengths_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shorter and the longer side of a tensor's matrices; 0 and 0 where it has no lines."""
    shorter, longer = sorted(sides(shape))
    has_lines = MIN_SIDE <= shorter and longer <= _MAX_LENGTH and 0 not in shape
    return (shorter, longer) if has_lines else (0, 0)


def _lengths(tensors: tuple[LinesOfTensor, ...]) -> Lengths:
    """Those of each tensor, shape ``(T, 2)``."""
    found = [_lengths_of(tensor.shape) for tensor in tensors]
    return np.array(found, np.uint32).reshape(-1, 2)


def _lines(number: int, shape: tuple[int, ...], counts: list[int]) -> Mapping[int, int]:
    """The lines of a tensor by length, as many as its shorter and its longer side."""
    shorter, longer = _lengths_of(shape)
    if (not shorter and any(counts)) or (shorter == longer and counts[1]):
        refuse(
            f"tensors[{number}].lines",
            f"a tensor of shape {quote(list(shape))} has no lines of that length: {AGAIN}",
        )
    pairs = zip((shorter, longer), counts, strict=True)
    return {length: count for length, count in pairs if count}


def _counts(tensors: tuple[LinesOfTensor, ...], lengths: Lengths) -> npt.NDArray[np.uint64]:
    """The lines of each tensor as long as its shorter side, and as its longer one."""
    counts = np.zeros((len(tensors), 2), np.uint64)
    for number, (tensor, (shorter, longer)) in enumerate(
        zip(tensors, lengths.tolist(), strict=True)
    ):
        counts[number, 0] = tensor.lines.get(shorter, 0)
        if shorter != longer:
            counts[number, 1] = tensor.lines.get(longer, 0)
    return counts


def _check_tensors(tensors: tuple[LinesOfTensor, ...], lengths: Lengths) -> None:
    known, parameters = set[str](), 0
    for number, (tensor, both) in enumerate(zip(tensors, lengths.tolist(), strict=True)):
        where = f"tensors[{number}]"
        if not tensor.names:
            refuse(f"{where}.names", "a tensor has one name or more: give it one")
        for name in tensor.names:
            _check_name(where, name)
            if name in known:
                refuse(f"{where}.names", f"{quote(name)} is there twice: name each tensor once")
            known.add(name)
        _check_shape(where, tensor.shape)
        parameters += tensor.size
        _check_tensor(where, tensor, *both)
    if parameters > MAX_PARAMETERS:
        refuse("tensors", f"they have {quote(parameters)} parameters, more than 2^63 - 1: {AGAIN}")


def _check_name(where: str, name: str) -> None:
    if not 1 <= len(name) <= codec.MAX_NAME:
        refuse(
            f"{where}.names",
            f"{quote(name)} has {len(name):,} characters, 1 to {codec.MAX_NAME} are allowed: give "
            f"the tensor a shorter name",
        )
    if has_control_character(name):
        refuse(
            f"{where}.names", f"{quote(name)} has a control character: give the tensor another name"
        )
    if not name.isascii() and any(0xD800 <= ord(each) < 0xE000 for each in name):
        refuse(f"{where}.names", f"{quote(name)} is no text: give the tensor another name")


def _check_shape(where: str, shape: tuple[int, ...]) -> None:
    if len(shape) > codec.MAX_AXES:
        refuse(
            f"{where}.shape",
            f"{quote(list(shape))} has {len(shape)} axes, at most {codec.MAX_AXES} are allowed: "
            f"store the tensor with fewer",
        )
    if not all(0 <= side <= MAX_PARAMETERS for side in shape):
        refuse(f"{where}.shape", f"{quote(list(shape))} has a side beyond 2^63 - 1: {AGAIN}")


def _check_tensor(where: str, tensor: LinesOfTensor, shorter: int, longer: int) -> None:
    if bool(tensor.lines) == (tensor.reason is not None):
        refuse(f"{where}.reason", f"a tensor has either lines or a reason why not: {AGAIN}")
    if (tensor.reason is NotComparable.SHORT) != (shorter == 0):
        reason = None if tensor.reason is None else tensor.reason.value
        refuse(
            f"{where}.reason",
            f"{reason!r} does not fit a tensor of shape {quote(list(tensor.shape))}: {AGAIN}",
        )
    for length, count in tensor.lines.items():
        most = tensor.size // max(1, length) * (1 + (shorter == longer))
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


def _check_totals(
    lines: Mapping[int, int], lengths: Lengths, counts: npt.NDArray[np.uint64]
) -> None:
    """Each length has at least the lines of one tensor, and at most those of all together."""
    distinct, place = np.unique(lengths, return_inverse=True)
    most = np.zeros(distinct.size, np.uint64)
    least = np.zeros(distinct.size, np.uint64)
    np.add.at(most, place.ravel(), counts.ravel())
    np.maximum.at(least, place.ravel(), counts.ravel())
    bounds = {
        length: bound
        for length, *bound in zip(distinct.tolist(), least.tolist(), most.tolist(), strict=True)
        if bound[1]
    }
    if lines.keys() != bounds.keys():
        refuse(
            "lines",
            f"they are of the lengths {quote(sorted(lines))}, and those of the tensors of "
            f"{quote(sorted(bounds))}: {AGAIN}",
        )
    for length, (low, high) in bounds.items():
        if not low <= lines[length] <= high:
            refuse(
                "lines",
                f"{quote(lines[length])} of length {length} are not {low} to {high}, as the "
                f"tensors have them: {AGAIN}",
            )


def _check_order(fingerprint: Fingerprint) -> None:
    keys, owners, lengths = fingerprint.keys, fingerprint.owners, fingerprint.lengths
    if not keys.shape == owners.shape == lengths.shape == (keys.size,):
        refuse("keys", f"keys, owners and lengths must be as many as each other: {AGAIN}")
    if not keys.size:
        return
    wrong = keys[1:] < keys[:-1]
    if wrong.any():
        at = int(wrong.argmax()) + 1
        refuse(f"keys[{at}]", f"{keys[at]} is less than the key before it: {AGAIN}")
    at = kept(keys, fingerprint.scale)
    if at < keys.size:
        refuse(
            f"keys[{at}]",
            f"{keys[at]} is not below 2^64 / {fingerprint.scale}, the scale: {AGAIN}",
        )
    if int(owners.max()) >= len(fingerprint.tensors):
        at = int(owners.argmax())
        refuse(f"owners[{at}]", f"{owners[at]} is not below the {len(fingerprint.tensors)} tensors")
    same = keys[1:] == keys[:-1]
    wrong = same & ((owners[1:] <= owners[:-1]) | (lengths[1:] != lengths[:-1]))
    if wrong.any():
        at = int(wrong.argmax()) + 1
        refuse(
            f"owners[{at}]",
            f"{owners[at]}: owners of one key ascend, and its lines are of one length: {AGAIN}",
        )


def _check_number(fingerprint: Fingerprint) -> None:
    keys, scale = fingerprint.keys, fingerprint.scale
    while scale < MAX_SCALE and kept(keys, scale) > codec.MAX_KEYS:
        scale *= 2
    if scale > fingerprint.scale:
        refuse(
            "keys",
            f"there are {keys.size:,}, at most {codec.MAX_KEYS:,} are allowed: take a coarser "
            f"scale, as by .at({scale})",
        )


def kept(keys: npt.NDArray[np.uint64], scale: int) -> int:
    """How many of ascending keys are below the limit of a scale."""
    return int(np.searchsorted(keys, np.uint64((2**64 - 1) // scale), "right"))


def _check_lines(
    fingerprint: Fingerprint, lengths: Lengths, counts: npt.NDArray[np.uint64]
) -> None:
    """A sample has at most the lines of each tensor and length, and at scale 1 all of them."""
    keys, owners = fingerprint.keys, fingerprint.owners
    shorter, longer = lengths[owners].T
    is_longer = fingerprint.lengths != shorter
    wrong = is_longer & (fingerprint.lengths != longer)
    if wrong.any():
        at = int(wrong.argmax())
        refuse(
            f"lengths[{at}]",
            f"{fingerprint.lengths[at]} is no side of tensor {owners[at]}: {AGAIN}",
        )
    held = np.bincount(2 * owners.astype(np.int64) + is_longer, minlength=counts.size)
    whole = fingerprint.scale == 1
    flat = counts.ravel()
    differs = held != flat if whole else held > flat
    if differs.any():
        at = int(differs.argmax())
        refuse(
            f"tensors[{at // 2}].lines",
            f"it has {flat[at]} lines of length {lengths.ravel()[at]}, and {held[at]} keys are of "
            f"them: {AGAIN}",
        )
    first = np.ones(keys.size, np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    found = np.unique(fingerprint.lengths[first], return_counts=True)
    sampled = dict(zip(*(part.tolist() for part in found), strict=True))
    for length, total in fingerprint.lines.items():
        count = sampled.get(length, 0)
        if count > total or (whole and count < total):
            refuse(
                "lines", f"there are {total} of length {length}, and {count} keys of them: {AGAIN}"
            )
