"""JSON bodies: taken literally, and whatever they hold gives a value or an error of ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.support import Support
from modelkin.errors import InvalidSignature, InvalidSupport, PayloadTooLarge
from tests.sdk.wire.payloads import LARGEST, supports

M = 1000


def signature_body(**changes: object) -> bytes:
    """The JSON of a sound signature with fields replaced; None takes one out."""
    fields = {
        "scheme": "affine32",
        "num_perm": 4,
        "seed": 1,
        "support_size": 10,
        "values": [5, 0, 4294967295, 77],
    } | changes
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


@pytest.mark.slow
@given(supports())
@settings(max_examples=150)
def test_round_trip(support: Support) -> None:
    """Any support survives JSON, given its M again, up to the last 63-bit index."""
    data = wire.dump_support(support, wire.JSON)
    assert support == wire.load_support(data, wire.JSON, support.num_parameters)


def test_the_shape_of_a_support() -> None:
    """A support is one array of numbers."""
    support = Support.from_indices([1, LARGEST - 1], LARGEST)
    assert {"indices": [1, 9223372036854775806]} == wire.support_to_json(support)
    assert b'{"indices":[1,9223372036854775806]}' == wire.dump_support(support, wire.JSON)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[1, 2]", "not an array"),
        (b"null", "not None"),
        (b"7", "not 7"),
        (b"{}", "'indices' is missing"),
        (b'{"indices": [1], "k": 1}', "'k' is unknown"),
        (b'{"indices": [1], "indices": [2]}', "'indices' stands twice"),
        (b'{"indices": 1}', "must be an array of integers, not 1"),
        (b'{"indices": "123"}', "must be an array of integers, not '123'"),
        (b'{"indices": {"0": 1}}', "not an object"),
        (b'{"indices": []}', "empty"),
        (
            b'{"indices": [0, true]}',
            r"indices\[1\] must be an integer of at most 64 bits, not True",
        ),
        (b'{"indices": [1.0]}', r"indices\[0\] must be an integer of at most 64 bits, not 1.0"),
        (b'{"indices": ["1"]}', r"indices\[0\] must be an integer of at most 64 bits, not '1'"),
        (b'{"indices": [null]}', "not None"),
        (
            b'{"indices": [[1]]}',
            r"indices\[0\] must be an integer of at most 64 bits, not an array",
        ),
        (b'{"indices": [NaN]}', "NaN is not JSON"),
        (b'{"indices": [-Infinity]}', "-Infinity is not JSON"),
        (b'{"indices": [1e400]}', "not inf"),
        (b'{"indices": [-1]}', "-1"),
        (b'{"indices": [1, 1]}', "repeated"),
        (b'{"indices": [2, 1]}', "not sorted"),
        (b'{"indices": [1000]}', "1000"),
        (b'{"indices": [18446744073709551616]}', "18446744073709551616"),
        (b'{"indices": [' + b"9" * 5000 + b"]}", "not valid JSON"),
        (b'{"indices": [1]} x', "not valid JSON"),
        (b'\xef\xbb\xbf{"indices": [1]}', "not valid JSON"),
        ('{"indices": [1]}'.encode("utf-16"), "not UTF-8"),
        (b'{"indices": ["\xff"]}', "not UTF-8"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"indices":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"indices": ["\\ud800"]}', r"not '\\ud800'"),
        (b'{"\\ud800": 1, "indices": [1]}', r"'\\ud800' is unknown"),
    ],
)
def test_what_is_no_support_is_refused(body: bytes, message: str) -> None:
    """A body that is not a support is refused with what and where, in an encodable error."""
    with pytest.raises(InvalidSupport, match=message) as caught:
        wire.load_support(body, wire.JSON, M)
    str(caught.value).encode()


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode()))
@settings(max_examples=200)
def test_any_bytes_are_refused_politely(body: bytes) -> None:
    """No bytes whatever raise anything but an error of ours."""
    with pytest.raises(InvalidSupport):
        wire.load_support(body, wire.JSON, M)
    with pytest.raises(InvalidSignature):
        wire.load_signature(body, wire.JSON, M)


def test_max_k_bounds_json_too() -> None:
    """More indices than ``max_k`` are too many in JSON as well."""
    with pytest.raises(PayloadTooLarge, match="3 indices, at most 2"):
        wire.load_support(b'{"indices": [1, 2, 3]}', wire.JSON, M, max_k=2)


def test_errors_never_quote_at_length() -> None:
    """A megabyte of a wrong value is not sent back."""
    body = json.dumps({"indices": ["x" * 1_000_000]}).encode()
    with pytest.raises(InvalidSupport) as caught:
        wire.load_support(body, wire.JSON, M)
    assert len(str(caught.value)) < 200


def test_the_sound_signature_is_sound() -> None:
    """The body that the tests below change is a signature as it stands."""
    signature = wire.load_signature(signature_body(), wire.JSON, M)
    assert [5, 0, 4294967295, 77] == signature.values.tolist()
    assert ("affine32", 4, 1, M, 10) == (
        signature.scheme,
        signature.num_perm,
        signature.seed,
        signature.num_parameters,
        signature.support_size,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": None}, "'scheme' is missing"),
        ({"values": None}, "'values' is missing"),
        ({"num_parameters": 5}, "'num_parameters' is unknown"),
        ({"scheme": "legacy"}, r"datasketch 2\.x"),
        ({"scheme": "fss"}, "affine32.*not 'fss'"),
        ({"scheme": "x" * 999}, "must be a name"),
        ({"scheme": 1}, "must be a name, not 1"),
        ({"scheme": []}, "not an array"),
        ({"scheme": "\ud800"}, r"not '\\ud800'"),
        ({"num_perm": 5}, "num_perm is 5, but there are 4 values"),
        ({"num_perm": 4.0}, "num_perm must be an integer of at most 64 bits, not 4.0"),
        (
            {"num_perm": True, "values": [1]},
            "num_perm must be an integer of at most 64 bits, not True",
        ),
        ({"num_perm": 10**100}, "an integer of over 40 digits"),
        ({"num_perm": 0, "values": []}, "0"),
        ({"seed": "1"}, "seed must be an integer of at most 64 bits, not '1'"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"support_size": 0}, "support_size"),
        ({"support_size": 1001}, "1001"),
        ({"support_size": 10**30}, "support_size"),
        ({"values": [1, 2, 3, 2**32]}, "4294967296"),
        ({"values": [1, 2, 3, -1]}, "-1"),
        ({"values": [1, 2, 3, 10**30]}, "values"),
        ({"values": [1, 2, 3, 4.0]}, r"values\[3\] must be an integer of at most 64 bits, not 4.0"),
        (
            {"values": [1, 2, True, 4]},
            r"values\[2\] must be an integer of at most 64 bits, not True",
        ),
        ({"values": 4}, "values must be an array"),
    ],
)
def test_what_is_no_signature_is_refused(changes: dict[str, object], message: str) -> None:
    """Each field of a signature is checked for presence, type and range, and named."""
    with pytest.raises(InvalidSignature, match=message) as caught:
        wire.load_signature(signature_body(**changes), wire.JSON, M)
    str(caught.value).encode()


def test_a_signature_names_no_field_twice() -> None:
    """A name that stands twice in the object is refused, and so is NaN."""
    with pytest.raises(InvalidSignature, match="'seed' stands twice"):
        wire.load_signature(signature_body()[:-1] + b', "seed": 1}', wire.JSON, M)
    with pytest.raises(InvalidSignature, match="NaN is not JSON"):
        wire.load_signature(signature_body(seed=float("nan")), wire.JSON, M)
