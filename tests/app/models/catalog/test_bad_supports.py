"""Invalid supports and signatures: refused with the reason, and nothing is stored."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from modelkin import Support
from tests.sdk.wire.payloads import compressed, forge, sealed
from tests.support.fixtures import on_one_database
from tests.support.http_space import (
    JSON,
    RAW,
    ROARING,
    SIGNATURE,
    SUPPORT,
    Space,
    assert_problem,
)

M = 10_000
GOOD = Support.from_indices(range(3, M, 11), M)
NATIVE = GOOD.to_bytes()
BITMAP = GOOD.to_roaring()


def raw(*indices: int) -> bytes:
    return np.array(indices, "<u4").tobytes()


def of(indices: str) -> bytes:
    return b'{"indices":' + indices.encode() + b"}"


def flipped(data: bytes, at: int) -> bytes:
    """The data with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


SUPPORTS = {
    "raw unsorted": (RAW, raw(5, 3, 9), "not sorted"),
    "raw repeated": (RAW, raw(3, 3), "repeated"),
    "raw out of range": (RAW, raw(3, M), "out of range"),
    "raw of half an index": (RAW, raw(3, 4)[:-1], "7 bytes"),
    "raw empty": (RAW, b"", "at least one"),
    "raw above M": (RAW, np.arange(M + 1, dtype="<u4").tobytes(), "out of range"),
    "json unsorted": (JSON, of("[5,3]"), "not sorted"),
    "json repeated": (JSON, of("[5,5]"), "repeated"),
    "json negative": (JSON, of("[-1,5]"), "negative"),
    "json out of range": (JSON, of(f"[{M}]"), "out of range"),
    "json over 64 bits": (JSON, of(f"[{2**64}]"), "64 bits"),
    "json far below": (JSON, of(f"[{-(2**70)}]"), "64 bits"),
    "json of 5,000 digits": (JSON, of("[" + "9" * 5000 + "]"), "digits"),
    "json empty": (JSON, of("[]"), "at least one"),
    "json true": (JSON, of("[true]"), "integer"),
    "json float": (JSON, of("[1.0]"), "integer"),
    "json exponent": (JSON, of("[1e400]"), "integer"),
    "json text": (JSON, of('["1"]'), "integer"),
    "json null": (JSON, of("null"), "array"),
    "json nested": (JSON, of("[[1]]"), "integer"),
    "json no object": (JSON, b"[1,2]", "object"),
    "json no field": (JSON, b"{}", "indices"),
    "json another field": (JSON, b'{"indices":[1],"m":5}', "unknown"),
    "json twice": (JSON, b'{"indices":[1],"indices":[2]}', "twice"),
    "json NaN": (JSON, of("[NaN]"), "NaN"),
    "json infinity": (JSON, of("-Infinity"), "Infinity"),
    "json surrogate": (JSON, b'{"indices":["\\ud800"]}', "integer"),
    "json surrogate field": (JSON, b'{"indices":[1],"\\udfff":1}', "unknown"),
    "json NUL field": (JSON, b'{"indices":[1],"\\u0000":1}', "unknown"),
    "json not UTF-8": (JSON, b'{"indices":[1],"\xff":1}', "UTF-8"),
    "json UTF-16": (JSON, '{"indices":[1]}'.encode("utf-16"), "UTF-8"),
    "json cut off": (JSON, b'{"indices":[1,', "JSON"),
    "json and more": (JSON, b'{"indices":[1]} {}', "JSON"),
    "json nothing": (JSON, b"", "JSON"),
    "json 100,000 levels": (JSON, b"[" * 100_000 + b"]" * 100_000, "nested"),
    "json 100,000 objects": (JSON, b'{"i":' * 100_000 + b"1" + b"}" * 100_000, "nested"),
    "roaring empty": (ROARING, BitMap().serialize(), "empty"),
    "roaring nothing": (ROARING, b"", "Roaring"),
    "roaring truncated": (ROARING, BITMAP[:-1], "Roaring"),
    "roaring trailing": (ROARING, BITMAP + b"\0", "bytes"),
    "roaring out of range": (ROARING, BitMap([1, M]).serialize(), "out of range"),
    "roaring another format": (ROARING, NATIVE, "Roaring"),
    "native nothing": (SUPPORT, b"", "ends"),
    "native header only": (SUPPORT, NATIVE[:56], "ends"),
    "native truncated": (SUPPORT, NATIVE[:-1], "CRC"),
    "native trailing": (SUPPORT, NATIVE + b"\0", "CRC"),
    "native another magic": (SUPPORT, forge(GOOD, magic=b"PKZP"), "MKSP"),
    "native a newer version": (SUPPORT, forge(GOOD, version=2), "version"),
    "native another encoding": (SUPPORT, forge(GOOD, encoding=9), "encoding"),
    "native flags": (SUPPORT, forge(GOOD, flags=2), "flags"),
    "native gaps": (SUPPORT, forge(GOOD, flags=1), "gaps"),
    "native K above M": (SUPPORT, forge(GOOD, k=M + 1), "K <= M"),
    "native no K": (SUPPORT, forge(GOOD, k=0), "K = 0"),
    "native another K": (SUPPORT, forge(GOOD, k=GOOD.k + 1), ""),
    "native a wrong digest": (SUPPORT, forge(GOOD, digest=b"\1" * 32), "digest"),
    "native another stream": (SUPPORT, forge(GOOD, stream=b"\xff" * GOOD.k), ""),
    "native no frame": (SUPPORT, forge(GOOD, frame=b"none at all"), "zstd"),
    "native two frames": (SUPPORT, forge(GOOD, frame=compressed(b"\0" * GOOD.k) * 2), "zstd"),
    "native raw": (SUPPORT, raw(1, 2, 3), "ends"),
}


