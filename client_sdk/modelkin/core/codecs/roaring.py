"""Supports in the formats of others: portable Roaring bitmaps and raw little-endian indices.

Neither carries M, a version or a checksum, so M comes from the caller. The native format is
``wire.support``'s.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from modelkin.core.codecs.checks import Payload, check_k, little_endian
from modelkin.core.indices import check_num_parameters, index_dtype
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport, MissingExtra

__all__ = ["count_roaring", "decode_raw", "decode_roaring", "encode_raw", "encode_roaring"]


def encode_roaring(support: Support) -> bytes:
    """A portable Roaring bitmap (RoaringFormatSpec), 64-bit where M > 2^32.

    Raises:
        MissingExtra: pyroaring is not installed.
    """
    bitmap_type = _bitmap_type(support.num_parameters)
    indices = array("I" if support.indices.itemsize == 4 else "Q")
    # pyroaring takes an array.array as one block, and anything else, numpy's too, item by item.
    indices.frombytes(support.indices.tobytes())
    data: bytes = bitmap_type(indices).serialize()
    return data


def decode_roaring(data: Payload, num_parameters: int, *, max_k: int | None = None) -> Support:
    """A support from a portable Roaring bitmap, whichever Roaring library wrote it.

    Args:
        data: the bitmap and nothing behind it; 32-bit where M <= 2^32, else 64-bit.
        num_parameters: M, 1 to 2^63 - 1.
        max_k: the most indices to decode. A megabyte of runs can hold four billion, so leave it
            out only for trusted writers.

    Raises:
        InvalidSupport: no bitmap, damaged, empty, out of range, or followed by other bytes.
        PayloadTooLarge: more than ``max_k`` indices.
        MissingExtra: pyroaring is not installed.
    """
    m = check_num_parameters(num_parameters)
    bitmap = _read_bitmap(bytes(data), m)
    # Cardinality and maximum are known from the containers: both are right before any index is
    # materialised.
    check_k(len(bitmap), max_k)
    if bitmap.max() >= m:
        raise InvalidSupport(f"index {bitmap.max()} is out of range for {m} parameters")
    return Support.from_indices(np.frombuffer(bitmap.to_array(), dtype=index_dtype(m)), m)


def count_roaring(data: Payload, num_parameters: int) -> int:
    """How many indices a bitmap holds, from its containers alone; 0 of what is no bitmap."""
    try:
        return len(_read_bitmap(bytes(data), check_num_parameters(num_parameters)))
    except InvalidSupport:
        return 0


def _read_bitmap(data: bytes, m: int) -> Any:
    """The bitmap, not empty and as long as the payload."""
    try:
        bitmap = _bitmap_type(m).deserialize(data)
    except (ValueError, IndexError) as error:  # an IndexError where there are no bytes at all
        raise InvalidSupport(
            f"the payload is no portable {32 if m <= 2**32 else 64}-bit Roaring bitmap: {error}"
        ) from None
    size = len(bitmap.serialize())
    if size != len(data):  # pyroaring stops where the bitmap does and ignores the rest
        raise InvalidSupport(f"the bitmap takes {size} bytes, the payload has {len(data)}")
    if not bitmap:
        raise InvalidSupport("a support needs at least one index, this bitmap is empty")
    return bitmap


def _bitmap_type(num_parameters: int) -> Any:
    try:
        import pyroaring
    except ImportError:
        raise MissingExtra("pyroaring", "fast") from None
    return pyroaring.BitMap if num_parameters <= 2**32 else pyroaring.BitMap64


def encode_raw(support: Support) -> bytes:
    """The indices and nothing else: ascending little-endian uint32, uint64 where M > 2^32."""
    indices = support.indices
    return indices.astype(little_endian(indices.dtype), copy=False).tobytes()


def decode_raw(data: Payload, num_parameters: int, *, max_k: int | None = None) -> Support:
    """A support from ascending little-endian uint32 indices, uint64 where M > 2^32.

    Args:
        data: 4 (8) bytes an index.
        num_parameters: M, 1 to 2^63 - 1.
        max_k: the most indices to accept; None for no limit.

    Raises:
        InvalidSupport: no whole number of indices, or none, unsorted, repeated or out of range.
        PayloadTooLarge: more than ``max_k`` indices.
    """
    dtype = index_dtype(check_num_parameters(num_parameters))
    k, rest = divmod(len(data), dtype.itemsize)
    if rest:
        raise InvalidSupport(
            f"{len(data)} bytes are no whole number of {dtype.name} indices: for {num_parameters} "
            f"parameters each takes {dtype.itemsize} bytes"
        )
    check_k(k, max_k)
    indices = np.frombuffer(bytes(data), dtype=little_endian(dtype))
    return Support.from_indices(indices, num_parameters)
