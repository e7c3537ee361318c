"""The native format of signatures, and both formats by media type."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import InvalidSignature, SpaceMismatch, UnsupportedMediaType
from tests.sdk.wire.payloads import every, sealed, supports

SMALL = [
    every(3, 1000).signature(num_perm=4),
    Support.from_indices([1, 8], 8_000_000_000).signature(num_perm=3, seed=2**32 - 1),
    every(3, 1000).signature(num_perm=1, seed=0, scheme="affine64"),
]


@given(supports(), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_round_trip(support: Support, num_perm: int, seed: int) -> None:
    """Any signature survives the native format and JSON."""
    signature = support.signature(num_perm=num_perm, seed=seed)
    assert signature == wire.decode_signature(wire.encode_signature(signature))
    body = wire.dump_signature(signature, wire.JSON)
    assert signature == wire.load_signature(body, wire.JSON, support.num_parameters)


def test_methods_of_signature_speak_the_native_format() -> None:
    """``Signature.to_bytes`` and ``from_bytes`` are the native format."""
    for signature in SMALL:
        assert wire.encode_signature(signature) == signature.to_bytes()
        assert signature == Signature.from_bytes(signature.to_bytes())


@pytest.mark.parametrize("signature", SMALL, ids=repr)
def test_the_offsets_are_fixed(signature: Signature) -> None:
    """Header, values and checksum stand where the specification says."""
    size, code = {"affine32": (4, 1), "affine64": (8, 2)}[signature.scheme]
    data = signature.to_bytes()
    assert 32 + signature.num_perm * size + 4 == len(data)
    assert (b"MKSG", 1, code, 0) == struct.unpack_from("<4sBBH", data)
    assert (signature.num_perm, signature.seed) == struct.unpack_from("<II", data, 8)
    assert (signature.num_parameters, signature.support_size) == struct.unpack_from("<QQ", data, 16)
    first = int.from_bytes(data[32 : 32 + size], "little")
    assert int(signature.values[0]) == first


@pytest.mark.parametrize("signature", SMALL, ids=repr)
def test_every_flipped_bit_is_refused(signature: Signature) -> None:
    """No single flipped bit goes unnoticed."""
    data = signature.to_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidSignature):
            wire.decode_signature(damaged, num_parameters=signature.num_parameters)


@pytest.mark.parametrize("signature", SMALL, ids=repr)
def test_every_other_length_is_refused(signature: Signature) -> None:
    """A payload that ends early or goes on is refused, also where its checksum is made right."""
    data = signature.to_bytes()
    for wrong in [
        *(data[:size] for size in range(len(data) - 4)),
        data[:-1],
        data + b"\0",
        data * 2,
    ]:
        with pytest.raises(InvalidSignature):
            wire.decode_signature(wrong)
        with pytest.raises(InvalidSignature):
            wire.decode_signature(sealed(wrong))


def forge(**changes: object) -> bytes:
    """A sealed signature of four values with some fields of its header replaced."""
    fields = {"magic": b"MKSG", "version": 1, "scheme": 1, "flags": 0, "h": 4, "seed": 1}
    fields |= {"m": 1000, "k": 10} | changes
    return sealed(struct.pack("<4sBBHIIQQ", *fields.values()) + bytes(16))


def test_the_forged_signature_is_sound() -> None:
    """What the next test changes is a signature as it stands."""
    assert [0, 0, 0, 0] == wire.decode_signature(forge()).values.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": b"MKSP"}, "MKSP.*not.*MKSG"),
        ({"version": 2}, "version 2 .*byte 4"),
        ({"scheme": 0}, "scheme 0 .*byte 5"),
        ({"scheme": 3}, "scheme 3 .*byte 5.*2 is affine64"),
        ({"scheme": 2}, "make a payload of 68 bytes, this one has 52"),
        ({"flags": 1}, "flags"),
        ({"h": 0}, "1 to 4096, it is 0"),
        ({"h": 5}, "56 bytes, this one has 52"),
        ({"h": 2**32 - 1}, "1 to 4096, it is 4294967295"),
        ({"k": 0}, "M = 1000 and K = 0"),
        ({"k": 1001}, "1001"),
        ({"k": 2**64 - 1}, "18446744073709551615"),
        ({"m": 2**33}, "affine32"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], message: str) -> None:
    """A payload with a right checksum and a wrong field is refused, and the error names it."""
    with pytest.raises(InvalidSignature, match=message):
        wire.decode_signature(forge(**changes))


@pytest.mark.parametrize("m", [0, 2**63, 2**64 - 1])
def test_an_impossible_m_is_refused(m: int) -> None:
    """M outside 1 to 2^63 - 1 makes the payload invalid: its writer chose it, not the caller."""
    with pytest.raises(InvalidSignature, match="declare M = "):
        wire.decode_signature(forge(m=m))


def test_another_space_is_no_broken_payload() -> None:
    """A sound signature of another M is a SpaceMismatch that names both."""
    with pytest.raises(SpaceMismatch, match="1000 parameters, 1001 are expected"):
        wire.decode_signature(forge(), num_parameters=1001)


@pytest.mark.parametrize("media_type", wire.SUPPORT_TYPES)
def test_supports_by_media_type(media_type: str) -> None:
    """Each media type of a support reads what it writes, in any spelling of the type."""
    body = wire.dump_support(every(3), media_type)
    assert every(3) == wire.load_support(body, media_type.title() + " ; charset=utf-8", 30_000)


@pytest.mark.parametrize("media_type", wire.SIGNATURE_TYPES)
def test_signatures_by_media_type(media_type: str) -> None:
    """Each media type of a signature reads what it writes."""
    signature = every(3).signature(num_perm=8)
    body = wire.dump_signature(signature, media_type)
    assert signature == wire.load_signature(body, media_type + ";v=1", 30_000)


def test_either_is_told_apart() -> None:
    """If either is accepted, the media type decides which it is; in JSON, the fields do."""
    signature = every(3).signature(num_perm=8)
    for media_type in wire.SUPPORT_TYPES:
        body = wire.dump_support(every(3), media_type)
        assert every(3) == wire.load_either(body, media_type, 30_000)
    for media_type in wire.SIGNATURE_TYPES:
        body = wire.dump_signature(signature, media_type)
        assert signature == wire.load_either(body, media_type, 30_000)
    with pytest.raises(UnsupportedMediaType, match=r"of a support or a signature: .*signature$"):
        wire.load_either(b"", "text/plain", 9)


@pytest.mark.parametrize(
    "media_type", ["", "text/plain", "application/jsonp", "\ud800", "x" * 9999]
)
def test_other_media_types_name_the_ones_there_are(media_type: str) -> None:
    """An unknown media type is refused with the list of known ones, in both directions."""
    with pytest.raises(UnsupportedMediaType, match=r"use application/vnd.modelkin.support, .*json"):
        wire.load_support(b"", media_type, 9)
    with pytest.raises(UnsupportedMediaType, match=r"application/vnd\.roaring"):
        wire.dump_support(every(3), media_type)
    with pytest.raises(UnsupportedMediaType, match=r"vnd.modelkin.signature, .*json$"):
        wire.load_signature(b"", media_type, 9)
    with pytest.raises(UnsupportedMediaType, match=r"use application/vnd\.modelkin\.signature"):
        wire.dump_signature(SMALL[0], media_type)