@on_one_database
@pytest.mark.parametrize("case", SUPPORTS)
def test_a_broken_support_is_refused(untouched: Space, case: str) -> None:
    """PUT answers 422 ``invalid_support`` and what is wrong, for a new and for a stored name."""
    media_type, body, said = SUPPORTS[case]
    for name in ("new", "stored"):
        answer = untouched.put_bytes(name, body, media_type)
        assert said in assert_problem(answer, 422, "invalid_support")


@on_one_database
@pytest.mark.parametrize("case", SUPPORTS)
def test_a_broken_query_is_refused(untouched: Space, case: str) -> None:
    """The same payload as a query for neighbours and donors is the same error."""
    media_type, body, said = SUPPORTS[case]
    for what in ("neighbors", "donors"):
        headers = {"Content-Type": media_type}
        answer = untouched.http.post(untouched.path(what), content=body, headers=headers)
        assert said in assert_problem(answer, 422, "invalid_support")


@on_one_database
def test_wrong_indices_are_named_as_a_field(untouched: Space) -> None:
    """``errors`` names the field that holds the wrong value."""
    answer = untouched.put_bytes("new", of("[5,3]"), JSON)
    assert_problem(answer, 422, "invalid_support", "indices")


@on_one_database
def test_every_flipped_bit_of_a_native_payload_is_refused(untouched: Space) -> None:
    """Wherever a bit flips, checksum or header notice it."""
    for at in range(0, len(NATIVE), 13):
        answer = untouched.put_bytes("new", flipped(NATIVE, at), SUPPORT)
        assert_problem(answer, 422, "invalid_support")


@on_one_database
def test_every_truncation_is_refused(untouched: Space) -> None:
    """A truncated payload of any length is not a support."""
    for data, media_type in ((NATIVE, SUPPORT), (BITMAP, ROARING)):
        for length in range(0, len(data), 97):
            answer = untouched.put_bytes("new", data[:length], media_type)
            assert_problem(answer, 422, "invalid_support")


