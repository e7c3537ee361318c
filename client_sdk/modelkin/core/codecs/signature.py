"""The native format of a signature, ``application/vnd.modelkin.signature``.

Owns the header, the order of the bytes and the checksum. ``Signature`` decides which values make a
signature.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from modelkin.core.codecs.checks import (
    CRC_SIZE,
    VERSION,
    Payload,
    check_crc,
    check_prefix,
    check_space,
    little_endian,
    with_crc,
)
from modelkin.core.indices import MAX_PARAMETERS
from modelkin.errors import InvalidSignature

__all__ = ["SignatureHeader", "decode", "encode"]

_HEADER = struct.Struct("<4sBBHIIQQ")
_MAGIC = b"MKSG"
_CODES = {"affine32": 1, "affine64": 2}
_SCHEMES = {code: scheme for scheme, code in _CODES.items()}
_DTYPES: dict[str, np.dtype[Any]] = {"affine32": np.dtype("u4"), "affine64": np.dtype("u8")}


class SignatureHeader(NamedTuple):
    """The header's fields: scheme, h, seed, M and K."""

    scheme: str
    num_perm: int
    seed: int
    num_parameters: int
    support_size: int


def encode(header: SignatureHeader, values: npt.NDArray[Any]) -> bytes:
    """Encode h values in the scheme's dtype: 32 bytes of header, the values, and a CRC-32."""
    packed = _HEADER.pack(
        _MAGIC,
        VERSION,
        _CODES[header.scheme],
        0,
        header.num_perm,
        header.seed,
        header.num_parameters,
        header.support_size,
    )
    return with_crc(packed + values.astype(little_endian(values.dtype), copy=False).tobytes())


def decode(
    data: Payload, *, max_num_perm: int, num_parameters: int | None = None
) -> tuple[SignatureHeader, npt.NDArray[Any]]:
    """Decode a payload: its header, and h values in the scheme's dtype.

    Args:
        data: the whole payload.
        max_num_perm: the largest h to accept.
        num_parameters: the M it has to have; None takes the payload's own.

    Raises:
        InvalidSignature: not this format, another version, truncated, damaged, or followed by
            other bytes.
        SpaceMismatch: the payload has another M.
    """
    header = _read_header(data, max_num_perm)
    dtype = _DTYPES[header.scheme]
    size = _HEADER.size + header.num_perm * dtype.itemsize + CRC_SIZE
    if len(data) != size:
        raise InvalidSignature(
            f"{header.num_perm} values of {header.scheme} make a payload of {size} bytes, this one "
            f"has {len(data)}"
        )
    check_space(header.num_parameters, num_parameters, "signature")
    values = np.frombuffer(data, little_endian(dtype), count=header.num_perm, offset=_HEADER.size)
    return header, values.astype(dtype)


def _read_header(data: Payload, max_num_perm: int) -> SignatureHeader:
    if len(data) < _HEADER.size + CRC_SIZE:
        raise InvalidSignature(
            f"the payload ends after {len(data)} bytes, header and checksum alone take "
            f"{_HEADER.size + CRC_SIZE}"
        )
    magic, version, code, flags, num_perm, seed, m, k = _HEADER.unpack_from(data)
    check_prefix(magic, _MAGIC, version, InvalidSignature)
    check_crc(data, InvalidSignature)
    if code not in _SCHEMES:
        known = ", ".join(f"{code} is {scheme}" for code, scheme in _SCHEMES.items())
        raise InvalidSignature(f"scheme {code} (byte 5) is unknown: {known}")
    if flags:
        raise InvalidSignature(f"flags (bytes 6-7) must be zero in version 1, not {flags:#06x}")
    if not 1 <= num_perm <= max_num_perm:
        raise InvalidSignature(f"h (bytes 8-11) must be 1 to {max_num_perm}, it is {num_perm}")
    if not 1 <= k <= m <= MAX_PARAMETERS:
        raise InvalidSignature(
            f"bytes 16-31 declare M = {m} and K = {k}, not 1 <= K <= M <= 2^63 - 1"
        )
    return SignatureHeader(_SCHEMES[code], num_perm, seed, m, k)
