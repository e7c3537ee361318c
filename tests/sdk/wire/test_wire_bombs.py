"""Payloads made to harm: decoding stays within what M, K and ``max_k`` allow."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
import zstandard

from modelkin import wire
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport, ModelkinError, PayloadTooLarge
from tests.sdk.wire.payloads import compressed, every, forge, sealed

SUPPORT = every(3)
STREAM = b"\0" + b"\2" * 9_999
SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + b"skip"


def peak_of(decode: Callable[[], object], error: type[ModelkinError]) -> int:
    """Bytes at most allocated while ``decode`` is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(error):
            decode()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def chunked(stream: bytes, size: int = -1) -> bytes:
    """A frame that is written piece by piece; it declares ``size``, or nothing."""
    writer = zstandard.ZstdCompressor(level=1, write_checksum=True).compressobj(size=size)
    return writer.compress(stream) + writer.flush()


def relabelled(frame: bytes, size: int) -> bytes:
    """The frame with another declared content size, in the two bytes where small frames keep it."""
    assert 0x40 == frame[4] & 0xC0
    return frame[:5] + struct.pack("<H", size - 256) + frame[7:]


@pytest.mark.slow
def test_a_gigabyte_out_of_32_kilobytes_is_not_inflated() -> None:
    """A frame that declares far more than M and K allow is refused before it is decompressed."""
    bomb = forge(SUPPORT, frame=compressed(bytes(1 << 30)))
    assert len(bomb) < 100_000
    assert peak_of(lambda: wire.decode_support(bomb), InvalidSupport) < 1 << 20


def test_a_frame_that_holds_more_than_it_declares_is_cut_off() -> None:
    """A declared size that is plausible bounds what is written, whatever the blocks hold."""
    bomb = forge(SUPPORT, frame=relabelled(compressed(bytes(60_000)), 10_000))
    assert peak_of(lambda: wire.decode_support(bomb), InvalidSupport) < 1 << 20


def test_a_frame_that_holds_less_than_it_declares_is_refused() -> None:
    """A frame that yields fewer bytes than it declares is refused."""
    with pytest.raises(InvalidSupport, match="zstd frame"):
        wire.decode_support(forge(SUPPORT, frame=relabelled(compressed(bytes(5_000)), 10_000)))


def test_many_run_length_blocks_behind_a_small_size_are_cut_off() -> None:
    """A hand-made frame of 1,000 blocks of 128 KiB each stops at the 10,000 bytes it declares."""
    block = struct.pack("<I", (131_072 << 3) | 0b010)[:3] + b"\2"
    last = struct.pack("<I", (131_072 << 3) | 0b011)[:3] + b"\2"
    head = b"\x28\xb5\x2f\xfd\x44\x38" + struct.pack("<H", 10_000 - 256)
    bomb = forge(SUPPORT, frame=head + block * 1_000 + last + bytes(4))
    assert peak_of(lambda: wire.decode_support(bomb), InvalidSupport) < 1 << 20


def test_an_undeclared_size_is_refused() -> None:
    """A frame without a content size is refused, even where its content is right."""
    with pytest.raises(InvalidSupport, match="must declare its content size"):
        wire.decode_support(forge(SUPPORT, frame=chunked(STREAM)))


def test_a_frame_of_many_writes_is_read() -> None:
    """Another writer's frame with size and checksum is as good as ours."""
    assert SUPPORT == wire.decode_support(forge(SUPPORT, frame=chunked(STREAM, len(STREAM))))


@pytest.mark.parametrize("size", [0, 9_999, 10_118])
def test_sizes_that_no_stream_has_are_refused(size: int) -> None:
    """The declared size must lie between the least and the most that M and K allow."""
    with pytest.raises(InvalidSupport, match=f"declares {size} bytes.*10000 to 10117"):
        wire.decode_support(forge(SUPPORT, frame=compressed(bytes(size))))


