"""Supports and payloads for the tests of the wire: drawn, or forged with one thing wrong."""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any

import numpy as np
import zstandard
from hypothesis import strategies as st

from modelkin.core.codecs import gaps
from modelkin.core.octaves import last_octave, octave_sizes
from modelkin.core.support import Support
from tests.sdk.draws import distinct

LARGEST = 2**63 - 1
SIZES = (1, 7, 255, 256, 1000, 70_000, 2**32 - 1, 2**32, 2**32 + 1, 8_000_000_000, LARGEST)


@st.composite
def supports(draw: st.DrawFn) -> Support:
    """Supports of 1 to 60 indices in spaces around every boundary, up to the last index."""
    m = draw(st.sampled_from(SIZES) | st.integers(1, LARGEST))
    near_the_end = st.integers(max(0, m - 300), m - 1)
    indices = draw(st.sets(st.integers(0, m - 1) | near_the_end, min_size=1, max_size=60))
    return Support.from_indices(sorted(indices), m)


@st.composite
def ordered_supports(draw: st.DrawFn) -> Support:
    """The same supports with octaves in any order."""
    return in_order(draw(supports()), draw(st.integers(0, 99)))


def in_order(support: Support, seed: int = 0) -> Support:
    """A support with the octaves of ranks that are drawn at random."""
    octaves = np.repeat(np.arange(last_octave(support.k) + 1), octave_sizes(support.k))
    drawn = np.random.default_rng(seed).permutation(octaves)
    return Support(support.indices, support.num_parameters, octaves=drawn)


def every(step: int, num_parameters: int = 30_000) -> Support:
    """Each index divisible by ``step``."""
    return Support.from_indices(np.arange(0, num_parameters, step), num_parameters)


def scattered(num_parameters: int, k: int, seed: int = 0) -> Support:
    """About ``k`` indices at random."""
    drawn = np.random.default_rng(seed).integers(0, num_parameters, k, dtype=np.uint64)
    return Support.from_indices(distinct(drawn), num_parameters)


def sealed(body: bytes) -> bytes:
    """The body with its CRC-32 appended, so that a decoder reads what comes before."""
    return body + struct.pack("<I", zlib.crc32(body))


def forge(support: Support, **changes: Any) -> bytes:
    """The native payload of a support with parts of it replaced, its CRC-32 right again.

    ``changes`` may name any field of the header, the gap ``stream``, the ``plane`` of octaves or
    the whole ``frame``.
    """
    stream = changes.get("stream", gaps.encode(support.indices, support.num_parameters).tobytes())
    plane = b"" if support.octaves is None else support.octaves.tobytes()
    content = stream + changes.get("plane", plane)
    m, k = changes.get("m", support.num_parameters), changes.get("k", support.k)
    digest = hashlib.sha256(struct.pack("<QQ", m, k) + content).digest()
    header = struct.pack(
        "<4sBBHQQ32s",
        changes.get("magic", b"MKSP"),
        changes.get("version", 1),
        changes.get("encoding", 2 if support.ordered else 1),
        changes.get("flags", 0),
        m,
        k,
        changes.get("digest", digest),
    )
    return sealed(header + changes.get("frame", compressed(content)))


def compressed(stream: bytes, **options: Any) -> bytes:
    """One zstd frame as the format wants it, unless ``options`` of zstandard say otherwise."""
    settings = {"level": 1, "write_checksum": True} | options
    return zstandard.ZstdCompressor(**settings).compress(stream)


SMALL = [
    Support.from_indices([0], 1),
    every(7, 1000),
    scattered(100_000, 60),
    scattered(8_000_000_000, 12),
    Support.from_indices([5, LARGEST - 1], LARGEST),
]
"""Plain supports of few bytes, each of which is damaged."""

SMALL_ORDERED = [
    Support([0], 1, octaves=[0]),
    in_order(every(7, 1000)),
    in_order(scattered(100_000, 60)),
    in_order(scattered(8_000_000_000, 12)),
    Support([5, LARGEST - 1], LARGEST, octaves=[1, 0]),
]
"""Ordered ones."""
