"""The checks of a learngene's file and manifest, none of which trusts what is declared."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.checkpoints.dtypes import FLOATS, decode
from modelkin.core.learngenes.manifest import (
    FLOAT_DTYPES,
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    LearngeneTensor,
    check_among,
    check_digest,
    check_finite,
    check_size,
    check_tensors,
    digest_of,
    header_bytes,
    tensors_of,
)
from modelkin.core.safetensors_header import BITS, TensorEntry
from modelkin.errors import InvalidLearngene


def file_of(header: dict[str, Any], values: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


def read(data: bytes) -> tuple[TensorEntry, ...]:
    length = header_bytes(data[:8], len(data))
    return tensors_of(data[8 : 8 + length], len(data))


def tensor(
    begin: int, end: int, dtype: str = "F32", shape: list[int] | None = None
) -> dict[str, Any]:
    size = (end - begin) // (BITS[dtype] // 8)
    return {
        "dtype": dtype,
        "shape": [size] if shape is None else shape,
        "data_offsets": [begin, end],
    }


def test_a_sound_file_is_read() -> None:
    """Names, types and shapes come out in the order of the bytes, and metadata is left out."""
    header = {"__metadata__": {"k": "v"}, "b": tensor(8, 16), "a": tensor(0, 8, "F16", [2, 2])}
    found = [(entry.name, entry.dtype, entry.shape) for entry in read(file_of(header, bytes(16)))]
    assert [("a", "F16", (2, 2)), ("b", "F32", (2,))] == found


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it has 0 bytes"),
        (b"PK\x03\x04" + bytes(40), "a zip archive: unpack it, or, if torch.save wrote it"),
        ((MAX_HEADER_BYTES + 1).to_bytes(8, "little") + bytes(MAX_HEADER_BYTES + 1), "8000000"),
        (file_of({}), "1 to 100000 tensors, not 0"),
        (file_of({"a": tensor(0, 8), "b": tensor(4, 12)}, bytes(12)), "overlaps"),
        (file_of({"a": tensor(0, 8), "b": tensor(12, 16)}, bytes(16)), "gap"),
        (file_of({"a": tensor(0, 8)}, bytes(9)), "followed by other bytes"),
        (file_of({"a": tensor(0, 8)}, bytes(7)), "truncated"),
        (file_of({"a": tensor(0, 8, "I64")}, bytes(8)), "floating-point"),
        (file_of({"a": tensor(0, 8, "C64")}, bytes(8)), "floating-point"),
        (file_of({"": tensor(0, 8)}, bytes(8)), "not the name of a tensor"),
        (file_of({"\0": tensor(0, 8)}, bytes(8)), "has a control character"),
        (file_of({"\ud800": tensor(0, 8)}, bytes(8)), "half a surrogate pair"),
        (file_of({"n" * 1001: tensor(0, 8)}, bytes(8)), "not the name of a tensor"),
        (file_of({"a": tensor(0, 4, shape=[1] * 33)}, bytes(4)), "shape"),
    ],
)
def test_other_files_are_refused(data: bytes, why: str) -> None:
    """The error says what is wrong; nothing of a declared size is made before."""
    with pytest.raises(InvalidLearngene, match=why):
        read(data)


def test_stated_tensors_are_checked_alike() -> None:
    """A manifest without a file has no more tensors, no repeated one, and no other types."""
    one = LearngeneTensor("a", "F32", (2,))
    check_tensors([one])
    for wrong in (
        [one, one],
        [LearngeneTensor("a", "I8", (2,))],
        [LearngeneTensor("a", "F32", (-1,))],
    ):
        with pytest.raises(InvalidLearngene):
            check_tensors(wrong)
    with pytest.raises(InvalidLearngene, match=f"not {MAX_TENSORS + 1}"):
        check_tensors([LearngeneTensor(str(at), "F32", ()) for at in range(MAX_TENSORS + 1)])


@pytest.mark.parametrize(
    ("name", "shape", "why"), [("b", (2,), "is not in the space"), ("a", (3,), "has shape")]
)
def test_tensors_are_the_spaces(name: str, shape: tuple[int, ...], why: str) -> None:
    """Another name and another shape are refused, whatever the type."""
    check_among([LearngeneTensor("a", "F16", (2,))], {"a": (2,)}, "the space")
    with pytest.raises(InvalidLearngene, match=why):
        check_among([LearngeneTensor(name, "F16", shape)], {"a": (2,)}, "the space")


@pytest.mark.parametrize(
    ("shape", "least"), [((4,), 26), ((), 14), ((0, 1 << 62), 10), ((1 << 40, 1 << 40), None)]
)
def test_a_size_that_the_tensors_cannot_have(shape: tuple[int, ...], least: int | None) -> None:
    """A file has the values, eight bytes, and a header of some length and not of any."""
    tensors = [LearngeneTensor("a", "F32", shape)]
    if least is None:
        with pytest.raises(InvalidLearngene):
            check_size(tensors, 2**63 - 1)
        return
    check_size(tensors, least)
    check_size(tensors, least - 2 + MAX_HEADER_BYTES)
    for wrong in (least - 1, least - 1 + MAX_HEADER_BYTES):
        with pytest.raises(InvalidLearngene, match=str(wrong)):
            check_size(tensors, wrong)


def test_the_types_are_those_of_checkpoints() -> None:
    """What a learngene may have is what a checkpoint can decode."""
    assert set(FLOATS) == set(FLOAT_DTYPES)


@pytest.mark.parametrize("dtype", [name for name in FLOAT_DTYPES if BITS[name] <= 16])
def test_every_small_value_that_is_not_finite_is_found(dtype: str) -> None:
    """Bit patterns show the same as the decoded values, for all of them."""
    bits, is_wrong = FLOAT_DTYPES[dtype]
    raw = np.arange(1 << BITS[dtype], dtype=bits)
    finite = np.isfinite(decode(raw.view(np.uint8), dtype))
    np.testing.assert_array_equal(~finite, is_wrong(raw))


@given(st.binary(min_size=64, max_size=64), st.sampled_from(["F32", "F64"]))
def test_values_that_are_not_finite_are_found(raw: bytes, dtype: str) -> None:
    """The same for any bytes of the large types, wherever they begin in the file."""
    entry = TensorEntry("a", dtype, (64 // (BITS[dtype] // 8),), 3, 67)
    finite = bool(np.isfinite(np.frombuffer(raw, "<f4" if dtype == "F32" else "<f8")).all())
    if finite:
        check_finite(b"xxx" + raw, [entry])
    else:
        with pytest.raises(InvalidLearngene, match="not finite"):
            check_finite(b"xxx" + raw, [entry])


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "sha256:" + "A" * 64, "md5:" + "0" * 64, 5, None]
)
def test_digests_have_one_form(digest: Any) -> None:
    """sha256, a colon, and 64 digits in lower case."""
    assert digest_of(b"x") == check_digest(digest_of(b"x"))
    with pytest.raises(InvalidLearngene):
        check_digest(digest)
