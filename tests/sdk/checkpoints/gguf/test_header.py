"""Headers of GGUF files: what is read of them, and what is refused, in bounded memory."""

from __future__ import annotations

import struct
import sys
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkin.checkpoints import CheckpointLimits
from modelkin.checkpoints.gguf.header import GgufHeader, holds_header, parse_gguf_header
from modelkin.checkpoints.gguf.opening import read_gguf
from modelkin.errors import InvalidCheckpoint, MissingExtra
from tests.support.models.gguf_files import as_llama_cpp, llama, llama_metadata, write_gguf

U32, STRING, ARRAY, F32, Q4_0 = 4, 8, 9, 0, 2
ARCHITECTURE = ("general.architecture", STRING, b"llama")


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def pair(key: bytes | str, kind: int, value: Any) -> bytes:
    """A key with its value; bytes are written as they are, where the kind is no string."""
    name = key.encode() if isinstance(key, str) else key
    if kind == STRING:
        return text(name) + struct.pack("<I", kind) + text(value)
    raw = value if isinstance(value, bytes) else struct.pack("<I", value)
    return text(name) + struct.pack("<I", kind) + raw


def info(
    name: bytes = b"a", sizes: tuple[int, ...] = (32,), kind: int = F32, offset: int = 0
) -> bytes:
    """The description of a tensor; sizes are in GGUF's order."""
    shape = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


