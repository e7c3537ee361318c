"""Read and write bodies by their media type.

Service and client share it; it knows nothing of HTTP. A new media type of a support, a signature or
a patch is one entry of ``SUPPORT_FORMATS``, ``SIGNATURE_FORMATS`` or ``PATCH_FORMATS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from modelkin.core.codecs.checks import Payload, check_k
from modelkin.core.codecs.patch import declared_added
from modelkin.core.codecs.roaring import count_roaring
from modelkin.core.codecs.support import declared_k, declared_octaves
from modelkin.core.indices import index_dtype
from modelkin.core.patch import Patch
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidSignature, InvalidSupport, UnsupportedMediaType
from modelkin.wire.binary import (
    decode_patch,
    decode_raw,
    decode_roaring,
    decode_signature,
    decode_support,
    encode_raw,
    encode_roaring,
    encode_signature,
    encode_support,
)
from modelkin.wire.json import (
    dump_json,
    parse_json,
    patch_from_json,
    signature_from_json,
    signature_to_json,
    support_from_json,
    support_json_pieces,
)
from modelkin.wire.types import JSON, PATCH, RAW, ROARING, SIGNATURE, SUPPORT

__all__ = [
    "ORDERED_TYPES",
    "PATCH_FORMATS",
    "PATCH_TYPES",
    "SIGNATURE_FORMATS",
    "SIGNATURE_TYPES",
    "SUPPORT_FORMATS",
    "SUPPORT_TYPES",
    "count_added",
    "count_indices",
    "count_octaves",
    "dump_signature",
    "dump_support",
    "load_either",
    "load_json_patch",
    "load_patch",
    "load_signature",
    "load_support",
]

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class SupportFormat:
    """A media type of a support.

    Attributes:
        decode: makes a support of a body, M and the most indices to decode.
        encode: makes the body of a support.
        count: the number of indices that a body declares for an M, before any is decoded.
        octaves: the number of octaves that a body declares beside them; None where the format has
            no place for octaves.
    """

    decode: Callable[[Payload, int, int | None], Support]
    encode: Callable[[Support], bytes]
    count: Callable[[Payload, int], int]
    octaves: Callable[[Payload], int] | None


@dataclass(frozen=True, slots=True)
class SignatureFormat:
    """A media type of a signature.

    Attributes:
        decode: makes a signature of a body and M.
        encode: makes the body of a signature.
    """

    decode: Callable[[Payload, int], Signature]
    encode: Callable[[Signature], bytes]


@dataclass(frozen=True, slots=True)
class PatchFormat:
    """A media type of a patch.

    Attributes:
        decode: makes a patch of a body, the support that it changes, and the most indices of the
            result.
        count: the number of added indices that a body declares, before any is decoded.
    """

    decode: Callable[[Payload, Support, int | None], Patch]
    count: Callable[[Payload], int]


def _decode_json_patch(data: Payload, before: Support, max_k: int | None) -> Patch:
    patch = load_json_patch(data, before.num_parameters)
    check_k(before.k - patch.removed.size + patch.added.size, max_k)
    return patch


SUPPORT_FORMATS: Final[Mapping[str, SupportFormat]] = {
    SUPPORT: SupportFormat(
        lambda data, m, max_k: decode_support(data, num_parameters=m, max_k=max_k),
        encode_support,
        lambda data, _: declared_k(data),
        declared_octaves,
    ),
    ROARING: SupportFormat(
        lambda data, m, max_k: decode_roaring(data, m, max_k=max_k),
        encode_roaring,
        count_roaring,
        None,
    ),
    RAW: SupportFormat(
        lambda data, m, max_k: decode_raw(data, m, max_k=max_k),
        encode_raw,
        lambda data, m: len(data) // index_dtype(m).itemsize,
        None,
    ),
    JSON: SupportFormat(
        lambda data, m, max_k: support_from_json(parse_json(data, InvalidSupport), m, max_k=max_k),
        lambda support: b"".join(support_json_pieces(support)),
        lambda data, _: len(data) // 2,  # a digit and a comma each; octaves count as indices
        lambda _: 0,
    ),
}
"""The media types of a support, the preferred one first."""

SIGNATURE_FORMATS: Final[Mapping[str, SignatureFormat]] = {
    SIGNATURE: SignatureFormat(
        lambda data, m: decode_signature(data, num_parameters=m), encode_signature
    ),
    JSON: SignatureFormat(
        lambda data, m: signature_from_json(parse_json(data, InvalidSignature), m),
        lambda signature: dump_json(signature_to_json(signature)),
    ),
}
"""The media types of a signature, the preferred one first."""

PATCH_FORMATS: Final[Mapping[str, PatchFormat]] = {
    PATCH: PatchFormat(
        lambda data, before, max_k: decode_patch(data, before, max_k=max_k), declared_added
    ),
    JSON: PatchFormat(_decode_json_patch, lambda data: len(data) // 2),
}
"""The media types of a patch, the preferred one first."""

SUPPORT_TYPES: Final = tuple(SUPPORT_FORMATS)
SIGNATURE_TYPES: Final = tuple(SIGNATURE_FORMATS)
PATCH_TYPES: Final = tuple(PATCH_FORMATS)
ORDERED_TYPES: Final = tuple(name for name, each in SUPPORT_FORMATS.items() if each.octaves)
"""The media types of an ordered support, the preferred one first."""


def load_support(
    data: Payload, media_type: str, num_parameters: int, max_k: int | None = None
) -> Support:
    """Read a support from a body of one of ``SUPPORT_TYPES``.

    Args:
        data: the whole body.
        media_type: as in Content-Type; parameters such as ``charset`` are ignored.
        num_parameters: M of the space.
        max_k: the most indices to decode; None only for trusted writers.

    Raises:
        UnsupportedMediaType: not in ``SUPPORT_TYPES``.
        InvalidSupport, SpaceMismatch, PayloadTooLarge, MissingExtra: as that type's decoder says.
    """
    return _format(SUPPORT_FORMATS, media_type, "a support").decode(data, num_parameters, max_k)


def count_indices(data: Payload, media_type: str, num_parameters: int) -> int:
    """Count the indices that a body declares, before any is decoded: the memory to reserve.

    Nothing is checked: for a damaged body the number can be anything.

    Args:
        data: the whole body, of any media type of a support or signature.
        media_type: as in Content-Type.
        num_parameters: M of the space.
    """
    known = SUPPORT_FORMATS.get(_essence(media_type), SUPPORT_FORMATS[JSON])
    return known.count(data, num_parameters)


def count_octaves(data: Payload, media_type: str) -> int:
    """Count the octaves that a body declares beside its indices; see :func:`count_indices`.

    In JSON they are counted as indices.
    """
    known = SUPPORT_FORMATS.get(_essence(media_type))
    return known.octaves(data) if known is not None and known.octaves is not None else 0


def dump_support(support: Support, media_type: str) -> bytes:
    """Write the body of a support in one of ``SUPPORT_TYPES``.

    Raises:
        UnsupportedMediaType: not in ``SUPPORT_TYPES``.
        InvalidParameter: an ordered support as Roaring or raw, which have no place for octaves.
        MissingExtra: Roaring without pyroaring.
    """
    return _format(SUPPORT_FORMATS, media_type, "a support").encode(support)


def load_patch(data: Payload, media_type: str, before: Support, max_k: int | None = None) -> Patch:
    """Read a patch from a body of one of ``PATCH_TYPES``, ready to be applied to ``before``.

    Args:
        data: the whole body.
        media_type: as in Content-Type; parameters are ignored.
        before: the support that the patch changes.
        max_k: the most indices that the result may have; None only for trusted writers.

    Raises:
        UnsupportedMediaType: not in ``PATCH_TYPES``.
        InvalidSupport, SpaceMismatch, DeltaMismatch, PayloadTooLarge: as that type's decoder says.
    """
    return _format(PATCH_FORMATS, media_type, "a patch").decode(data, before, max_k)


def load_json_patch(data: Payload, num_parameters: int) -> Patch:
    """Read a patch from its JSON text, before it is known which support it changes.

    Raises:
        InvalidSupport: no JSON, another shape, or indices unsorted, repeated or out of range.
    """
    return patch_from_json(parse_json(data, InvalidSupport), num_parameters)


def count_added(data: Payload, media_type: str) -> int:
    """Count the added indices that a patch declares; see :func:`count_indices`."""
    return PATCH_FORMATS.get(_essence(media_type), PATCH_FORMATS[JSON]).count(data)


def load_signature(data: Payload, media_type: str, num_parameters: int) -> Signature:
    """Read a signature from a body of one of ``SIGNATURE_TYPES``.

    Args:
        data: the whole body.
        media_type: as in Content-Type; parameters are ignored.
        num_parameters: M of the space.

    Raises:
        UnsupportedMediaType: not in ``SIGNATURE_TYPES``.
        InvalidSignature, SpaceMismatch: as that type's decoder says.
    """
    return _format(SIGNATURE_FORMATS, media_type, "a signature").decode(data, num_parameters)


def dump_signature(signature: Signature, media_type: str) -> bytes:
    """Write the body of a signature in one of ``SIGNATURE_TYPES``.

    Raises:
        UnsupportedMediaType: not in ``SIGNATURE_TYPES``.
    """
    return _format(SIGNATURE_FORMATS, media_type, "a signature").encode(signature)


def load_either(
    data: Payload, media_type: str, num_parameters: int, max_k: int | None = None
) -> Support | Signature:
    """Read a support or a signature; JSON with a field ``values`` is a signature.

    Takes the arguments and raises the errors of :func:`load_support` and :func:`load_signature`.
    """
    kind = _essence(media_type)
    if kind == JSON:
        obj = parse_json(data, InvalidSupport)
        if isinstance(obj, dict) and "values" in obj:
            return signature_from_json(obj, num_parameters)
        return support_from_json(obj, num_parameters, max_k=max_k)
    if kind in SIGNATURE_FORMATS:
        return SIGNATURE_FORMATS[kind].decode(data, num_parameters)
    if kind in SUPPORT_FORMATS:
        return SUPPORT_FORMATS[kind].decode(data, num_parameters, max_k)
    known = dict.fromkeys((*SUPPORT_TYPES, *SIGNATURE_TYPES))
    raise _unknown_type(media_type, "a support or a signature", known)


def _essence(media_type: str) -> str:
    """Return type and subtype alone, in lower case (RFC 9110, 8.3.1)."""
    return media_type.partition(";")[0].strip().lower()


def _format(known: Mapping[str, F], media_type: str, what: str) -> F:
    """Return the format of a media type, or refuse it with those that are known."""
    kind = _essence(media_type)
    if kind not in known:
        raise _unknown_type(media_type, what, known)
    return known[kind]


def _unknown_type(media_type: str, what: str, known: Iterable[str]) -> UnsupportedMediaType:
    return UnsupportedMediaType(
        f"{media_type[:80]!a} is not a media type of {what}: use {', '.join(known)}"
    )