@pytest.mark.parametrize(
    "frame",
    [
        compressed(STREAM) + compressed(b""),
        compressed(STREAM) * 2,
        compressed(STREAM) + SKIPPABLE,
        compressed(STREAM) + b"\0",
        compressed(STREAM)[:-1],
        b"",
        b"\x28\xb5\x2f\xfd",
        STREAM,
    ],
    ids=[
        "empty-too",
        "twice",
        "skippable-last",
        "byte",
        "cut",
        "no",
        "magic",
        "raw",
    ],
)
def test_exactly_one_whole_frame_is_expected(frame: bytes) -> None:
    """A second frame, a skippable one, other bytes, half a frame or none are refused."""
    with pytest.raises(InvalidSupport, match="zstd frame"):
        wire.decode_support(forge(SUPPORT, frame=frame))


@pytest.mark.parametrize("first", [SKIPPABLE, b"\x27\xb5\x2f\xfd", STREAM[:4]])
def test_nothing_comes_before_the_frame(first: bytes) -> None:
    """A skippable frame, an old zstd frame and bare bytes are refused, and the error says where."""
    with pytest.raises(InvalidSupport, match="no zstd frame starts at byte 56"):
        wire.decode_support(forge(SUPPORT, frame=first + compressed(STREAM)))


def test_a_frame_without_checksum_is_refused() -> None:
    """The content checksum of the frame is part of the format."""
    with pytest.raises(InvalidSupport, match="content checksum"):
        wire.decode_support(forge(SUPPORT, frame=compressed(STREAM, write_checksum=False)))


def test_a_dictionary_is_refused() -> None:
    """A frame that names a dictionary is refused, because the decoder has none."""
    samples: list[bytes | bytearray | memoryview] = [
        f"{i:08d} sample of a dictionary {i * i}".encode() for i in range(2000)
    ]
    dictionary = zstandard.train_dictionary(4096, samples)
    with pytest.raises(InvalidSupport, match="no dictionary"):
        wire.decode_support(forge(SUPPORT, frame=compressed(STREAM, dict_data=dictionary)))


def test_a_huge_window_is_refused() -> None:
    """A frame that asks for a window of 128 MiB is refused before it gets one."""
    options = zstandard.ZstdCompressionParameters(
        window_log=27, write_content_size=True, write_checksum=True
    )
    writer = zstandard.ZstdCompressor(compression_params=options).compressobj()
    frame = writer.compress(STREAM) + writer.flush()
    declared = b"\x28\xb5\x2f\xfd" + bytes([frame[4] | 0x40]) + frame[5:6]
    frame = declared + struct.pack("<H", 10_000 - 256) + frame[6:]
    with pytest.raises(InvalidSupport, match="window of 134217728 bytes"):
        wire.decode_support(forge(SUPPORT, frame=frame))


def test_max_k_stops_an_honest_giant_unread() -> None:
    """A header with a billion indices is refused before anything behind it is read."""
    giant = forge(SUPPORT, m=2**40, k=10**9, frame=b"")
    decode = lambda: wire.decode_support(giant, max_k=10**6)  # noqa: E731
    assert peak_of(decode, PayloadTooLarge) < 1 << 16


def test_a_short_payload_may_hold_many_indices() -> None:
    """Consecutive indices compress to nearly nothing and are still a sound support."""
    support = Support.from_indices(range(500_000), 500_000)
    data = support.to_bytes()
    assert len(data) < 200
    assert support == wire.decode_support(data)


def test_decoding_takes_memory_for_stream_and_indices_only() -> None:
    """K indices take the stream, the indices and little else: below 8 bytes each."""
    data = every(3, 9_000_000).to_bytes()
    wire.decode_support(data)
    tracemalloc.start()
    decoded = wire.decode_support(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * decoded.k


def test_a_sealed_scrap_is_refused() -> None:
    """A right CRC-32 over nearly nothing makes no payload."""
    for size in range(60):
        with pytest.raises(InvalidSupport):
            wire.decode_support(sealed(every(3).to_bytes()[:size]))
