"""The native format of coordinate sketches."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.sketching.sketch import Sketch
from modelkin.core.support import Support
from modelkin.errors import InvalidSignature, SpaceMismatch
from tests.sdk.wire.payloads import every, sealed, supports

SMALL = [every(3, 1000).sketch(64), every(3, 60).sketch(128, seed=2**32 - 1)]


@given(supports(), st.integers(1, 20), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_round_trip(support: Support, words: int, seed: int) -> None:
    """Any sketch survives the format, in a space smaller than its sample or larger."""
    sketch = support.sketch(64 * words, seed)
    assert sketch == wire.decode_sketch(
        wire.encode_sketch(sketch), num_parameters=support.num_parameters
    )


@pytest.mark.parametrize("sketch", SMALL, ids=repr)
def test_the_offsets_are_fixed(sketch: Sketch) -> None:
    """Header, bits and checksum stand where the specification says."""
    data = wire.encode_sketch(sketch)
    assert 32 + sketch.size // 8 + 4 == len(data)
    assert (b"MKSK", 1, 1, 0) == struct.unpack_from("<4sBBH", data)
    assert (sketch.size, sketch.seed) == struct.unpack_from("<II", data, 8)
    assert (sketch.num_parameters, sketch.support_size) == struct.unpack_from("<QQ", data, 16)
    assert int(sketch.words[0]) == int.from_bytes(data[32:40], "little")


@pytest.mark.parametrize("sketch", SMALL, ids=repr)
def test_every_flipped_bit_is_refused(sketch: Sketch) -> None:
    """No single flipped bit goes unnoticed."""
    data = wire.encode_sketch(sketch)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidSignature):
            wire.decode_sketch(damaged)


def test_every_other_length_is_refused() -> None:
    """A payload that ends early or goes on is refused, also where its checksum is made right."""
    data = wire.encode_sketch(SMALL[0])
    for wrong in [*(data[:size] for size in range(len(data) - 4)), data + b"\0", data * 2]:
        with pytest.raises(InvalidSignature):
            wire.decode_sketch(wrong)
        with pytest.raises(InvalidSignature):
            wire.decode_sketch(sealed(wrong))


def forge(**changes: Any) -> bytes:
    """A sealed sketch of 64 coordinates with some fields of its header replaced."""
    fields: dict[str, Any] = {
        "magic": b"MKSK",
        "version": 1,
        "sample": 1,
        "flags": 0,
        "size": 64,
        "seed": 1,
    }
    fields |= {"m": 1000, "k": 10} | changes
    bits = fields.pop("bits", bytes(8))
    return sealed(struct.pack("<4sBBHIIQQ", *fields.values()) + bits)


def test_the_forged_sketch_is_sound() -> None:
    """What the next test changes is a sketch as it stands."""
    assert [0] == wire.decode_sketch(forge()).words.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": b"MKSG"}, "MKSG.*not.*MKSK"),
        ({"version": 2}, "version 2 .*byte 4"),
        ({"sample": 2}, "sample 2 .*byte 5"),
        ({"flags": 1}, "flags 0x0001"),
        ({"size": 0}, "multiple of 64 .* it is 0"),
        ({"size": 63}, "it is 63"),
        ({"size": 2**31}, "it is 2147483648"),
        ({"size": 128}, "52 bytes, this one has 44"),
        ({"k": 0}, "M = 1000 and K = 0"),
        ({"k": 1001}, "1001"),
        ({"m": 2**63}, "declare M"),
        ({"bits": b"\xff" * 8}, "64 bits are set, which no support of 10 "),
        ({"m": 60, "k": 1, "bits": bytes(7) + b"\x80"}, "after the last of 60"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], message: str) -> None:
    """A payload with a right checksum and a wrong field is refused, and the error names it."""
    with pytest.raises(InvalidSignature, match=message):
        wire.decode_sketch(forge(**changes))


def test_another_space_is_no_broken_payload() -> None:
    """A sound sketch of another M is a SpaceMismatch that names both."""
    with pytest.raises(SpaceMismatch, match="1000 parameters, 1001 are expected"):
        wire.decode_sketch(forge(), num_parameters=1001)
