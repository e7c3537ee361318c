"""The gap stream and the digest."""

from __future__ import annotations

import hashlib
import struct
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin.core.codecs import gaps
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport
from tests.sdk.draws import distinct

SPACES = (1, 255, 256, 257, 65_536, 2**32 - 1, 2**32, 2**32 + 1, 8 * 10**9, 2**63 - 1)


@st.composite
def supports(draw: st.DrawFn) -> Support:
    m = draw(st.sampled_from(SPACES) | st.integers(1, 2000))
    indices = draw(st.sets(st.integers(0, m - 1), min_size=1, max_size=min(m, 60)))
    return Support.from_indices(sorted(indices), m)


def plain_stream(support: Support) -> bytes:
    """The definition, spelled in Python integers."""
    w = gaps.low_bytes(support.num_parameters, support.k)
    symbols, low, begin = bytearray(), [], 0
    for index in support.indices.tolist():
        gap, begin = index - begin, index + 1
        symbols += bytes([255]) * ((gap >> 8 * w) // 255) + bytes([(gap >> 8 * w) % 255])
        low.append(gap.to_bytes(8, "little"))
    return bytes(symbols) + bytes(value[plane] for plane in range(w) for value in low)


@pytest.mark.slow
@given(support=supports())
def test_stream_is_its_definition(each_kernels: ModuleType, support: Support) -> None:
    """Both kernels write the stream that the definition in plain integers gives."""
    assert plain_stream(support) == gaps.encode(support.indices, support.num_parameters).tobytes()


@pytest.mark.slow
@given(support=supports())
def test_decode_inverts_encode(each_kernels: ModuleType, support: Support) -> None:
    """Every support comes back from its stream, whose size keeps within the stated bounds."""
    m, k = support.num_parameters, support.k
    stream = gaps.encode(support.indices, m)
    least = k * (1 + gaps.low_bytes(m, k))
    assert support == Support(gaps.decode(stream, m, k), m)
    assert least <= stream.size <= gaps.max_stream_size(m, k)


def test_blocks_join(each_kernels: ModuleType) -> None:
    """A support over several blocks of a kernel, with escapes across their seams, comes back."""
    rng = np.random.default_rng(4)
    for m, density in ((400_000, 0.5), (60_000_000, 0.0045), (30_000_000, 0.0005)):
        support = Support.from_indices(distinct(rng.integers(0, m, int(m * density))), m)
        stream = gaps.encode(support.indices, m)
        assert support == Support(gaps.decode(stream, m, support.k), m)


@pytest.mark.parametrize(
    ("m", "k", "w"),
    [(255, 1, 0), (256, 1, 1), (511, 2, 0), (512, 2, 1), (65_536, 1, 2), (2**63 - 1, 1, 7)],
)
def test_low_bytes_at_its_steps(m: int, k: int, w: int) -> None:
    """The number of low bytes steps exactly where M reaches 256 * K * 256^w."""
    assert w == gaps.low_bytes(m, k)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    stream=st.binary(min_size=1, max_size=24),
    m=st.sampled_from(SPACES) | st.integers(1, 9000),
    k=st.integers(1, 24),
)
def test_any_bytes_decode_or_are_refused(stream: bytes, m: int, k: int) -> None:
    """Whatever the bytes, they are the one stream of what they decode to, or an InvalidSupport."""
    array = np.frombuffer(stream, np.uint8)
    try:
        indices = gaps.decode(array, m, k)
    except InvalidSupport:
        return
    assert stream == gaps.encode(Support.from_indices(indices, m).indices, m).tobytes()


def octets(*values: int) -> npt.NDArray[np.uint8]:
    return np.array(values, np.uint8)


@pytest.mark.parametrize(
    ("stream", "m", "k", "message"),
    [
        (octets(0), 10, 2, "has 1 bytes, 2 indices of 10 parameters take 2 to 2"),
        (octets(0, 0, 0), 10, 2, "has 3 bytes"),
        (octets(1, 255), 500, 2, "ends within an escape, at byte 1"),
        (octets(7, 255, 255), 600, 3, "ends within an escape, at byte 2"),
        (octets(7, 255, 1), 700, 3, "holds 2 indices, not the 3"),
        (octets(7, 2), 10, 2, r"indices\[1\] is not below 10"),
        (octets(254, *[255] * 7), 2**63 - 1, 1, r"indices\[0\] is not below"),
        (octets(0), 10, 11, "cannot have 11 indices"),
        (octets(), 10, 0, "cannot have 0 indices"),
    ],
)
def test_refusals_say_why(
    each_kernels: ModuleType, stream: npt.NDArray[np.uint8], m: int, k: int, message: str
) -> None:
    """A broken stream is refused with what is wrong and where."""
    with pytest.raises(InvalidSupport, match=message):
        gaps.decode(stream, m, k)


def test_nothing_wraps_at_the_end_of_the_largest_space(each_kernels: ModuleType) -> None:
    """Two gaps that sum beyond 2^63 are refused, not wrapped back into range."""
    m = 2**63 - 1
    stream = gaps.encode(np.array([m - 2, m - 1], np.uint64), m)
    stream[1] = stream[0]
    with pytest.raises(InvalidSupport, match=r"indices\[1\]"):
        gaps.decode(stream, m, 2)


def test_a_huge_k_allocates_nothing() -> None:
    """A K that the stream cannot hold is refused before anything of its size is made."""
    with pytest.raises(InvalidSupport, match="has 3 bytes"):
        gaps.decode(octets(0, 0, 0), 2**62, 2**61)


def test_digest_is_golden() -> None:
    """The digest of a small support is this constant: another means a new format version."""
    support = Support.from_indices([3, 5, 8, 300, 999], 1000)
    stream = bytes([3, 1, 2, 255, 36, 255, 255, 188])
    golden = "bf8ee7575d9cff9314efda0593ddf7b5335f36fe168b29f4b80808372eb9787f"
    assert golden == hashlib.sha256(struct.pack("<QQ", 1000, 5) + stream).hexdigest()
    assert stream == gaps.encode(support.indices, 1000).tobytes()
    assert f"sha256:{golden}" == support.digest
