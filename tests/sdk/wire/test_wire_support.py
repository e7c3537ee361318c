"""The native format of supports: what goes in comes out, and nothing else comes out."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport, PayloadTooLarge, SpaceMismatch
from tests.sdk.wire.payloads import (
    SMALL,
    SMALL_ORDERED,
    every,
    forge,
    in_order,
    sealed,
    supports,
)


@pytest.mark.slow
@given(supports())
@settings(max_examples=300)
def test_round_trip(support: Support) -> None:
    """Any support survives encoding and decoding, its dtype and digest included."""
    decoded = wire.decode_support(wire.encode_support(support))
    assert support == decoded
    assert support.indices.dtype == decoded.indices.dtype
    assert support.digest == decoded.digest


@pytest.mark.parametrize("density", [1e-4, 0.004, 0.03, 0.1, 0.5, 1.0])
def test_round_trip_at_scale(density: float) -> None:
    """Supports over several zstd blocks survive at every density."""
    m = 400_000
    indices = np.flatnonzero(np.random.default_rng(0).random(m) < density)
    support = Support.from_indices(indices, m)
    assert support == wire.decode_support(wire.encode_support(support), num_parameters=m)


def test_methods_of_support_speak_the_native_format() -> None:
    """``Support.to_bytes`` and ``from_bytes`` are the native format."""
    support = every(3)
    assert wire.encode_support(support) == support.to_bytes()
    assert support == Support.from_bytes(support.to_bytes())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kind: type) -> None:
    """bytes, bytearray and memoryview decode alike."""
    assert every(3) == wire.decode_support(kind(every(3).to_bytes()))


def test_decoded_indices_are_read_only() -> None:
    """A decoded support is as immutable as any other."""
    assert not wire.decode_support(every(3).to_bytes()).indices.flags.writeable


BOTH = [*SMALL, *SMALL_ORDERED]


@pytest.mark.parametrize("support", BOTH, ids=repr)
def test_every_flipped_bit_is_refused(support: Support) -> None:
    """No single flipped bit goes unnoticed, wherever it is: header, frame or checksum."""
    data = support.to_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidSupport):
            wire.decode_support(damaged, num_parameters=support.num_parameters, max_k=1000)


@pytest.mark.parametrize("support", BOTH, ids=repr)
def test_every_truncation_is_refused(support: Support) -> None:
    """A payload that ends early is refused at whichever byte it ends."""
    data = support.to_bytes()
    for size in range(len(data)):
        with pytest.raises(InvalidSupport):
            wire.decode_support(data[:size])


@pytest.mark.parametrize("tail", [b"\0", b"x", b"MKSP", b"\x28\xb5\x2f\xfd", bytes(100)])
@pytest.mark.parametrize("support", [every(3), in_order(every(3))], ids=repr)
def test_trailing_bytes_are_refused(support: Support, tail: bytes) -> None:
    """Bytes behind the payload make it invalid."""
    with pytest.raises(InvalidSupport, match="followed by other bytes"):
        wire.decode_support(support.to_bytes() + tail)


@pytest.mark.slow
@given(st.sampled_from(BOTH), st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=400)
def test_damage_behind_a_right_checksum_is_no_other_support(
    support: Support, position: int, difference: int
) -> None:
    """Where a writer seals damage in, decoding gives that very support or an error of ours."""
    body = bytearray(support.to_bytes()[:-4])
    body[position % len(body)] ^= difference
    try:
        decoded = wire.decode_support(sealed(bytes(body)), max_k=10**6)
    except (InvalidSupport, PayloadTooLarge):
        return
    assert support == decoded


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": b"MKSG"}, "MKSG.*not.*MKSP"),
        ({"version": 2}, "version 2 .*byte 4"),
        ({"encoding": 3}, "encoding 3 .*byte 5"),
        ({"flags": 256}, "flags .*0x0100"),
        ({"k": 0}, "M = 30000 and K = 0"),
        ({"k": 30_001}, "M = 30000 and K = 30001"),
        ({"m": 2**63}, "M = 9223372036854775808"),
        ({"digest": bytes(32)}, "does not match its digest: .*sha256:0000"),
        ({"k": 9999}, "holds 10000 indices, not the 9999"),
        ({"m": 29_997}, "not below 29997"),
        ({"stream": b"\0" * 9999 + b"\xff"}, "escape"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], message: str) -> None:
    """A payload with a right checksum and a wrong field is refused, and the error names it."""
    with pytest.raises(InvalidSupport, match=message):
        wire.decode_support(forge(every(3), **changes))


def test_another_space_is_no_broken_payload() -> None:
    """A sound support of another M is a SpaceMismatch that names both."""
    with pytest.raises(SpaceMismatch, match="30000 parameters, 30001 are expected"):
        wire.decode_support(every(3).to_bytes(), num_parameters=30_001)


def test_max_k_is_the_most_that_passes() -> None:
    """K equal to ``max_k`` decodes, one more is too large."""
    data = every(3).to_bytes()
    assert 10_000 == wire.decode_support(data, max_k=10_000).k
    with pytest.raises(PayloadTooLarge, match="10000 indices, at most 9999"):
        wire.decode_support(data, max_k=9999)


def test_the_payload_is_near_the_information_bound() -> None:
    """At 9.6% density a support is within 1.5% of log2 C(M, K) bits and 6.5 times below int32."""
    m = 1_000_000
    support = Support.from_indices(np.flatnonzero(np.random.default_rng(0).random(m) < 0.096), m)
    p = support.density
    bound = -(np.log2(p) + (1 - p) / p * np.log2(1 - p))
    bits = 8 * len(support.to_bytes()) / support.k
    assert bits <= 1.015 * bound
    assert bits <= 32 / 6.5


def test_encoding_is_one_frame_of_level_one() -> None:
    """The frame declares the stream's size, carries a checksum and needs no dictionary."""
    frame = zstandard.get_frame_parameters(every(3).to_bytes()[56:-4])
    assert 10_000 == frame.content_size
    assert frame.has_checksum
    assert 0 == frame.dict_id