def forge(
    *pairs: bytes,
    infos: tuple[bytes, ...] = (),
    data: bytes = b"",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    """A file of these parts; ``counts`` of tensors and keys may lie."""
    tensors, keys = counts or (len(infos), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join((*pairs, *infos))
    return head + bytes(-len(head) % alignment) + data


def parse(data: bytes, limits: CheckpointLimits | None = None) -> GgufHeader:
    return parse_gguf_header(BytesIO(data), len(data), "m.gguf", limits)


def test_a_header_is_read() -> None:
    """Both versions, numbers and short arrays; places are in bytes, shapes as Hugging Face's."""
    floats = np.arange(6, dtype="<f4").tobytes()
    pairs = (
        pair(*ARCHITECTURE),
        pair("llama.block_count", U32, 2),
        pair("llama.attention.head_count", ARRAY, struct.pack("<IQII", U32, 2, 4, 8)),
        pair(
            "tokenizer.ggml.tokens", ARRAY, struct.pack("<IQ", STRING, 2) + text(b"a") + text(b"")
        ),
        pair("x", STRING, b"-" * 5000),
    )
    infos = (info(b"b", (3, 2)), info(b"a", (0,), offset=32), info(b"c", (), offset=32))
    for version in (2, 3):
        data = forge(*pairs, infos=infos, data=floats + bytes(8) + bytes(4), version=version)
        header = parse(data)
        start = len(data) - 36
        assert {
            "general.architecture": "llama",
            "llama.block_count": 2,
            "llama.attention.head_count": (4, 8),
        } == header.metadata
        expected = [("b", (2, 3), start), ("a", (0,), start + 32), ("c", (), start + 32)]
        assert expected == [(e.name, e.shape, e.begin) for e in header.tensors]


BAD = {
    "empty": (b"", "is not a GGUF file"),
    "no magic": (bytes(range(9, 99)), "is not a GGUF file"),
    "safetensors": (b"\x40" + bytes(7) + b'{"a":', "it is a safetensors file: its name"),
    "GGML": (b"tjgg" + bytes(40), "it is a GGML file, which GGUF has replaced"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\n", "it is a pointer of Git LFS"),
    "a page": (b"<!DOCTYPE html><html>" + bytes(40), "it is a web page"),
    "version 1": (forge(version=1), "GGUF of version 1"),
    "version 4": (forge(version=4), "GGUF of version 4"),
    "big-endian": (b"GGUF\0\0\0\3" + bytes(40), "big-endian"),
    "2^63 tensors": (forge(counts=(2**63, 0)), "declares 9223372036854775808 tensors"),
    "2^64 - 1 keys": (forge(counts=(0, 2**64 - 1)), "declares 18446744073709551615 keys"),
    "cut": (forge(pair(*ARCHITECTURE), alignment=1)[:-2], "more than the file"),
    "no second key": (forge(pair(*ARCHITECTURE), counts=(0, 2), alignment=1), "ends within its"),
    "a text of a gigabyte": (
        forge(text(b"k") + struct.pack("<I", STRING) + text(b"abc", 1 << 30)),
        "the text of 'k' has 1073741824 bytes, more than the file",
    ),
    "a key of 2^63": (forge(text(b"k", 2**63)), "a key of its metadata has 9223372036854775808"),
    "a long key": (forge(pair(b"k" * 600, U32, 1)), "a key of its metadata has 600 bytes"),
    "a key with a newline": (forge(pair(b"a\nb", U32, 1)), "has a control character"),
    "a key that is no text": (forge(pair(b"\xff", U32, 1)), "is not UTF-8"),
    "a key twice": (forge(pair("k", U32, 1), pair("k", U32, 1)), "its metadata has 'k' twice"),
    "a type of value": (forge(pair("k", 13, 1)), "'k' is of type 13"),
    "a bool of 7": (forge(pair("k", 7, b"\7")), "'k' is neither true nor false"),
    "an array of 2^63": (
        forge(pair("k", ARRAY, struct.pack("<IQ", U32, 2**63))),
        "it ends within its header",
    ),
    "2^63 texts": (
        forge(pair("k", ARRAY, struct.pack("<IQ", STRING, 2**63))),
        "'k' declares 9223372036854775808 texts",
    ),
    "an array of arrays": (
        forge(pair("k", ARRAY, struct.pack("<IQIQ", ARRAY, 1, ARRAY, 1))),
        "'k' is an array of arrays",
    ),
    "five dimensions": (forge(infos=(info(sizes=(1,) * 5),), data=bytes(4)), "has 5 dimensions"),
    "2^63 elements": (forge(infos=(info(sizes=(2**62, 4)),)), "more elements than a file"),
    "2^63 and none": (forge(infos=(info(sizes=(2**63, 0)),)), "more elements than a file"),
    "a name twice": (
        forge(infos=(info(), info(offset=128)), data=bytes(256)),
        "it has tensor 'a' twice",
    ),
    "a name of 300 bytes": (forge(infos=(info(b"a" * 300),)), "the name of a tensor has 300 bytes"),
    "a name with NUL": (forge(infos=(info(b"a\0b"),)), "has a control character"),
    "an unknown type": (forge(infos=(info(kind=999),)), "tensor 'a' is of type 999"),
    "a removed type": (forge(infos=(info(kind=31),)), "is of Q4_0_4_4, which ggml has taken out"),
    "a type that is not read": (forge(infos=(info(kind=9),)), "is Q8_1, which the package gguf"),
    "rows of no whole blocks": (
        forge(infos=(info(sizes=(33, 2), kind=Q4_0),)),
        "rows of 33 values",
    ),
    "an overlap": (
        forge(infos=(info(), info(b"b", offset=96)), data=bytes(256)),
        "tensor 'b' overlaps 'a'",
    ),
    "a hole": (
        forge(infos=(info(), info(b"b", offset=160)), data=bytes(320)),
        "tensor 'b' leaves a gap after 'a'",
    ),
    "an offset of 2^64 - 1": (forge(infos=(info(offset=2**64 - 1),)), "leaves a gap after"),
    "truncated": (forge(infos=(info(),), data=bytes(127)), "it is truncated: get it again"),
    "bytes behind": (forge(infos=(info(),), data=bytes(160)), "followed by other bytes"),
    "an alignment of 0": (forge(pair("general.alignment", U32, 0)), "its general.alignment is 0"),
    "an alignment of 48": (forge(pair("general.alignment", U32, 48)), "has to be a power of two"),
    "an alignment of text": (forge(pair("general.alignment", STRING, b"32")), "is '32'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_headers_are_refused(name: str) -> None:
    """A header that contradicts itself or its file is refused by name, whatever it declares."""
    data, why = BAD[name]
    parse(forge(infos=(info(),), data=bytes(128)))  # what the first call imports is no cost of it
    tracemalloc.start()
    with pytest.raises(InvalidCheckpoint) as caught:
        parse(data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert why in str(caught.value)
    assert most < 200_000


def test_a_vocabulary_alone_is_a_header() -> None:
    """llama.cpp's files of vocabularies end behind their metadata, without padding."""
    assert () == parse(forge(pair(*ARCHITECTURE), alignment=1)).tensors


def test_limits_count(tmp_path: Path) -> None:
    """A service takes fewer tensors than the format, also of experts that are taken apart."""
    limits = CheckpointLimits(8_000_000, 8, 500, 8)
    stack = {"blk.0.ffn_up_exps.weight": np.zeros((9, 8, 32), "f4")}
    with pytest.raises(InvalidCheckpoint, match="at most 8 are read here"):
        read_gguf([write_gguf(tmp_path / "a.gguf", as_llama_cpp(llama(0)))], limits)
    with pytest.raises(InvalidCheckpoint, match="holds no stack of experts"):
        read_gguf([write_gguf(tmp_path / "b.gguf", stack, architecture="qwen3moe")], limits)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "it has no llama.attention.head_count, which says in which order its rows"),
        ({"llama.attention.head_count": 7}, "which are not those of 7 heads"),
        ({"llama.attention.head_count": 0}, "that is no number of heads"),
        ({"llama.attention.head_count": [4]}, "that is no number of heads"),  # of layer 1
        ({"llama.attention.head_count": "4"}, "that is no number of heads"),
    ],
)
def test_the_order_of_rows_is_never_guessed(
    tmp_path: Path, metadata: dict[str, Any], why: str
) -> None:
    """A file that does not say how q and k are ordered is refused: it would compare wrongly."""
    tensors = {"blk.1.attn_q.weight": np.zeros((64, 32), "f4")}
    with pytest.raises(InvalidCheckpoint) as caught:
        read_gguf([write_gguf(tmp_path / "m.gguf", tensors, metadata=metadata)])
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ((), "no general.architecture"),
        ((pair(*ARCHITECTURE),), "a vocabulary alone"),
        ((pair(*ARCHITECTURE), pair("general.type", STRING, b"adapter")), "a LoRA adapter"),
        ((pair("general.type", STRING, b"imatrix"),), "an importance matrix"),
        ((pair("general.architecture", STRING, b"controlvector"),), "a control vector"),
    ],
)
def test_files_without_weights_are_called_what_they_are(
    tmp_path: Path, pairs: tuple[bytes, ...], why: str
) -> None:
    """llama.cpp keeps other things than models in GGUF, too."""
    (tmp_path / "m.gguf").write_bytes(forge(*pairs))
    with pytest.raises(InvalidCheckpoint, match=why):
        read_gguf([tmp_path / "m.gguf"])


def test_names_are_no_paths(tmp_path: Path) -> None:
    """A tensor may be called as it likes: nothing is opened by its name."""
    names = ["../../etc/passwd", "/dev/zero", "a\u202eb"]
    tensors = {name: np.zeros((1, 32), "f4") for name in names}
    found, _ = read_gguf([write_gguf(tmp_path / "m.gguf", tensors, "Q8_0", "other", {})])
    assert names == [tensor.name for tensor in found]


def test_vocabularies_are_passed_over(tmp_path: Path) -> None:
    """A header with 20,000 texts takes no memory for them."""
    texts = struct.pack("<IQ", STRING, 20_000) + text(b"a token") * 20_000
    data = forge(pair(*ARCHITECTURE), pair("tokens", ARRAY, texts))
    tracemalloc.start()
    parse(data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000


def test_a_beginning_says_whether_it_is_enough(tmp_path: Path) -> None:
    """A header that was fetched in part is told from a whole one, and from a damaged one."""
    file = write_gguf(tmp_path / "m.gguf", as_llama_cpp(llama(0)), metadata=llama_metadata())
    data = file.read_bytes()
    header = parse(data)
    need = next(n for n in range(64, len(data), 64) if holds_header(data[:n], len(data)))
    assert need <= header.tensors[0].begin < need + 128
    assert not holds_header(data[: need - 64], len(data))
    assert holds_header(b"<html>" + bytes(100), len(data))


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says what to install."""
    from modelkin.checkpoints.gguf import types

    types.quant_types.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"pip install 'modelkin\[gguf\]'"):
        parse(forge(infos=(info(),), data=bytes(128)))
