"""The native format of a data subspace, ``application/vnd.modelkin.subspace``.

Owns the header, the lengths, the order of the bytes and the checksum. ``Subspace`` decides which
values make a subspace.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_prefix,
    little_endian,
    with_crc,
)
from modelkin.errors import InvalidSubspace, PayloadTooLarge

__all__ = [
    "DTYPES",
    "HEADER_BYTES",
    "MAX_FEATURES",
    "WEIGHTINGS",
    "SubspaceArrays",
    "declared_size",
    "decode",
    "encode",
]

_HEADER: Final = struct.Struct("<4sBBBBIfffHHI")
HEADER_BYTES: Final = _HEADER.size
_MAGIC: Final = b"MKSB"
_BLOCK: Final = np.dtype([("label", "<i4"), ("columns", "<u2")])

MAX_FEATURES: Final = 65_535
"""The largest m, the features of a sample."""

WEIGHTINGS: Final = ("spectrum", "flat")
DTYPES: Final = {"float16": 1, "float32": 2}
_DTYPES: Final = {code: np.dtype(name) for name, code in DTYPES.items()}


class SubspaceArrays(NamedTuple):
    """The fields of a payload, of b blocks and d columns in all.

    Attributes:
        num_features: m.
        constant: the entry that was appended to each sample; 0 for none.
        weighting: one of :data:`WEIGHTINGS`.
        epsilon: the privacy loss that the noise allows, with ``delta``; both 0 without noise.
        labels: the labels of the blocks, -1 for all samples; shape ``(b,)``.
        sizes: columns of the blocks; shape ``(b,)``.
        weights: the weights of the columns, shape ``(d,)``, float32.
        columns: one a row, shape ``(d, m + 1)``, or ``(d, m)`` without a constant; float32.
    """

    num_features: int
    constant: float
    weighting: str
    epsilon: float
    delta: float
    labels: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    columns: npt.NDArray[np.float32]


def encode(arrays: SubspaceArrays, dtype: str) -> bytes:
    """Encode the fields: 32 bytes of header, blocks, weights, columns and a CRC-32.

    Args:
        arrays: consistent with each other.
        dtype: the dtype of the columns, one of :data:`DTYPES`.
    """
    blocks = np.empty(arrays.labels.size, _BLOCK)
    blocks["label"], blocks["columns"] = arrays.labels, arrays.sizes
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        DTYPES[dtype],
        WEIGHTINGS.index(arrays.weighting),
        0,
        arrays.num_features,
        arrays.constant,
        arrays.epsilon,
        arrays.delta,
        arrays.labels.size,
        0,
        arrays.columns.shape[0],
    )
    weights = arrays.weights.astype("<f4", copy=False).tobytes()
    columns = arrays.columns.astype(little_endian(dtype), copy=False).tobytes()
    return with_crc(header + blocks.tobytes(), weights, columns)


def declared_size(data: Payload) -> int:
    """The bytes of a payload by its header, which is not verified yet."""
    _, _, dtype, _, _, m, constant, _, _, blocks, _, total = _HEADER.unpack_from(data)
    width = _DTYPES[dtype].itemsize if dtype in _DTYPES else 0
    return _size(blocks, total, m + (constant != 0), width)


def _size(blocks: int, columns: int, rows: int, width: int) -> int:
    return _HEADER.size + blocks * _BLOCK.itemsize + columns * (4 + rows * width) + CRC_SIZE


def decode(data: Payload, *, max_columns: int | None = None) -> SubspaceArrays:
    """Decode a payload; what the values are is not checked, but all that decides lengths is.

    Args:
        data: the whole payload.
        max_columns: the most columns to accept; None for no limit.

    Raises:
        InvalidSubspace: not this format, another version, truncated, damaged, or followed by other
            bytes.
        PayloadTooLarge: more columns than accepted.
    """
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSubspace(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    (magic, version, dtype_code, weighting, flags, m, constant, epsilon, delta, blocks, more,
     total) = _HEADER.unpack_from(data)  # fmt: skip
    check_prefix(magic, _MAGIC, version, InvalidSubspace)
    check_crc(data, InvalidSubspace)
    if dtype_code not in _DTYPES or weighting >= len(WEIGHTINGS):
        raise InvalidSubspace(
            f"dtype {dtype_code} (byte 5) or weighting {weighting} (byte 6) is unknown: 1 is "
            f"float16, 2 is float32; 0 is spectrum, 1 is flat"
        )
    if flags or more:
        raise InvalidSubspace("bytes 7 and 26-27 must be zero in version 1")
    if not 2 <= m <= MAX_FEATURES:
        raise InvalidSubspace(f"m (bytes 8-11) must be 2 to {MAX_FEATURES}, it is {m}")
    if max_columns is not None and total > max_columns:
        raise PayloadTooLarge(
            f"the subspace has {total} columns (bytes 28-31), at most {max_columns} are accepted"
        )
    dtype, rows = _DTYPES[dtype_code], m + (constant != 0)
    size = _size(blocks, total, rows, dtype.itemsize)
    if len(data) != size:
        raise InvalidSubspace(
            f"{blocks} blocks and {total} columns of {rows} {dtype} make a payload of {size} bytes,"
            f" this one has {len(data)}"
        )
    table: npt.NDArray[Any] = np.frombuffer(data, _BLOCK, blocks, _HEADER.size)
    at = _HEADER.size + table.nbytes
    weights = np.frombuffer(data, "<f4", total, at)
    columns = np.frombuffer(data, little_endian(dtype), total * rows, at + 4 * total)
    sizes = table["columns"].astype(np.int64)
    if int(sizes.sum()) != total:
        raise InvalidSubspace(f"the blocks have {sizes.sum()} columns, the header says {total}")
    return SubspaceArrays(
        m,
        constant,
        WEIGHTINGS[weighting],
        epsilon,
        delta,
        table["label"].astype(np.int64),
        sizes,
        weights.astype(np.float32),
        columns.reshape(total, rows).astype(np.float32),
    )
