"""Roaring bitmaps and raw indices: others' formats, read as strictly as our own."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pyroaring
import pytest
from hypothesis import given, settings

from modelkin import wire
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSupport, MissingExtra, PayloadTooLarge
from tests.sdk.wire.payloads import every, scattered, supports

WIDE = 8_000_000_000


@pytest.mark.slow
@given(supports())
@settings(max_examples=150)
def test_roaring_round_trip(support: Support) -> None:
    """Any support survives Roaring, given its M again."""
    data = wire.encode_roaring(support)
    assert support == wire.decode_roaring(data, support.num_parameters)


@pytest.mark.slow
@given(supports())
@settings(max_examples=150)
def test_raw_round_trip(support: Support) -> None:
    """Any support survives the raw format, 4 bytes an index up to 2^32 parameters and 8 beyond."""
    data = wire.encode_raw(support)
    assert (4 if support.num_parameters <= 2**32 else 8) * support.k == len(data)
    assert support == wire.decode_raw(data, support.num_parameters)


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize(
    ("bitmap_type", "num_parameters"), [(pyroaring.BitMap, 200_000), (pyroaring.BitMap64, WIDE)]
)
def test_bitmaps_of_pyroaring_alone(bitmap_type: Any, num_parameters: int, optimize: bool) -> None:
    """A bitmap that pyroaring wrote, with or without runs, becomes the support of its members."""
    members = [0, 3, *range(70_000, 75_000), *range(130_000, 140_000, 3), num_parameters - 1]
    bitmap = bitmap_type(members, optimize=optimize)
    support = wire.decode_roaring(bitmap.serialize(), num_parameters)
    assert members == support.indices.tolist()


@pytest.mark.parametrize(
    ("bitmap_type", "num_parameters"), [(pyroaring.BitMap, 30_000), (pyroaring.BitMap64, WIDE)]
)
def test_pyroaring_alone_reads_ours(bitmap_type: Any, num_parameters: int) -> None:
    """What the encoder writes is a bitmap to pyroaring, of the same members."""
    support = Support.from_indices([1, 2, 29_999], num_parameters)
    assert [1, 2, 29_999] == list(bitmap_type.deserialize(support.to_roaring()))
    assert support == Support.from_roaring(support.to_roaring(), num_parameters)


@pytest.mark.parametrize("num_parameters", [30_000, WIDE])
def test_broken_bitmaps_are_refused(num_parameters: int) -> None:
    """No bytes, half a bitmap, foreign bytes or trailing ones are an InvalidSupport."""
    data = Support.from_indices([1, 7, 20_000], num_parameters).to_roaring()
    for broken in (
        b"",
        b"\0",
        data[:-1],
        data + b"\0",
        data * 2,
        b"MKSP" * 20,
        bytes(8),
        bytes(99),
    ):
        with pytest.raises(InvalidSupport):
            wire.decode_roaring(broken, num_parameters)


@pytest.mark.parametrize("num_parameters", [30_000, WIDE])
def test_damaged_bitmaps_never_do_worse(num_parameters: int) -> None:
    """A flipped bit gives an error of ours or a valid support: Roaring itself has no checksum."""
    data = Support.from_indices([1, 7, *range(99, 999), 20_000], num_parameters).to_roaring()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            support = wire.decode_roaring(damaged, num_parameters, max_k=10_000)
        except (InvalidSupport, PayloadTooLarge):
            continue
        assert support == Support.from_indices(support.indices, num_parameters)


def test_four_billion_indices_in_a_megabyte_are_not_materialised() -> None:
    """``max_k`` is compared with the cardinality before any index is decoded."""
    full = pyroaring.BitMap()
    full.add_range(0, 2**32)
    full.run_optimize()
    assert len(full.serialize()) < 1_000_000
    with pytest.raises(PayloadTooLarge, match="4294967296 indices, at most 1000000"):
        wire.decode_roaring(full.serialize(), 2**32, max_k=1_000_000)


def test_an_index_out_of_range_is_seen_before_the_others_are_made() -> None:
    """The maximum is compared with M before any index is decoded."""
    bitmap = pyroaring.BitMap(range(1 << 20)).serialize()
    tracemalloc.start()
    with pytest.raises(InvalidSupport, match="1048575 is out of range"):
        wire.decode_roaring(bitmap, 1 << 19)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 16


def test_an_empty_bitmap_is_no_support() -> None:
    """A bitmap without members is refused as empty."""
    for bitmap, num_parameters in ((pyroaring.BitMap(), 9), (pyroaring.BitMap64(), WIDE)):
        with pytest.raises(InvalidSupport, match="empty"):
            wire.decode_roaring(bitmap.serialize(), num_parameters)


def test_without_pyroaring_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing pyroaring says what to install."""
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    with pytest.raises(MissingExtra, match=r"pip install 'modelkin\[roaring\]'"):
        wire.encode_roaring(every(3))


def test_raw_is_plain_little_endian() -> None:
    """The raw bytes are those of a little-endian numpy array."""
    assert b"\x01\0\0\0\x00\x02\0\0" == wire.encode_raw(Support.from_indices([1, 512], 513))
    support = scattered(WIDE, 20)
    assert np.asarray(support.indices, "<u8").tobytes() == wire.encode_raw(support)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (bytes(5), "5 bytes are not a whole number of uint32 indices"),
        (bytes(8), "repeated"),
        (b"\2\0\0\0\1\0\0\0", "not sorted"),
        (b"\x64\0\0\0", "out of range for 100 parameters"),
        (b"\xff\xff\xff\xff", "4294967295 is out of range"),
    ],
)
def test_raw_nonsense_is_named(data: bytes, message: str) -> None:
    """Raw bytes that are not a support are refused for the right reason."""
    with pytest.raises(InvalidSupport, match=message):
        wire.decode_raw(data, 100)


def test_raw_indices_over_63_bits_are_out_of_range() -> None:
    """An index of 2^64 - 1 does not wrap into range."""
    with pytest.raises(InvalidSupport, match="18446744073709551615 is out of range"):
        wire.decode_raw(b"\xff" * 8, WIDE)


def test_raw_counts_before_it_reads() -> None:
    """``max_k`` bounds raw indices too."""
    with pytest.raises(PayloadTooLarge, match="3 indices, at most 2"):
        wire.decode_raw(bytes(12), 100, max_k=2)


@pytest.mark.parametrize("decode", [wire.decode_raw, wire.decode_roaring])
@pytest.mark.parametrize("num_parameters", [0, -1, 2**63, 1.5, True, None])
def test_an_impossible_m_is_the_callers_mistake(
    decode: Callable[..., Support], num_parameters: object
) -> None:
    """M itself is checked, since neither format carries it."""
    with pytest.raises(InvalidParameter, match="num_parameters"):
        decode(bytes(4), num_parameters)
