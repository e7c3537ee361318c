"""The native format of cells: fixed offsets, bounded decoding, and mutants that do no harm."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin import wire
from modelkin.errors import InvalidCell, ModelkinError, PayloadTooLarge
from tests.sdk.wire.payloads import sealed
from tests.support.repetitions import repetitions

HEADER = wire.CellHeader(
    wire.Kind.FLOAT32, wire.Sealing.CLEAR, 3, 2, 9, 1, 0, 5, 6, bytes(range(32))
)


def cell(header: wire.CellHeader = HEADER, fill: int = 7) -> bytes:
    return wire.encode_cell(header, bytes([fill]) * header.payload_bytes)


@given(
    kind=st.sampled_from(wire.Kind),
    sealing=st.sampled_from(wire.Sealing),
    shard=st.integers(0, 2**32 - 1),
    round_number=st.integers(1, 2**32 - 1),
    attempt=st.integers(0, 2**16 - 1),
    count=st.integers(0, 2000),
    digest=st.binary(min_size=32, max_size=32),
)
def test_round_trip(
    kind: wire.Kind,
    sealing: wire.Sealing,
    shard: int,
    round_number: int,
    attempt: int,
    count: int,
    digest: bytes,
) -> None:
    """Any header and payload survive the format, and the header can be read alone."""
    wraps = 3 if sealing is wire.Sealing.WRAPPED else 0
    header = wire.CellHeader(
        kind, sealing, shard, 7, round_number, attempt, wraps, 2**32 - 1, count, digest
    )
    payload = bytes(range(256)) * (header.payload_bytes // 256 + 1)
    data = wire.encode_cell(header, payload[: header.payload_bytes])
    assert wire.cell_bytes(header) == len(data)
    found, opened = wire.decode_cell(data)
    assert (header, payload[: header.payload_bytes]) == (found, bytes(opened))
    assert header == wire.read_cell_header(data[:72])


def test_the_offsets_are_fixed() -> None:
    """Header, values and checksum stand where the specification says."""
    data = cell()
    assert 72 + 24 + 4 == len(data)
    assert (b"MKSC", 1, 0, 0, 0) == struct.unpack_from("<4sBBBB", data)
    assert (3, 2, 9, 1, 0) == struct.unpack_from("<IIIHH", data, 8)
    assert (5, 0, 6) == struct.unpack_from("<IIQ", data, 24)
    assert bytes(range(32)) == data[40:72]
    assert zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little")


@pytest.mark.parametrize(
    ("kind", "count", "size"),
    [
        (wire.Kind.FLOAT32, 513, 2052),
        (wire.Kind.UINT32, 513, 2052),
        (wire.Kind.INT8, 512, 516),
        (wire.Kind.INT8, 513, 521),
    ],
)
def test_lengths_follow_from_the_header(kind: wire.Kind, count: int, size: int) -> None:
    """Four bytes a number; one a rounded number and four for each 512 of them; sealing adds."""
    header = replace(HEADER, kind=kind, count=count)
    assert size == header.payload_bytes
    assert size + 48 == replace(header, sealing=wire.Sealing.SEALED).payload_bytes
    wrapped = replace(header, sealing=wire.Sealing.WRAPPED, wraps=5)
    assert size + 16 + 5 * 64 == wrapped.payload_bytes


def test_every_flipped_bit_is_refused() -> None:
    """No single flipped bit goes unnoticed."""
    data = cell()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ModelkinError):
            wire.decode_cell(damaged)


def test_every_other_length_is_refused() -> None:
    """A cell that ends early or goes on is refused, also where its checksum is made right."""
    data = cell()
    for wrong in [*(data[:size] for size in range(len(data) - 4)), data + b"\0", data * 2]:
        for payload in (wrong, sealed(wrong)):
            with pytest.raises(InvalidCell):
                wire.decode_cell(payload)


@pytest.mark.parametrize(
    ("offset", "value", "says"),
    [
        (0, b"MKSK", "another format"),
        (4, b"\x02", "version 2"),
        (5, b"\x03", "kind 3"),
        (6, b"\x03", "sealing 3"),
        (7, b"\x01", "flags 0x01"),
        (16, b"\0\0\0\0", "round"),
        (22, b"\1\0", "wrapped keys"),
        (28, b"\1", "bytes 28-31"),
    ],
)
def test_headers_that_no_cell_has(offset: int, value: bytes, says: str) -> None:
    """The error says which byte is wrong."""
    data = bytearray(cell()[:-4])
    data[offset : offset + len(value)] = value
    with pytest.raises(InvalidCell, match=says):
        wire.decode_cell(sealed(bytes(data)))


def test_a_large_count_allocates_nothing() -> None:
    """A header that declares 2^60 values is refused before any memory of that size."""
    data = bytearray(cell()[:-4])
    for count in (2**24, 2**60, 2**64 - 1):
        data[32:40] = struct.pack("<Q", count)
        tracemalloc.start()
        with pytest.raises(PayloadTooLarge):
            wire.decode_cell(sealed(bytes(data)))
        assert tracemalloc.get_traced_memory()[1] < 20_000
        tracemalloc.stop()


def test_a_payload_of_another_length_is_not_written() -> None:
    """Encoding checks what it is given, too."""
    with pytest.raises(InvalidCell):
        wire.encode_cell(HEADER, bytes(23))


def test_mutants_are_refused_or_cells() -> None:
    """Random damage, with the checksum made right or not, is an error of ours or a cell."""
    rng = np.random.default_rng(15)
    originals = [
        cell(),
        cell(replace(HEADER, kind=wire.Kind.INT8, sealing=wire.Sealing.SEALED)),
        cell(replace(HEADER, sealing=wire.Sealing.WRAPPED, wraps=2)),
    ]
    refused, count = 0, repetitions(100_000)
    for number in range(count):
        data = bytearray(originals[number % 3])
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(0, len(data) if number % 2 else 72)] = rng.integers(0, 256)
        cut = int(rng.integers(0, len(data))) if number % 7 == 0 else len(data)
        mutant = bytes(data[:cut])
        try:
            header, payload = wire.decode_cell(sealed(mutant[:-4]) if number % 2 else mutant)
            assert header.payload_bytes == len(payload)
        except ModelkinError:
            refused += 1
    assert refused > count / 2