@pytest.mark.slow
@on_one_database
def test_a_damaged_bitmap_is_never_a_server_error(space: Space) -> None:
    """Roaring has no checksum: a flipped bit is refused or is another support, never a 5xx."""
    for at in range(0, len(BITMAP), 29):
        answer = space.put_bytes("new", flipped(BITMAP, at), ROARING)
        if answer.status_code >= 300:
            assert_problem(answer, 422, "invalid_support")


VALUES = GOOD.signature().values.tolist()


def signature(**changes: Any) -> bytes:
    """A good signature as JSON, with fields replaced; ``None`` leaves one out."""
    fields = {
        "scheme": "affine32",
        "num_perm": 256,
        "seed": 1,
        "support_size": GOOD.k,
        "values": VALUES,
        **changes,
    }
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()


BINARY = GOOD.signature().to_bytes()
SIGNATURES = {
    "fewer values": (JSON, signature(values=VALUES[:-1]), "num_perm"),
    "a value over 32 bits": (JSON, signature(values=[*VALUES[:-1], 2**32]), ""),
    "a negative value": (JSON, signature(values=[*VALUES[:-1], -1]), ""),
    "a float": (JSON, signature(values=[*VALUES[:-1], 1.0]), "integer"),
    "NaN": (JSON, signature(values=[*VALUES[:-1], math.nan]), "NaN"),
    "a bool": (JSON, signature(num_perm=True), "num_perm"),
    "a text": (JSON, signature(seed="1"), "seed"),
    "an unknown scheme": (JSON, signature(scheme="md5"), "scheme"),
    "a scheme with NUL": (JSON, signature(scheme="affine32\0"), "scheme"),
    "a scheme of a surrogate": (JSON, signature(scheme="\ud800"), "scheme"),
    "a scheme for 64 bits": (JSON, signature(scheme="affine64"), None),
    "no scheme": (JSON, signature(scheme=None), "scheme"),
    "an unknown field": (JSON, signature(m=M), "unknown"),
    "a negative seed": (JSON, signature(seed=-1), "seed"),
    "a seed over 32 bits": (JSON, signature(seed=2**32), "seed"),
    "no indices": (JSON, signature(support_size=0), "support_size"),
    "K above M": (JSON, signature(support_size=M + 1), "support_size"),
    "no values": (JSON, signature(num_perm=0, values=[]), ""),
    "too many values": (JSON, signature(num_perm=5000, values=[1] * 5000), ""),
    "no object": (JSON, b"[]", "object"),
    "100,000 levels": (JSON, b"[" * 100_000, "nested"),
    "truncated": (SIGNATURE, BINARY[:-1], ""),
    "trailing": (SIGNATURE, BINARY + b"\0", ""),
    "flipped": (SIGNATURE, flipped(BINARY, 40), "CRC"),
    "nothing": (SIGNATURE, b"", "ends"),
    "a support": (SIGNATURE, NATIVE, "MKSG"),
    "h of 4 billion": (
        SIGNATURE,
        sealed(struct.pack("<4sBBHIIQQ", b"MKSG", 1, 1, 0, 2**32 - 1, 1, M, 9) + bytes(64)),
        "h (bytes",
    ),
    "an unknown code": (
        SIGNATURE,
        sealed(struct.pack("<4sBBHIIQQ", b"MKSG", 1, 7, 0, 256, 1, M, 9) + bytes(1024)),
        "scheme",
    ),
}


@on_one_database
@pytest.mark.parametrize("case", SIGNATURES)
def test_a_broken_signature_is_refused(untouched: Space, case: str) -> None:
    """PUT answers 422 ``invalid_signature`` (409 for another scheme), and says what is wrong."""
    media_type, body, said = SIGNATURES[case]
    url = untouched.path("signatures", "new")
    answer = untouched.http.put(url, content=body, headers={"Content-Type": media_type})
    if said is None:
        assert_problem(answer, 409, "space_mismatch")
    else:
        assert said in assert_problem(answer, 422, "invalid_signature")
