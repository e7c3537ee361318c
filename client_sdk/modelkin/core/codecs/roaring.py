"""Index arrays in formats of others: portable Roaring bitmaps and raw little-endian indices.

Neither format carries M, a version or a checksum, so the caller brings M. What is decoded here is
not checked to be a support: ``Support.from_indices`` does that.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import Payload, check_k, little_endian
from modelkin.core.indices import IndexArray, check_num_parameters, index_dtype
from modelkin.errors import InvalidSupport, MissingExtra

__all__ = ["count_roaring", "decode_raw", "decode_roaring", "encode_raw", "encode_roaring"]


def encode_roaring(indices: IndexArray, num_parameters: int) -> bytes:
    """Encode indices as a portable Roaring bitmap (RoaringFormatSpec), 64-bit where M > 2^32.

    Raises:
        MissingExtra: pyroaring is not installed.
    """
    bitmap_type = _bitmap_type(num_parameters)
    items = array("I" if indices.itemsize == 4 else "Q")
    # pyroaring takes an array.array as one block, and anything else, numpy's too, item by item.
    items.frombytes(indices.tobytes())
    data: bytes = bitmap_type(items).serialize()
    return data


def decode_roaring(
    data: Payload, num_parameters: int, *, max_k: int | None = None
) -> npt.NDArray[Any]:
    """Decode a portable Roaring bitmap of any Roaring library.

    Args:
        data: the bitmap and nothing behind it; 32-bit where M <= 2^32, else 64-bit.
        num_parameters: M, 1 to 2^63 - 1.
        max_k: the most indices to decode. A megabyte of runs can hold four billion, so leave it
            out only for trusted writers.

    Raises:
        InvalidSupport: not a bitmap, damaged, empty, out of range, or followed by other bytes.
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
    return np.frombuffer(bitmap.to_array(), dtype=index_dtype(m))


def count_roaring(data: Payload, num_parameters: int) -> int:
    """How many indices a bitmap holds, from its containers alone; 0 for anything else."""
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
            f"the payload is not a portable {32 if m <= 2**32 else 64}-bit Roaring bitmap: {error}"
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
        raise MissingExtra("pyroaring", "roaring") from None
    return pyroaring.BitMap if num_parameters <= 2**32 else pyroaring.BitMap64


def encode_raw(indices: IndexArray) -> bytes:
    """Encode indices and nothing else: little-endian, uint32 or uint64 as the array is."""
    return indices.astype(little_endian(indices.dtype), copy=False).tobytes()


def decode_raw(data: Payload, num_parameters: int, *, max_k: int | None = None) -> npt.NDArray[Any]:
    """Decode little-endian uint32 indices, uint64 where M > 2^32.

    Args:
        data: 4 (8) bytes an index.
        num_parameters: M, 1 to 2^63 - 1.
        max_k: the most indices to accept; None for no limit.

    Raises:
        InvalidSupport: not a whole number of indices.
        PayloadTooLarge: more than ``max_k`` indices.
    """
    dtype = index_dtype(check_num_parameters(num_parameters))
    k, rest = divmod(len(data), dtype.itemsize)
    if rest:
        raise InvalidSupport(
            f"{len(data)} bytes are not a whole number of {dtype.name} indices: for "
            f"{num_parameters} parameters each takes {dtype.itemsize} bytes"
        )
    check_k(k, max_k)
    return np.frombuffer(bytes(data), dtype=little_endian(dtype))
