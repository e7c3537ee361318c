"""The binary formats of supports, patches, signatures, sketches, fingerprints and catalogues.

``modelkin.core.codecs`` knows the bytes; these functions tie them to the objects. A payload is not
trusted before it is checked.
"""

from __future__ import annotations

from modelkin.core.catalogues.catalogue import Catalogue
from modelkin.core.codecs import patch as patch_codec
from modelkin.core.codecs import roaring
from modelkin.core.codecs.checks import Payload
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.patch import Patch
from modelkin.core.sketching.signature import Signature
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import DeltaMismatch

__all__ = [
    "decode_catalogue",
    "decode_fingerprint",
    "decode_patch",
    "decode_raw",
    "decode_roaring",
    "decode_signature",
    "decode_sketch",
    "decode_support",
    "encode_catalogue",
    "encode_fingerprint",
    "encode_patch",
    "encode_raw",
    "encode_roaring",
    "encode_signature",
    "encode_sketch",
    "encode_support",
]


def encode_support(support: Support) -> bytes:
    """Encode a support in the native format, see :meth:`Support.to_bytes`."""
    return support.to_bytes()


def decode_support(
    data: Payload, *, num_parameters: int | None = None, max_k: int | None = None
) -> Support:
    """Decode a support from the native format, see :meth:`Support.from_bytes`."""
    return Support.from_bytes(data, num_parameters=num_parameters, max_k=max_k)


def encode_roaring(support: Support) -> bytes:
    """Encode a support as a portable Roaring bitmap, see :meth:`Support.to_roaring`."""
    return support.to_roaring()


def decode_roaring(data: Payload, num_parameters: int, *, max_k: int | None = None) -> Support:
    """Decode a support from a portable Roaring bitmap, see :meth:`Support.from_roaring`."""
    return Support.from_roaring(data, num_parameters, max_k=max_k)


def encode_raw(support: Support) -> bytes:
    """Encode the indices and nothing else: ascending little-endian uint32, uint64 if M > 2^32.

    Raises:
        InvalidParameter: the support is ordered, and raw indices have no place for octaves.
    """
    support.require_unordered("raw indices have no place for octaves: send the native format")
    return roaring.encode_raw(support.indices)


def decode_raw(data: Payload, num_parameters: int, *, max_k: int | None = None) -> Support:
    """Decode a support from ascending little-endian uint32 indices, uint64 where M > 2^32.

    Args:
        data: 4 (8) bytes an index.
        num_parameters: M, 1 to 2^63 - 1.
        max_k: the most indices to accept; None for no limit.

    Raises:
        InvalidSupport: not a whole number of indices, or none, unsorted, repeated or out of range.
        PayloadTooLarge: more than ``max_k`` indices.
    """
    return Support.from_indices(
        roaring.decode_raw(data, num_parameters, max_k=max_k), num_parameters
    )


def encode_patch(before: Support, after: Support) -> bytes:
    """Encode what changes from one support to the next, in the native format.

    Raises:
        SpaceMismatch: they are of different numbers of parameters.
        InvalidParameter: one of them is ordered: send it whole.
    """
    patch = Patch.between(before, after)
    return patch_codec.encode(
        before.indices,
        patch.added,
        patch.removed,
        num_parameters=after.num_parameters,
        digest_before=before.digest,
        digest_after=after.digest,
    )


def decode_patch(data: Payload, before: Support, *, max_k: int | None = None) -> Patch:
    """Decode a patch from the native format, ready to be applied to ``before``.

    Memory grows with the K that the header declares, and ``max_k`` bounds it.

    Args:
        data: the whole payload.
        before: the support that it changes.
        max_k: the most indices that the result may have; None for no limit.

    Raises:
        InvalidSupport: not this format, another version, truncated, damaged, or followed by other
            bytes.
        SpaceMismatch: the payload has another M.
        DeltaMismatch: it changes another support.
        PayloadTooLarge: the result's K is above ``max_k``.
    """
    header = patch_codec.read_header(data, num_parameters=before.num_parameters)
    if header.digest_before != before.digest:
        raise DeltaMismatch(
            f"the patch changes {header.digest_before}, and the support is {before.digest}: make "
            f"one of that, or send the support whole"
        )
    added, removed = patch_codec.decode(data, header, before.indices, max_k=max_k)
    return Patch(added=added, removed=removed, digest=header.digest_after)


def encode_signature(signature: Signature) -> bytes:
    """Encode a signature in the native format, see :meth:`Signature.to_bytes`."""
    return signature.to_bytes()


def decode_signature(data: Payload, *, num_parameters: int | None = None) -> Signature:
    """Decode a signature from the native format, see :meth:`Signature.from_bytes`."""
    return Signature.from_bytes(data, num_parameters=num_parameters)


def encode_sketch(sketch: Sketch) -> bytes:
    """Encode a sketch in the native format, see :meth:`Sketch.to_bytes`."""
    return sketch.to_bytes()


def decode_sketch(data: Payload, *, num_parameters: int | None = None) -> Sketch:
    """Decode a sketch from the native format, see :meth:`Sketch.from_bytes`."""
    return Sketch.from_bytes(data, num_parameters=num_parameters)


def encode_fingerprint(fingerprint: Fingerprint) -> bytes:
    """Encode a fingerprint in the native format, see :meth:`Fingerprint.to_bytes`."""
    return fingerprint.to_bytes()


def decode_fingerprint(data: Payload, *, max_tensors: int | None = None) -> Fingerprint:
    """Decode a fingerprint from the native format, see :meth:`Fingerprint.from_bytes`."""
    return Fingerprint.from_bytes(data, max_tensors=max_tensors)


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """Encode a catalogue of bases in the native format, see :meth:`Catalogue.to_bytes`."""
    return catalogue.to_bytes()


def decode_catalogue(data: Payload) -> Catalogue:
    """Decode a catalogue of bases, all of it checked, see :meth:`Catalogue.from_bytes`."""
    return Catalogue.from_bytes(data)
