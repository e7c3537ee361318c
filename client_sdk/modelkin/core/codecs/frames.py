"""The zstd frame within the native formats, and the checks of an untrusted one.

The formats define the streams within a frame, and how long they can be.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import zstandard

from modelkin.errors import InvalidInput, InvalidSupport

__all__ = ["MAX_WINDOW", "compressor", "encode_frame", "read_frame"]

MAX_WINDOW = 8 << 20
"""The largest zstd window, in bytes: what RFC 8878 (3.1.1.1.2) asks every decoder to support."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def compressor() -> zstandard.ZstdCompressor:
    """The compressor for the frame of a gap stream.

    zstd's level 1 is the measured choice: on gaps the higher levels are slower and no smaller, and
    the negative ones skip the entropy coding that does the work.
    """
    return zstandard.ZstdCompressor(level=1, write_checksum=True)


def encode_frame(*streams: npt.NDArray[np.uint8]) -> Iterator[bytes]:
    """Encode streams as one frame, piece by piece.

    Each begins a block, and with it an entropy code of its own: octaves under the code of gaps
    would take half a bit more an index.
    """
    frame = compressor().compressobj(size=sum(stream.size for stream in streams))
    for place, stream in enumerate(streams):
        if place:
            yield frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        yield frame.compress(np.ascontiguousarray(stream).data)
    yield frame.flush()


def read_frame(
    frame: memoryview,
    at: int,
    min_size: int,
    max_size: int,
    invalid: type[InvalidInput] = InvalidSupport,
) -> bytes:
    """Decompress exactly one zstd frame (RFC 8878).

    zstandard ignores an output limit if the frame declares a size, so that size is first compared
    with the bounds. It then allocates exactly that much, and refuses a frame that yields more or
    less, or that ends before its input does.

    Args:
        frame: the whole frame and no other bytes.
        at: the frame's position in the payload, for messages.
        min_size: the fewest bytes that it may hold.
        max_size: the most bytes that it may hold.
        invalid: the error of what should be in it.

    Raises:
        InvalidInput: not such a frame, or damaged.
    """
    _check_header(frame, at, min_size, max_size, invalid)
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise invalid(
            f"the zstd frame from byte {at} on is truncated, damaged or followed by another: "
            f"{error}"
        ) from None


def _check_header(
    frame: memoryview, at: int, min_size: int, max_size: int, invalid: type[InvalidInput]
) -> None:
    if frame[:4] != _ZSTD_MAGIC:  # a skippable frame has another magic
        raise invalid(f"no zstd frame starts at byte {at}")
    try:
        declared = zstandard.get_frame_parameters(frame)
    except zstandard.ZstdError as error:
        raise invalid(f"the zstd frame's header is truncated or damaged: {error}") from None
    if declared.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise invalid("the zstd frame must declare its content size, this one does not")
    if not min_size <= declared.content_size <= max_size:
        raise invalid(
            f"the zstd frame declares {declared.content_size} bytes, the header before it allows "
            f"{min_size} to {max_size}"
        )
    if declared.window_size > MAX_WINDOW:
        raise invalid(
            f"the zstd frame needs a window of {declared.window_size} bytes, at most {MAX_WINDOW} "
            f"are allowed"
        )
    if declared.dict_id or not declared.has_checksum:
        raise invalid("the zstd frame must have a content checksum and need no dictionary")
