"""Headers of safetensors files: what adds up is read, whatever else is refused and named."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.checkpoints.header import parse_header, read_header
from modelkin.errors import InvalidCheckpoint
from tests.sdk.cli.files import entry, forge, random_tensors, save

TWELVE = bytes(12)
GOOD = forge({"__metadata__": {"format": "pt"}, "a": entry(), "b": entry(data_offsets=[12, 24])})
GOOD += bytes(24)

Reading = list[tuple[str, str, list[int]]]


def reading(data: bytes) -> Reading:
    """Names, dtypes and shapes, sorted, as ours reads them."""
    size = int.from_bytes(data[:8], "little")
    entries = parse_header(data[8 : 8 + size], len(data), "x")
    return sorted((e.name, e.dtype, list(e.shape)) for e in entries)


def reference(data: bytes) -> Reading:
    """The same, as the safetensors package reads them."""
    return sorted((name, t["dtype"], list(t["shape"])) for name, t in safetensors.deserialize(data))


def refusal(tmp_path: Path, data: bytes) -> str:
    """What the error about a file says."""
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InvalidCheckpoint) as caught:
        read_header(tmp_path / "model.safetensors")
    return str(caught.value)


def test_a_real_file_is_read_as_safetensors_reads_it(tmp_path: Path) -> None:
    """Names, dtypes and shapes are those that the safetensors package finds, in order of bytes."""
    path = save(tmp_path / "m.safetensors", random_tensors())
    entries = read_header(path)
    assert reference(path.read_bytes()) == reading(path.read_bytes())
    assert sorted(e.begin for e in entries) == [e.begin for e in entries]


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """A file that ends anywhere too early is an error that names the file."""
    for size in range(len(GOOD)):
        assert refusal(tmp_path, GOOD[:size]).startswith("model.safetensors: ")


@settings(max_examples=400)
@given(at=st.integers(8, len(GOOD) - 25), byte=st.integers(0, 255))
def test_a_changed_header_is_refused_or_reads_as_in_safetensors(at: int, byte: int) -> None:
    """Whatever byte of a header changes, it is never read in another way than its own."""
    data = GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]
    try:
        found = reading(data)
    except InvalidCheckpoint:
        return
    assert reference(data) == found


@settings(max_examples=200)
@given(header=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_header_crashes(header: bytes) -> None:
    """Bytes of any kind are read or refused, and nothing else happens."""
    with contextlib.suppress(InvalidCheckpoint):
        assert isinstance(parse_header(header, 8 + len(header), "x"), tuple)


TENSOR = b'{"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'

LIES: dict[str, tuple[bytes, str]] = {
    "endless header": (forge({}, length=2**63), "more than the format's 100000000"),
    "longer header": (forge({}, length=9999), "a header of 9999 bytes, 2 follow"),
    "not JSON": (forge(b"{'a': 1}"), "not valid JSON"),
    "a list": (forge(b"[1, 2]"), "does not begin with '{'"),
    "deep": (forge(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "not valid JSON"),
    "long number": (forge(b'{"a":' + b"9" * 9999 + b"}"), "not valid JSON"),
    "latin-1": (forge(b'{"\xe9": 1}'), "not valid JSON"),
    "NaN": (forge(b'{"a": NaN}'), "not valid JSON"),
    "twice": (forge(b'{"a": %b, "b": %b, "a": %b}' % (TENSOR, TENSOR, TENSOR)), "name 'a' is rep"),
    "dtype twice": (
        forge(b'{"a": {"dtype": "U8", %b}' % TENSOR[1:]),
        "within an object is repeated",
    ),
    "metadata twice": (forge(b'{"__metadata__": {"a": "", "a": ":"}}'), "an object is repeated"),
    "half a pair": (forge({"\ud800": entry()}), "\\ud800 at byte 2 is half a surrogate pair"),
    "other half": (forge({"a\udc00": entry()}), "\\udc00 at byte 3 is half a surrogate pair"),
    "half in dtype": (forge({"a": entry(dtype="\udfff")}), "\\udfff at byte 17 is half a"),
    "half in metadata": (forge({"__metadata__": {"a": "\ud83d"}}), "\\ud83d at byte 24 is half"),
    "bytes in metadata": (
        forge(b'{"__metadata__": {"a": "\xff"}}'),
        "its __metadata__ is not valid",
    ),
    "half as bytes": (forge(b'{"\xed\xa0\x80": 1}'), "not valid JSON"),
    "NUL": (forge({"a\0": entry()}), "tensor 'a\\x00' has a control character"),
    "escape": (forge({"\x1b[2J": entry()}), "tensor '\\x1b[2J' has a control character"),
    "many entries": (
        forge({"__metadata__": {f"{i}": "" for i in range(10_001)}}),
        "10001 entries, at most 10000",
    ),
    "metadata": (forge({"__metadata__": {"a": 1}}), "not a map of strings"),
    "no fields": (forge({"a": 7}), "'a' is not described by dtype, shape, data_offsets"),
    "dtype": (forge({"a": entry(dtype="F128")}, TWELVE), "'F128', unknown to this modelkin"),
    "float shape": (forge({"a": entry(shape=[3.0])}, TWELVE), "no list of counts"),
    "bool shape": (forge({"a": entry(shape=[True])}, TWELVE), "no list of counts"),
    "negative shape": (forge({"a": entry(shape=[-3])}, TWELVE), "no list of counts"),
    "huge shape": (forge({"a": entry(shape=[2**62] * 9)}, TWELVE), "its data_offsets span 12"),
    "wrong shape": (forge({"a": entry(shape=[4])}, TWELVE), "takes 16 bytes, its data_offsets"),
    "backwards": (forge({"a": entry(data_offsets=[12, 0])}, TWELVE), "no ascending pair"),
    "hole": (forge({"a": entry(data_offsets=[4, 16])}, bytes(16)), "'a' leaves a gap after"),
    "overlap": (
        forge({"a": entry(), "b": entry(data_offsets=[8, 20])}, bytes(20)),
        "'b' overlaps 'a'",
    ),
    "cut data": (forge({"a": entry()}, bytes(11)), "it is truncated"),
    "extra data": (forge({"a": entry()}, bytes(13)), "followed by other bytes"),
    "half a byte": (
        forge({"a": entry(dtype="F4", data_offsets=[0, 2])}, bytes(2)),
        "takes 1.5 bytes",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused_with_what_and_where(tmp_path: Path, lie: str) -> None:
    """Each way in which a header can be wrong has its own message."""
    data, message = LIES[lie]
    assert message in refusal(tmp_path, data)


STRICTER = {"twice", "dtype twice", "metadata twice", "NaN", "NUL", "escape", "many entries"}


@pytest.mark.parametrize("lie", sorted(set(LIES) - STRICTER))
def test_safetensors_refuses_the_same(lie: str) -> None:
    """We are no stricter than the format, but for keys given twice, and what no terminal and no
    database should get.
    """
    with pytest.raises((safetensors.SafetensorError, TypeError)):
        safetensors.deserialize(LIES[lie][0])


def test_names_of_strangers_are_shown_in_ascii_and_short(tmp_path: Path) -> None:
    """A tensor's name cannot write to the terminal through an error, nor flood it."""
    name = "\u202e" + "x" * 5000
    message = refusal(tmp_path, forge({name: entry(shape=[4])}, TWELVE))
    assert "\\u202e" in message
    assert len(message) < 300


def padded(fields: Any) -> bytes:
    return forge(json.dumps(fields).encode() + b"   ", TWELVE)


def test_a_padded_header_is_read() -> None:
    """Writers align the data with spaces behind the JSON."""
    assert [("a", "F32", [3])] == reading(padded({"a": entry()}))


def test_any_text_without_controls_is_a_name() -> None:
    """Letters of any script, pairs of surrogates, quotes, colons and braces are as they were."""
    names = ["größe", "模型", "\U0001f600", '{":"}', "a\\\\", '"', "\u202e", "\\ud800"]
    data = forge({name: entry(shape=[0], data_offsets=[0, 0]) for name in names})
    assert sorted(names) == [name for name, _, _ in reading(data)]


def test_a_header_of_many_tensors_takes_little_memory() -> None:
    """20,000 tensors take below 500 bytes each while they are read, so 200,000 below 100 MB."""
    count = 20_000
    header = b"{%b}" % b",".join(b'"%08d":%b' % (i, TENSOR) for i in range(count))
    parse_header(header, 8 + len(header), "x")
    tracemalloc.start()
    try:
        assert count == len(parse_header(header, 8 + len(header), "x"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500 * count
