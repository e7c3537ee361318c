"""The streamed encoder, against the one that has the whole support."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.indices import IndexArray
from modelkin.core.support import Support
from modelkin.errors import InvalidSupport
from modelkin.wire.streaming import stream_support
from tests.sdk.wire.payloads import every, scattered, supports


def streamed(support: Support, cuts: list[int]) -> tuple[str, bytes]:
    """Digest and payload of a support handed over in parts, some of them perhaps empty."""
    bounds = [0, *(min(cut, support.k) for cut in sorted(cuts)), support.k]
    parts: list[IndexArray] = [support.indices[a:b] for a, b in pairwise(bounds)]
    stream = stream_support(parts, support.num_parameters, support.k, io.BytesIO())
    return stream.digest, b"".join(stream.pieces)


@pytest.mark.slow
@given(support=supports(), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_parts_make_the_support_of_the_whole(support: Support, cuts: list[int]) -> None:
    """However it is cut, the payload decodes to the support, under the same digest."""
    digest, payload = streamed(support, cuts)
    assert support == Support.from_bytes(payload)
    assert support.digest == digest


@pytest.mark.parametrize("support", [every(1), every(3), scattered(5_000_000, 3_000)])
def test_gap_streams_and_headers_are_the_same_bytes(support: Support) -> None:
    """Header and digest equal encode_support's, at every number of planes."""
    _, payload = streamed(support, [1, 100, 101])
    assert support.to_bytes()[:56] == payload[:56]


def test_a_payload_of_many_pieces_is_one_frame() -> None:
    """A stream of several compressor blocks and spool reads is read back whole."""
    support = scattered(30_000_000, 3_000_000)
    _, payload = streamed(support, list(range(0, support.k, 400_000)))
    assert support == Support.from_bytes(payload)


@pytest.mark.parametrize("announced", [4, 6])
def test_another_number_of_indices_than_announced_is_refused(announced: int) -> None:
    """K decides the encoding, so that a wrong one would make another support."""
    parts = [np.arange(5, dtype=np.uint32)]
    with pytest.raises(InvalidSupport, match=f"hold 5 indices, not the {announced} announced"):
        stream_support(parts, 10, announced, io.BytesIO())
