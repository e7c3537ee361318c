"""The time of every decoder grows linearly with the length of what it reads, however hostile."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, ModelkinError
from modelkin.wire.json import parse_json
from modelkin.wire.json_structure import MAX_DEPTH, check_structure
from tests.sdk.wire.fingerprints import of_keys, of_names
from tests.sdk.wire.payloads import compressed, forge, in_order, sealed

M = 10_000_000
BEFORE = Support.from_indices(range(0, M, 1000), M)
SHORT, TIMES = 8 << 10, 16
MOST = 6
"""How much more than its share of the time a text of so many times the length may take."""

Shape: TypeAlias = Callable[[int], bytes]
Decoder: TypeAlias = Callable[[bytes], object]


def repeated(piece: str, head: str = "[", tail: str = "]", comma: str = ",") -> Shape:
    """As many times as fit, one after the other."""

    def text(size: int) -> bytes:
        count = (size - len(head) - len(tail)) // (len(piece) + len(comma))
        return f"{head}{comma.join([piece] * count)}{tail}".encode()

    return text


def names(*last: str, value: str = "0") -> Shape:
    """An object of distinct names, and then of these."""

    def text(size: int) -> bytes:
        entries = [f'"{number:x}":{value}' for number in range(size // (7 + len(value)))]
        return f"{{{','.join([*entries, *last])}}}".encode()

    return text


JSON_SHAPES: Final[dict[str, Shape]] = {
    "a name twice, at the end": lambda size: names(f'"{size // 8 - 1:x}":0')(size),
    "the first name again, at the end": names('"0":0'),
    "names": names(),
    "names of arrays": names(value="[]"),
    "one name": repeated('"a":0', "{", "}"),
    "arrays": repeated("[]"),
    "objects": repeated("{}"),
    "depth": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "depth without an end": lambda size: b"[" * size,
    "depth of objects": lambda size: b'{"a":' * (size // 6) + b"0" + b"}" * (size // 6),
    "as deep as may be": repeated("[" * 90 + "]" * 90),
    "integers": repeated("0"),
    "indices": lambda size: b'{"indices":[%b]}' % b",".join(b"%d" % n for n in range(size // 7)),
    "octaves": repeated("0", '{"indices":[0],"octaves":[', "]}"),
    "values": repeated("1", '{"values":['),
    "added": repeated("1", '{"removed":[],"added":[', "]}"),
    "digits": lambda size: b"[" + b"1" * (size - 2) + b"]",
    "digits of a fraction": lambda size: b"[0." + b"1" * (size - 4) + b"]",
    "digits of an exponent": lambda size: b"[1e" + b"1" * (size - 4) + b"]",
    "long integers": repeated("1" * 4200),
    "escapes": repeated("\\n", '["', '"]', ""),
    "escaped quotes without an end": repeated('\\"', '["', "", ""),
    "backslashes": repeated("\\\\", '["', '"]', ""),
    "surrogates": repeated("\\ud83d", '["', '"]', ""),
    "brackets in strings": repeated('"["'),
    "strings": repeated('""'),
    "quotes": lambda size: b'"' * size,
    "spaces": lambda size: b"[" + b" " * (size - 2) + b"]",
    "lines": lambda size: b"\n" * (size - 1) + b"x",
    "an unknown name": lambda size: b'{"' + b"a" * (size - 6) + b'":0}',
}
OF_NUMBERS = (
    "a name twice, at the end",
    "names",
    "indices",
    "octaves",
    "values",
    "added",
    "an unknown name",
)
BINARY_SHAPES: Final[dict[str, Shape]] = {
    "zeros": lambda size: bytes(size),
    "ones": lambda size: b"\xff" * size,
    "high bits": lambda size: b"\x80" * size,
    "ascending": lambda size: np.arange(size // 4, dtype="<u4").tobytes(),
    "a support of gaps of one": lambda size: forge(
        Support.from_indices(np.arange(size, dtype=np.uint32), M)
    ),
    "octaves of a support of gaps of one": lambda size: forge(
        in_order(Support.from_indices(np.arange(size // 2, dtype=np.uint32), M))
    ),
    "octaves that no ranks have": lambda size: forge(
        in_order(Support.from_indices(np.arange(size // 2, dtype=np.uint32), M)),
        plane=bytes(size // 2),
    ),
    "a stream that goes on": lambda size: forge(BEFORE, k=size, frame=compressed(b"\x80" * size)),
    "tensors of a fingerprint": lambda size: of_names(
        [str(number) for number in range(size // 40)]
    ).to_bytes(),
    "keys of a fingerprint": lambda size: of_keys(size // 9).to_bytes(),
    "a frame of nothing": lambda size: forge(BEFORE, frame=bytes(size)),
    **{
        f"{magic} and zeros": lambda size, magic=magic: sealed(  # type: ignore[misc]
            magic.encode() + b"\1\1\0\0" + bytes(size)
        )
        for magic in ("MKSP", "MKDL", "MKSG", "MKSK", "MKFP")
    },
}
JSON_DECODERS: Final[dict[str, Decoder]] = {
    "support": lambda data: wire.load_support(data, wire.JSON, M),
    "patch": lambda data: wire.load_patch(data, wire.JSON, BEFORE),
    "signature": lambda data: wire.load_signature(data, wire.JSON, M),
    "either": lambda data: wire.load_either(data, wire.JSON, M),
    "any": lambda data: parse_json(data, InvalidParameter),
    "any of few names": lambda data: parse_json(data, InvalidParameter, max_names=256),
}
BINARY_DECODERS: Final[dict[str, Decoder]] = {
    "support": lambda data: wire.load_support(data, wire.SUPPORT, M),
    "roaring": lambda data: wire.load_support(data, wire.ROARING, M),
    "raw": lambda data: wire.load_support(data, wire.RAW, M),
    "patch": lambda data: wire.load_patch(data, wire.PATCH, BEFORE),
    "signature": lambda data: wire.load_signature(data, wire.SIGNATURE, M),
    "sketch": lambda data: wire.decode_sketch(data, num_parameters=M),
    "fingerprint": wire.decode_fingerprint,
}


def seconds(decode: Decoder, data: bytes) -> float:
    """What this thread computes to decode it; what others do at the time does not count."""
    began = time.thread_time()
    with contextlib.suppress(ModelkinError):
        decode(data)
    return time.thread_time() - began


def ratio(decode: Decoder, shape: Shape) -> float:
    """How much longer a long text takes, by the byte; the least of some tries."""
    short, long = shape(SHORT), shape(SHORT * TIMES)
    seconds(decode, short)
    least = min(seconds(decode, short) for _ in range(3))
    worst = 1e9
    for _ in range(4):
        worst = min(worst, seconds(decode, long) / (max(least, 2e-4) * TIMES))
        if worst <= MOST / 2:
            break
    return worst


@pytest.mark.parametrize(
    ("decoder", "shape"),
    [
        *itertools.product(("any", "any of few names"), JSON_SHAPES),
        *itertools.product(("support", "patch", "signature", "either"), OF_NUMBERS),
    ],
)
def test_JSON_is_decoded_in_linear_time(decoder: str, shape: str) -> None:
    """A text of 16 times the length takes about 16 times as long, whatever it holds."""
    assert ratio(JSON_DECODERS[decoder], JSON_SHAPES[shape]) < MOST


@pytest.mark.parametrize(
    ("decoder", "shape"), list(itertools.product(BINARY_DECODERS, BINARY_SHAPES))
)
def test_binary_formats_are_decoded_in_linear_time(decoder: str, shape: str) -> None:
    """The same holds for every binary format, whatever its header says."""
    assert ratio(BINARY_DECODERS[decoder], BINARY_SHAPES[shape]) < MOST


# --- the structure of a JSON text -------------------------------------------------------------

PIECES = st.sampled_from(['"', "\\", '\\"', "[", "]", "{", "}", "a", "\\\\", '""', "é", " "])
VALUES = st.recursive(
    st.none() | st.integers() | st.lists(PIECES).map("".join),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.lists(PIECES).map("".join), inner)
    ),
    max_leaves=20,
)


def levels(value: object) -> int:
    """How deep it is, by recursion."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(levels, inner), default=0)  # type: ignore[call-overload]


@given(VALUES, st.integers(MAX_DEPTH - 8, MAX_DEPTH + 2))
@settings(max_examples=60)
def test_levels_are_counted_outside_of_strings(value: object, around: int) -> None:
    """A text is refused where it is deeper than the limit: brackets in strings do not count."""
    nested = value
    for _ in range(around):
        nested = [nested, "[[[{"]
    text = json.dumps(nested, ensure_ascii=False).encode()
    if levels(nested) <= MAX_DEPTH:
        check_structure(text)
        assert nested == parse_json(text, InvalidParameter)
    else:
        with pytest.raises(ValueError, match=f"nested too deeply: {levels(nested)} levels"):
            check_structure(text)


def test_arrays_are_as_few_as_the_length_says() -> None:
    """Ten thousand may stand anywhere; more take eight bytes each."""
    check_structure(b"[" + b",".join([b"[]"] * 9_999) + b"]")
    with pytest.raises(ValueError, match="10001 arrays and objects in 30001 bytes"):
        check_structure(b"[" + b",".join([b"[]"] * 10_000) + b"]")
    check_structure(b"[" + b",".join([b'["abcd"]'] * 50_000) + b"]")
