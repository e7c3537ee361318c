"""Encoding 2 of the native format, ordered supports: what goes in comes out, and nothing else."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.codecs import gaps
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSupport, PayloadTooLarge, SpaceMismatch
from tests.sdk.wire.payloads import (
    SMALL_ORDERED,
    compressed,
    every,
    forge,
    in_order,
    ordered_supports,
    scattered,
    supports,
)

ORDERED = in_order(every(3))
STREAM = b"\0" + b"\2" * 9_999
assert ORDERED.octaves is not None
PLANE = ORDERED.octaves.tobytes()


@pytest.mark.slow
@given(ordered_supports())
@settings(max_examples=300)
def test_round_trip(support: Support) -> None:
    """Any ordered support survives both formats that have octaves, its digest included."""
    m = support.num_parameters
    for media_type in (wire.SUPPORT, wire.JSON):
        decoded = wire.load_support(wire.dump_support(support, media_type), media_type, m)
        assert support == decoded
        assert support.digest == decoded.digest
        assert support.octaves is not None
        assert decoded.octaves is not None
        assert np.uint8 == decoded.octaves.dtype
        assert not decoded.octaves.flags.writeable


@pytest.mark.parametrize("density", [1e-4, 0.004, 0.1, 1.0])
def test_round_trip_at_scale(density: float) -> None:
    """Supports over several zstd blocks survive at every density."""
    m = 400_000
    indices = np.flatnonzero(np.random.default_rng(0).random(m) < density)
    support = in_order(Support.from_indices(indices, m))
    assert support == wire.decode_support(wire.encode_support(support), num_parameters=m)
    assert support == wire.load_support(wire.dump_support(support, wire.JSON), wire.JSON, m)


@pytest.mark.slow
@given(supports(), st.integers(0, 99))
def test_a_plain_support_is_written_as_before(support: Support, seed: int) -> None:
    """The octaves follow the very gap stream of the plain support, and nothing else does."""
    plain, ordered = support.to_bytes(), in_order(support, seed).to_bytes()
    assert (1, 2) == (plain[5], ordered[5])
    assert plain[:5] + plain[6:24] == ordered[:5] + ordered[6:24]
    stream, content = (zstandard.decompress(data[56:-4]) for data in (plain, ordered))
    octaves = in_order(support, seed).octaves
    assert octaves is not None
    assert stream + octaves.tobytes() == content


@given(ordered_supports())
def test_no_plain_support_has_the_digest_of_an_ordered_one(support: Support) -> None:
    """A gap stream with octaves behind it is never the gap stream of another support."""
    m, k = support.num_parameters, support.k
    assert support.octaves is not None
    content = np.concatenate([gaps.encode(support.indices, m), support.octaves])
    with pytest.raises(InvalidSupport):
        gaps.decode(content, m, k)


@pytest.mark.parametrize(("m", "k"), [(1_000_000, 50_000), (10_000_000, 1_000_000)])
def test_octaves_take_less_than_three_bits(m: int, k: int) -> None:
    """Half of the indices have one octave: an entropy coder takes two bits, zstd somewhat more."""
    support = in_order(scattered(m, k))
    more = len(support.to_bytes()) - len(support.unordered().to_bytes())
    assert 2 < 8 * more / support.k < 3


@given(
    st.sampled_from(SMALL_ORDERED),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3),
)
@settings(max_examples=300)
def test_a_plane_that_no_ranks_have_is_refused(
    support: Support, changes: list[tuple[int, int]]
) -> None:
    """Changed octaves under a right digest are refused, unless ranks have them too."""
    assert support.octaves is not None
    plane = support.octaves.copy()
    for position, octave in changes:
        plane[position % support.k] = octave
    data = forge(support, plane=plane.tobytes())
    if sorted(plane.tolist()) != sorted(support.octaves.tolist()):
        with pytest.raises(InvalidSupport, match=r"octaves\[\d+\] = |indices have octave"):
            wire.decode_support(data)
        return
    m = support.num_parameters
    assert Support(support.indices, m, octaves=plane) == wire.decode_support(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plane": b""}, "declares 10000 bytes, the header before it allows 20000 to 20117"),
        ({"plane": PLANE + bytes(118)}, "declares 20118 bytes, .* allows 20000 to 20117"),
        ({"plane": PLANE[:-1]}, "declares 19999 bytes, the header before it allows 20000"),
        ({"plane": PLANE + b"\0"}, "gap stream holds 10001 indices, not the 10000"),
        ({"plane": PLANE + b"\xff"}, "gap stream holds 10001 indices, not the 10000"),
        ({"plane": PLANE, "stream": STREAM + b"\2"}, "holds 10001 indices, not the 10000"),
        ({"plane": bytes(10_000)}, "10000 indices have octave 0, and 1 of 10000 ranks do"),
        ({"plane": PLANE[:-1] + b"\x0e"}, r"octaves\[9999\] = 14 .* 10000 indices .* 0 to 13"),
        ({"plane": b"\xff" + PLANE[1:]}, r"octaves\[0\] = 255 is out of range"),
        ({"encoding": 1}, "declares 20000 bytes, the header before it allows 10000 to 10117"),
        ({"encoding": 3}, "encoding 3 .*byte 5.*version 1 has 1 and 2"),
        ({"digest": bytes(32)}, "does not match its digest: .*sha256:0000"),
        ({"k": 9999}, "the gap stream holds 10001 indices, not the 9999"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], message: str) -> None:
    """A payload with a right checksum and a wrong field is refused, and the error names it."""
    with pytest.raises(InvalidSupport, match=message):
        wire.decode_support(forge(ORDERED, **changes))


def test_the_digest_covers_the_octaves() -> None:
    """Octaves of other ranks under the digest of the first are refused."""
    other = in_order(every(3), seed=1)
    digest = bytes.fromhex(ORDERED.digest.removeprefix("sha256:"))
    with pytest.raises(InvalidSupport, match="does not match its digest"):
        wire.decode_support(forge(other, digest=digest))


def test_a_plain_payload_is_not_read_as_ordered() -> None:
    """The encoding of another support behind a right checksum is refused, in both directions."""
    for support, encoding in ((every(3), 2), (ORDERED, 1)):
        with pytest.raises(InvalidSupport, match="zstd frame declares"):
            wire.decode_support(forge(support, encoding=encoding))


def test_limits_are_those_of_plain_supports() -> None:
    """M and ``max_k`` are compared before anything is decompressed."""
    data = ORDERED.to_bytes()
    assert 10_000 == wire.decode_support(data, max_k=10_000).k
    with pytest.raises(PayloadTooLarge, match="10000 indices, at most 9999"):
        wire.decode_support(data, max_k=9999)
    with pytest.raises(SpaceMismatch, match="30000 parameters, 30001 are expected"):
        wire.decode_support(data, num_parameters=30_001)
    assert 10_000 == wire.count_indices(data, wire.SUPPORT, 30_000)


@pytest.mark.slow
def test_a_gigabyte_of_octaves_is_not_inflated() -> None:
    """A frame that declares far more than M and K allow is refused before it is decompressed."""
    bomb = forge(ORDERED, frame=compressed(bytes(1 << 30)))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSupport, match="zstd frame declares"):
            wire.decode_support(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_decoding_takes_memory_for_content_indices_and_octaves_only() -> None:
    """K indices take the stream, two planes of octaves, the indices and little else."""
    data = in_order(every(3, 9_000_000)).to_bytes()
    wire.decode_support(data)
    tracemalloc.start()
    decoded = wire.decode_support(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * decoded.k


@pytest.mark.parametrize("media_type", [wire.ROARING, wire.RAW])
def test_formats_without_octaves_are_refused(media_type: str) -> None:
    """What would lose the order is not written, and the error names what keeps it."""
    message = r"the support is ordered, and .* no place for octaves: send the native format"
    with pytest.raises(InvalidParameter, match=message):
        wire.dump_support(ORDERED, media_type)
    plain = ORDERED.unordered()
    assert plain == wire.load_support(wire.dump_support(plain, media_type), media_type, 30_000)


def test_the_shape_in_json() -> None:
    """Octaves are a second array of as many numbers; both writers of JSON agree."""
    support = Support([2, 5, 7], 10, octaves=[1, 0, 1])
    assert {"indices": [2, 5, 7], "octaves": [1, 0, 1]} == wire.support_to_json(support)
    assert b'{"indices":[2,5,7],"octaves":[1,0,1]}' == wire.dump_support(support, wire.JSON)


@pytest.mark.parametrize(
    ("octaves", "message"),
    [
        (b"null", "octaves must be an array of integers, not None"),
        (b'"101"', "octaves must be an array of integers"),
        (b"[]", "each of the 3 indices has one octave"),
        (b"[1, 0]", "each of the 3 indices has one octave"),
        (b"[1, 0, 1, 0]", "each of the 3 indices has one octave"),
        (b"[1, 0, 2]", r"octaves\[2\] = 2 is out of range"),
        (b"[1, 0, -1]", r"octaves\[2\] = -1 is out of range"),
        (b"[1, 0, 18446744073709551615]", r"octaves\[2\] = 18446744073709551615|does not fit"),
        (b"[1, 0, 18446744073709551616]", r"octaves\[2\] must be an integer of at most 64 bits"),
        (b"[1, 0, 1.0]", r"octaves\[2\] must be an integer"),
        (b"[1, 0, true]", r"octaves\[2\] must be an integer"),
        (b"[1, 1, 1]", "0 indices have octave 0, and 1 of 3 ranks do"),
        (b'[1, 0, 1], "k": 3', "'k' is unknown, expected indices, octaves"),
    ],
)
def test_octaves_in_json_are_taken_literally(octaves: bytes, message: str) -> None:
    """JSON octaves are integers, one for each index, and those of ranks."""
    body = b'{"indices": [2, 5, 7], "octaves": ' + octaves + b"}"
    with pytest.raises(InvalidSupport, match=message):
        wire.load_support(body, wire.JSON, 10)


def test_octaves_alone_are_no_support() -> None:
    """JSON octaves without indices are refused, and ``max_k`` bounds both arrays."""
    with pytest.raises(InvalidSupport, match="'indices' is missing"):
        wire.load_support(b'{"octaves": [0]}', wire.JSON, 10)
    with pytest.raises(PayloadTooLarge):
        wire.load_support(b'{"indices": [1, 2], "octaves": [0, 1]}', wire.JSON, 10, max_k=1)


def test_a_header_of_an_ordered_giant_is_refused_unread() -> None:
    """A header with a billion indices is refused before anything behind it is read."""
    giant = forge(ORDERED, m=2**40, k=10**9, frame=b"")
    assert 10**9 == struct.unpack_from("<Q", giant, 16)[0]
    with pytest.raises(PayloadTooLarge):
        wire.decode_support(giant, max_k=10**6)
