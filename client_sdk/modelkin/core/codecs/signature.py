"""The native format of a signature, ``application/vnd.modelkin.signature``.

Owns the header, the order of the bytes and the checksum; which values make a signature is
``Signature``'s to judge.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

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
from modelkin.core.sketching.signature import MAX_NUM_PERM, Signature, value_dtype
from modelkin.errors import InvalidSignature

__all__ = ["decode_signature", "encode_signature"]

_HEADER = struct.Struct("<4sBBHIIQQ")
_MAGIC = b"MKSG"
_CODES = {"affine32": 1, "affine64": 2, "fss32": 3}
_SCHEMES = {code: scheme for scheme, code in _CODES.items()}


def encode_signature(signature: Signature) -> bytes:
    """The native format: 32 bytes of header, the h values, and a CRC-32 of all of it."""
    header = _HEADER.pack(
        _MAGIC,
        VERSION,
        _CODES[signature.scheme],
        0,
        signature.num_perm,
        signature.seed,
        signature.num_parameters,
        signature.support_size,
    )
    values = signature.values
    body = header + values.astype(little_endian(values.dtype), copy=False).tobytes()
    return with_crc(body)


def decode_signature(data: Payload, *, num_parameters: int | None = None) -> Signature:
    """A signature from the native format.

    Args:
        data: the whole payload.
        num_parameters: the M it has to have; None takes the payload's own.

    Raises:
        InvalidSignature: not this format, another version, truncated, damaged, or followed by
            other bytes.
        SpaceMismatch: of another M.
    """
    header = _read_header(data)
    dtype = value_dtype(header.scheme)
    size = _HEADER.size + header.num_perm * dtype.itemsize + CRC_SIZE
    if len(data) != size:
        raise InvalidSignature(
            f"{header.num_perm} values of {header.scheme} make a payload of {size} bytes, this one "
            f"has {len(data)}"
        )
    check_space(header.num_parameters, num_parameters, "signature")
    values = np.frombuffer(data, little_endian(dtype), count=header.num_perm, offset=_HEADER.size)
    return Signature.from_values(
        values.astype(dtype),
        num_parameters=header.num_parameters,
        support_size=header.support_size,
        scheme=header.scheme,
        seed=header.seed,
    )


class _Header(NamedTuple):
    """What stands before the values."""

    scheme: str
    num_perm: int
    seed: int
    num_parameters: int
    support_size: int


def _read_header(data: Payload) -> _Header:
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
    if not 1 <= num_perm <= MAX_NUM_PERM:
        raise InvalidSignature(f"h (bytes 8-11) must be 1 to {MAX_NUM_PERM}, it is {num_perm}")
    if not 1 <= k <= m <= MAX_PARAMETERS:
        raise InvalidSignature(
            f"bytes 16-31 declare M = {m} and K = {k}, not 1 <= K <= M <= 2^63 - 1"
        )
    return _Header(_SCHEMES[code], num_perm, seed, m, k)
