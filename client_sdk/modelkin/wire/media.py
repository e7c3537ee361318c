"""Read and write bodies by their media type.

Service and client share it; it knows nothing of HTTP.
"""

from __future__ import annotations

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
from modelkin.wire.types import (
    JSON,
    PATCH,
    PATCH_TYPES,
    RAW,
    ROARING,
    SIGNATURE,
    SIGNATURE_TYPES,
    SUPPORT,
    SUPPORT_TYPES,
)

__all__ = [
    "count_added",
    "count_indices",
    "count_octaves",
    "dump_signature",
    "dump_support",
    "load_patch",
    "load_either",
    "load_json_patch",
    "load_signature",
    "load_support",
]


def load_support(
    data: Payload, media_type: str, num_parameters: int, max_k: int | None = None
) -> Support:
    """A support from a body of one of ``SUPPORT_TYPES``.

    Args:
        data: the whole body.
        media_type: as in Content-Type; parameters such as ``charset`` are ignored.
        num_parameters: M of the space.
        max_k: the most indices to decode; None only for trusted writers.

    Raises:
        UnsupportedMediaType: not in ``SUPPORT_TYPES``.
        InvalidSupport, SpaceMismatch, PayloadTooLarge, MissingExtra: as that type's decoder says.
    """
    kind = _essence(media_type)
    if kind == SUPPORT:
        return decode_support(data, num_parameters=num_parameters, max_k=max_k)
    if kind == ROARING:
        return decode_roaring(data, num_parameters, max_k=max_k)
    if kind == RAW:
        return decode_raw(data, num_parameters, max_k=max_k)
    if kind == JSON:
        return support_from_json(parse_json(data, InvalidSupport), num_parameters, max_k=max_k)
    raise _unsupported(media_type, "a support", SUPPORT_TYPES)


def count_indices(data: Payload, media_type: str, num_parameters: int) -> int:
    """How many indices a body declares, before any is decoded: the memory to reserve.

    Nothing is checked: for a damaged body the number can be anything.

    Args:
        data: the whole body, of any media type of a support or signature.
        media_type: as in Content-Type.
        num_parameters: M of the space.
    """
    kind = _essence(media_type)
    if kind == SUPPORT:
        return declared_k(data)
    if kind == ROARING:
        return count_roaring(data, num_parameters)
    if kind == RAW:
        return len(data) // index_dtype(num_parameters).itemsize
    return len(data) // 2  # JSON: a digit and a comma each


def count_octaves(data: Payload, media_type: str) -> int:
    """How many octaves a body declares beside its indices; see :func:`count_indices`.

    In JSON they are counted as indices.
    """
    return declared_octaves(data) if _essence(media_type) == SUPPORT else 0


def dump_support(support: Support, media_type: str) -> bytes:
    """The body of a support in one of ``SUPPORT_TYPES``.

    Raises:
        UnsupportedMediaType: not in ``SUPPORT_TYPES``.
        InvalidParameter: an ordered support as Roaring or raw, which have no place for octaves.
        MissingExtra: Roaring without pyroaring.
    """
    kind = _essence(media_type)
    if kind == SUPPORT:
        return encode_support(support)
    if kind == ROARING:
        return encode_roaring(support)
    if kind == RAW:
        return encode_raw(support)
    if kind == JSON:
        return b"".join(support_json_pieces(support))
    raise _unsupported(media_type, "a support", SUPPORT_TYPES)


def load_patch(data: Payload, media_type: str, before: Support, max_k: int | None = None) -> Patch:
    """A patch from a body of one of ``PATCH_TYPES``, ready to be applied to ``before``.

    Args:
        data: the whole body.
        media_type: as in Content-Type; parameters are ignored.
        before: the support that it changes.
        max_k: the most indices that the result may have; None only for trusted writers.

    Raises:
        UnsupportedMediaType: not in ``PATCH_TYPES``.
        InvalidSupport, SpaceMismatch, DeltaMismatch, PayloadTooLarge: as that type's decoder says.
    """
    kind = _essence(media_type)
    if kind == PATCH:
        return decode_patch(data, before, max_k=max_k)
    if kind == JSON:
        patch = load_json_patch(data, before.num_parameters)
        check_k(before.k - patch.removed.size + patch.added.size, max_k)
        return patch
    raise _unsupported(media_type, "a delta", PATCH_TYPES)


def load_json_patch(data: Payload, num_parameters: int) -> Patch:
    """A patch from its JSON text, before it is known what it changes.

    Raises:
        InvalidSupport: no JSON, another shape, or indices unsorted, repeated or out of range.
    """
    return patch_from_json(parse_json(data, InvalidSupport), num_parameters)


def count_added(data: Payload, media_type: str) -> int:
    """How many added indices a patch declares, before any is decoded; see :func:`count_indices`."""
    return declared_added(data) if _essence(media_type) == PATCH else len(data) // 2


def load_signature(data: Payload, media_type: str, num_parameters: int) -> Signature:
    """A signature from a body of one of ``SIGNATURE_TYPES``.

    Args:
        data: the whole body.
        media_type: as in Content-Type; parameters are ignored.
        num_parameters: M of the space.

    Raises:
        UnsupportedMediaType: not in ``SIGNATURE_TYPES``.
        InvalidSignature, SpaceMismatch: as that type's decoder says.
    """
    kind = _essence(media_type)
    if kind == SIGNATURE:
        return decode_signature(data, num_parameters=num_parameters)
    if kind == JSON:
        return signature_from_json(parse_json(data, InvalidSignature), num_parameters)
    raise _unsupported(media_type, "a signature", SIGNATURE_TYPES)


def dump_signature(signature: Signature, media_type: str) -> bytes:
    """The body of a signature in one of ``SIGNATURE_TYPES``.

    Raises:
        UnsupportedMediaType: not in ``SIGNATURE_TYPES``.
    """
    kind = _essence(media_type)
    if kind == SIGNATURE:
        return encode_signature(signature)
    if kind == JSON:
        return dump_json(signature_to_json(signature))
    raise _unsupported(media_type, "a signature", SIGNATURE_TYPES)


def load_either(
    data: Payload, media_type: str, num_parameters: int, max_k: int | None = None
) -> Support | Signature:
    """A support or a signature, as the body is; JSON with a field ``values`` is a signature.

    Args and errors are those of :func:`load_support` and :func:`load_signature`.
    """
    kind = _essence(media_type)
    if kind == SIGNATURE:
        return load_signature(data, kind, num_parameters)
    if kind == JSON:
        obj = parse_json(data, InvalidSupport)
        if isinstance(obj, dict) and "values" in obj:
            return signature_from_json(obj, num_parameters)
        return support_from_json(obj, num_parameters, max_k=max_k)
    if kind in SUPPORT_TYPES:
        return load_support(data, kind, num_parameters, max_k)
    raise _unsupported(media_type, "a support or a signature", (*SUPPORT_TYPES, SIGNATURE))


def _essence(media_type: str) -> str:
    """Type and subtype alone, in lower case (RFC 9110, 8.3.1)."""
    return media_type.partition(";")[0].strip().lower()


def _unsupported(media_type: str, what: str, known: tuple[str, ...]) -> UnsupportedMediaType:
    return UnsupportedMediaType(
        f"{media_type[:80]!a} is not a media type of {what}: use {', '.join(known)}"
    )
