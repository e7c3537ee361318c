"""A fingerprint as the arrays of its format, and back, with all that a fingerprint promises.

Writers and readers share one check. So what is written is read, and what is read is written as the
same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs import fingerprint as codec
from modelkin.core.codecs.fingerprint import AGAIN, FingerprintArrays, refuse
from modelkin.core.fingerprints.matrices import MIN_SIDE, sides
from modelkin.core.fingerprints.tensors import LinesOfTensor, NotComparable, check_tensors
from modelkin.core.quoting import quote

if TYPE_CHECKING:
    from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = [
    "MAX_SCALE",
    "arrays_of",
    "Sides",
    "check",
    "kept",
    "sides_of",
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
Places = npt.NDArray[np.intp]


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
    names, shape, signatures = arrays.names, arrays.sides.tolist(), arrays.signatures.tobytes()
    for number, (own, axes, reason, has_signature, _, *counts) in enumerate(
        arrays.tensors.tolist()
    ):
        if reason >= len(_REASONS):
            refuse(
                f"tensors[{number}].reason",
                f"{reason} is unknown, a newer modelkin may read it, or {AGAIN}",
            )
        of_tensor = tuple(shape[side : side + axes])
        end = signed + codec.SIGNATURE_BYTES * has_signature
        tensors.append(
            LinesOfTensor(
                tuple(names[name : name + own]),
                of_tensor,
                _lines(number, of_tensor, *counts),
                _REASONS[reason],
                signatures[signed:end] if has_signature else None,
            )
        )
        name, side, signed = name + own, side + axes, end
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


class Sides(NamedTuple):
    """The sides of the matrices of all tensors, the shorter before the longer.

    Attributes:
        lengths: 0 and 0 of a tensor without lines, shape ``(T, 2)``.
        counts: the lines of each tensor that are so long; 0 for the longer side of a square.
        places: the place of each key's line among them, shape ``(n,)``.
    """

    lengths: Lengths
    counts: npt.NDArray[np.uint64]
    places: Places


def sides_of(arrays: FingerprintArrays, tensors: tuple[LinesOfTensor, ...]) -> Sides:
    """Those of arrays that were decoded, of which ``tensors`` were made.

    Raises:
        InvalidFingerprint: a key is of the longer side of a tensor whose sides are equal.
    """
    lengths = _lengths(tensors)
    counts = np.stack([arrays.tensors["shorter"], arrays.tensors["longer"]], axis=1)
    places = 2 * arrays.owners.astype(np.intp) + arrays.longer
    are_equal = lengths[:, 0] == lengths[:, 1]
    if np.bincount(places, minlength=lengths.size)[1::2][are_equal].any():
        at = int((arrays.longer & are_equal[arrays.owners]).argmax())
        refuse(
            f"longer[{at}]",
            f"it is set, and tensor {arrays.owners[at]} has no longer side: {AGAIN}",
        )
    return Sides(lengths, counts.astype(np.uint64), places)


def check(fingerprint: Fingerprint, sides: Sides | None = None) -> None:
    """Refuse what a fingerprint cannot be.

    Args:
        sides: those of its arrays, if it was made from some.

    Raises:
        InvalidFingerprint: names field, value and what to do.
    """
    scale = fingerprint.scale
    if not 1 <= scale <= MAX_SCALE or scale & (scale - 1):
        refuse("scale", f"it must be a power of two up to 2^63, not {quote(scale)}: {AGAIN}")
    lengths = _lengths(fingerprint.tensors) if sides is None else sides.lengths
    check_tensors(fingerprint.tensors, lengths.tolist())
    counts = _counts(fingerprint.tensors, lengths) if sides is None else sides.counts
    distinct, place = np.unique(lengths, return_inverse=True)
    _check_totals(fingerprint.lines, distinct, place.ravel(), counts.ravel())
    ties = _check_order(fingerprint)
    _check_number(fingerprint)
    places = _places(fingerprint, lengths) if sides is None else sides.places
    held = np.bincount(places, minlength=counts.size)
    _check_lines(fingerprint, lengths, counts, held)
    once = held - np.bincount(places[ties + 1], minlength=counts.size)
    _check_samples(fingerprint, distinct, np.bincount(place.ravel(), once))


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


def _lines(number: int, shape: tuple[int, ...], few: int, many: int) -> Mapping[int, int]:
    """The lines of a tensor by length, as many as its shorter and its longer side."""
    shorter, longer = _lengths_of(shape)
    if (not shorter and (few or many)) or (shorter == longer and many):
        refuse(
            f"tensors[{number}].lines",
            f"a tensor of shape {quote(list(shape))} has no lines of that length: {AGAIN}",
        )
    lines = {shorter: few} if few else {}
    if many:
        lines[longer] = many
    return lines


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


def _check_totals(
    lines: Mapping[int, int],
    distinct: Lengths,
    place: Places,
    counts: npt.NDArray[np.uint64],
) -> None:
    """Each length has at least the lines of one tensor, and at most those of all together."""
    most = np.zeros(distinct.size, np.uint64)
    least = np.zeros(distinct.size, np.uint64)
    np.add.at(most, place, counts)
    np.maximum.at(least, place, counts)
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


def _check_order(fingerprint: Fingerprint) -> Places:
    """Return the keys that the next one equals, by their places among all."""
    keys, owners, lengths = fingerprint.keys, fingerprint.owners, fingerprint.lengths
    if not keys.shape == owners.shape == lengths.shape == (keys.size,):
        refuse("keys", f"keys, owners and lengths must be as many as each other: {AGAIN}")
    ties = np.flatnonzero(keys[1:] <= keys[:-1])
    if not keys.size:
        return ties
    if (wrong := ties[keys[ties + 1] < keys[ties]]).size:
        at = int(wrong[0]) + 1
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
    differs = (owners[ties + 1] <= owners[ties]) | (lengths[ties + 1] != lengths[ties])
    if differs.any():
        at = int(ties[differs][0]) + 1
        refuse(
            f"owners[{at}]",
            f"{owners[at]}: owners of one key ascend, and its lines are of one length: {AGAIN}",
        )
    return ties


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


def _places(fingerprint: Fingerprint, lengths: Lengths) -> Places:
    """As :func:`places_of`, of the lengths of lines."""
    owners = fingerprint.owners
    shorter, longer = lengths[owners].T
    is_longer = fingerprint.lengths != shorter
    wrong = is_longer & (fingerprint.lengths != longer)
    if wrong.any():
        at = int(wrong.argmax())
        refuse(
            f"lengths[{at}]",
            f"{fingerprint.lengths[at]} is no side of tensor {owners[at]}: {AGAIN}",
        )
    places: Places = 2 * owners.astype(np.intp) + is_longer
    return places


def _check_lines(
    fingerprint: Fingerprint, lengths: Lengths, counts: npt.NDArray[np.uint64], held: Places
) -> None:
    """A sample has at most the lines of each tensor and length, and at scale 1 all of them."""
    flat = counts.ravel()
    differs = held != flat if fingerprint.scale == 1 else held > flat
    if differs.any():
        at = int(differs.argmax())
        refuse(
            f"tensors[{at // 2}].lines",
            f"it has {flat[at]} lines of length {lengths.ravel()[at]}, and {held[at]} keys are of "
            f"them: {AGAIN}",
        )


def _check_samples(fingerprint: Fingerprint, distinct: Lengths, counts: npt.NDArray[Any]) -> None:
    """As :func:`_check_lines`, of the distinct keys of the whole checkpoint."""
    sampled = dict(zip(distinct.tolist(), counts.astype(np.int64).tolist(), strict=True))
    for length, total in fingerprint.lines.items():
        count = sampled[length]
        if count > total or (fingerprint.scale == 1 and count < total):
            refuse(
                "lines", f"there are {total} of length {length}, and {count} keys of them: {AGAIN}"
            )
