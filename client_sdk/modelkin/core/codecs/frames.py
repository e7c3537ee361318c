"""The zstd frame within the native formats: made, and believed only as far as it must be.

What the streams within are, and how long they can be, is for the formats to say.
"""

from __future__ import annotations

import zstandard

from modelkin.errors import InvalidSupport

__all__ = ["MAX_WINDOW", "compressor", "read_frame"]

MAX_WINDOW = 8 << 20
"""The largest zstd window, in bytes: what RFC 8878 (3.1.1.1.2) asks every decoder to support."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def compressor() -> zstandard.ZstdCompressor:
    """What makes the frame of a gap stream.

    zstd's level 1 is the measured choice: on gaps the higher levels are slower and no smaller, and
    the negative ones skip the entropy coding that does the work.
    """
    return zstandard.ZstdCompressor(level=1, write_checksum=True)


def read_frame(frame: memoryview, at: int, least: int, most: int) -> bytes:
    """What is in the one zstd frame (RFC 8878) that these bytes are.

    zstandard heeds no output limit where the frame declares a size, so that size is first held
    against the bounds. It then allocates exactly that much, and refuses a frame that yields more or
    less, or that ends before its input does.

    Args:
        frame: the whole frame and nothing behind it.
        at: where in the payload it begins, for messages.
        least: the fewest bytes that it may hold.
        most: the most.

    Raises:
        InvalidSupport: no such frame, or damaged.
    """
    _check_header(frame, at, least, most)
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidSupport(
            f"the zstd frame from byte {at} on is truncated, damaged or followed by another: "
            f"{error}"
        ) from None


def _check_header(frame: memoryview, at: int, least: int, most: int) -> None:
    if frame[:4] != _ZSTD_MAGIC:  # a skippable frame has another magic
        raise InvalidSupport(f"no zstd frame starts at byte {at}")
    try:
        declared = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise InvalidSupport(f"the zstd frame's header is truncated or damaged: {error}") from None
    if declared.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise InvalidSupport("the zstd frame must declare its content size, this one does not")
    if not least <= declared.content_size <= most:
        raise InvalidSupport(
            f"the zstd frame declares {declared.content_size} bytes, the header before it allows "
            f"{least} to {most}"
        )
    if declared.window_size > MAX_WINDOW:
        raise InvalidSupport(
            f"the zstd frame wants a window of {declared.window_size} bytes, at most {MAX_WINDOW} "
            f"are allowed"
        )
    if declared.dict_id or not declared.has_checksum:
        raise InvalidSupport("the zstd frame must have a content checksum and need no dictionary")
