"""The native format of a patch: round trips, what it costs, and what is refused of strangers'."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkin import wire
from modelkin.core.codecs import gaps
from modelkin.core.patch import Patch
from modelkin.core.support import Support
from modelkin.errors import (
    DeltaMismatch,
    InvalidSupport,
    ModelkinError,
    PayloadTooLarge,
    SpaceMismatch,
    UnsupportedMediaType,
)
from tests.sdk.wire.payloads import compressed, every, sealed, supports
from tests.sdk.wire.test_wire_bombs import peak_of

BEFORE = every(3)
AFTER = Support.from_indices(np.r_[BEFORE.indices[100:], [29_998, 29_999]], 30_000)
DATA = wire.encode_patch(BEFORE, AFTER)
ADDED = gaps.encode(np.array([29_998, 29_999], np.uint32), 30_000).tobytes()
REMOVED = gaps.encode(np.arange(100, dtype=np.uint32), BEFORE.k).tobytes()
HEADER = struct.Struct("<4sBBHQQQQQ32s32s")
FIELDS = (
    *("magic", "version", "encoding", "flags", "m", "k", "added", "removed", "split"),
    *("before", "after"),
)


def forge(**changes: Any) -> bytes:
    """The payload of BEFORE to AFTER with parts of it replaced, its CRC-32 right again."""
    values = dict(zip(FIELDS, HEADER.unpack_from(DATA), strict=True)) | changes
    frame = values.pop("frame", compressed(values.pop("stream", ADDED + REMOVED)))
    return sealed(HEADER.pack(*(values[name] for name in FIELDS)) + frame)


@pytest.mark.slow
@given(supports(), st.data())
@settings(max_examples=100)
def test_a_delta_comes_back(before: Support, data: st.DataObject) -> None:
    """What is encoded for two supports makes the one of the other, in spaces of any size."""
    index = st.integers(0, before.num_parameters - 1)
    changed = set(before.indices.tolist()) ^ data.draw(st.sets(index, max_size=20))
    after = Support.from_indices(sorted(changed) or [0], before.num_parameters)
    payload = wire.encode_patch(before, after)
    decoded = wire.decode_patch(payload, before, max_k=after.k)
    assert (after.digest, after) == (decoded.digest, decoded.apply(before))
    assert decoded.added.size == wire.count_added(payload, wire.PATCH)


@pytest.mark.parametrize(("share", "less"), [(0.95, 5.5), (0.98, 11.0)])
def test_a_tenth_of_the_bytes(share: float, less: float) -> None:
    """At a density of 9.6% a drift to S = .95 takes less than a fifth of the whole support's bytes,
    to S = .98 less than a tenth.
    """
    random = np.random.default_rng(1)
    m, k = 1_000_000, 96_000
    before = Support.from_indices(np.sort(random.choice(m, k, replace=False)), m)
    kept = random.choice(before.indices, int(k * share), replace=False)
    new = random.choice(
        np.setdiff1d(np.arange(m), before.indices, assume_unique=True), k - kept.size, replace=False
    )
    after = Support.from_indices(np.sort(np.r_[kept, new]), m)
    assert less * len(wire.encode_patch(before, after)) < len(after.to_bytes())


def test_the_streams_are_what_the_page_says() -> None:
    """The payload of two supports is the header and the two gap streams, and nothing else."""
    assert DATA[:112] == forge()[:112]
    assert Patch.between(BEFORE, AFTER).removed.tolist() == BEFORE.indices[:100].tolist()
    assert AFTER == wire.decode_patch(forge(), BEFORE).apply(BEFORE)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"magic": b"MKSP"}, InvalidSupport, "starts with b'MKSP'"),
        ({"version": 2}, InvalidSupport, "version 2"),
        ({"encoding": 2}, InvalidSupport, "encoding 2"),
        ({"flags": 1}, InvalidSupport, "flags 0x0001"),
        ({"m": 30_001}, SpaceMismatch, "30001 parameters"),
        ({"m": 0}, InvalidSupport, "M = 0"),
        ({"k": 0, "added": 0}, InvalidSupport, "K = 0"),
        ({"k": 30_001}, InvalidSupport, "K = 30001"),
        ({"added": 9_903}, InvalidSupport, "9903 added"),
        ({"removed": 0}, InvalidSupport, "9900 indices, it has 10000"),
        ({"removed": 2**64 - 1}, InvalidSupport, "removed indices: no support"),
        ({"removed": 30_000}, InvalidSupport, "no support becomes another so"),
        ({"before": bytes(32)}, DeltaMismatch, "changes sha256:0000"),
        ({"split": 1}, InvalidSupport, "added: the gap stream has 1 bytes"),
        ({"split": 2**40}, InvalidSupport, "bytes 40-47"),
        ({"stream": ADDED + REMOVED[:-1]}, InvalidSupport, "declares"),
        ({"stream": ADDED + REMOVED[:-1] + b"\xff"}, InvalidSupport, "removed: .*escape"),
        ({"stream": ADDED + b"\xfe" * 100}, InvalidSupport, "removed: .*out of range"),
        (
            {"stream": b"\xff\0\0\0" + REMOVED},
            InvalidSupport,
            "added: .*holds 1 indices, not the 2",
        ),
        ({"frame": b""}, InvalidSupport, "no zstd frame starts at byte 112"),
        ({"frame": compressed(ADDED + REMOVED) * 2}, InvalidSupport, "zstd frame"),
    ],
)
def test_a_forged_delta_is_refused(
    changes: dict[str, Any], error: type[ModelkinError], message: str
) -> None:
    """Each part that cannot be is an error that says which and where."""
    with pytest.raises(error, match=message):
        wire.decode_patch(forge(**changes), BEFORE)


def test_a_delta_to_another_result_is_refused() -> None:
    """A digest of the result that is not that of what is made is the writer's mistake."""
    patch = wire.decode_patch(forge(after=bytes(32)), BEFORE)
    with pytest.raises(InvalidSupport, match="its writer is at fault"):
        patch.apply(BEFORE)


def test_every_flipped_bit_shows() -> None:
    """A payload with any one bit flipped is refused."""
    before = Support.from_indices([1, 2, 3], 100)
    data = wire.encode_patch(before, Support.from_indices([1, 3, 9], 100))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((InvalidSupport, SpaceMismatch, DeltaMismatch)):
            wire.decode_patch(bytes(flipped), before)


def test_every_cut_shows() -> None:
    """A payload that ends early is refused, with or without a new seal."""
    for size in range(len(DATA)):
        for cut in {DATA[:size], sealed(DATA[:size])} - {DATA}:
            with pytest.raises((InvalidSupport, SpaceMismatch, DeltaMismatch)):
                wire.decode_patch(cut, BEFORE)


def test_a_gigabyte_is_not_inflated() -> None:
    """A frame that declares far more than the header allows is refused undecompressed."""
    bomb = forge(frame=compressed(bytes(1 << 28)))
    assert len(bomb) < 100_000
    assert peak_of(lambda: wire.decode_patch(bomb, BEFORE), InvalidSupport) < 1 << 20


def test_max_k_stops_a_giant_unread() -> None:
    """A result of more indices than are accepted is refused before anything is decoded."""
    giant = forge(m=30_000, k=30_000, added=20_000, removed=0, frame=b"")
    assert (
        peak_of(lambda: wire.decode_patch(giant, BEFORE, max_k=20_000), PayloadTooLarge) < 1 << 16
    )
    small = json.dumps({"added": [1, 2], "removed": []}).encode()
    with pytest.raises(PayloadTooLarge, match="10002 indices"):
        wire.load_patch(small, wire.JSON, BEFORE, 10_001)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "expected a JSON object with added, removed"),
        (b'{"added": [1]}', "'removed' is missing"),
        (b'{"added": [1], "removed": [], "x": 1}', "'x' is unknown"),
        (b'{"added": [1.0], "removed": []}', r"added\[0\] must be an integer"),
        (b'{"added": [true], "removed": []}', r"added\[0\]"),
        (b'{"added": [], "removed": 3}', "removed must be an array"),
        (b'{"added": [2, 1], "removed": []}', "added: indices are not sorted"),
        (b'{"added": [], "removed": [18446744073709551615]}', "removed"),
        (b'{"added": [], "removed": [], "digest": 7}', "digest must be a string"),
        (b'{"added": [NaN], "removed": []}', "not valid JSON"),
        (b'{"added": [1], "added": [2], "removed": []}', "stands twice"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_wrong_JSON_delta_is_refused(body: bytes, message: str) -> None:
    """JSON is taken at its word, and what is wrong is named."""
    with pytest.raises(InvalidSupport, match=message):
        wire.load_patch(body, wire.JSON, BEFORE)


def test_the_two_media_types_say_the_same() -> None:
    """What JSON writes of a patch makes the same support as the native format."""
    body = json.dumps(wire.patch_to_json(Patch.between(BEFORE, AFTER))).encode()
    assert AFTER == wire.load_patch(body, wire.JSON, BEFORE).apply(BEFORE)
    assert AFTER == wire.load_patch(DATA, f"{wire.PATCH}; v=1", BEFORE).apply(BEFORE)
    assert AFTER.digest == json.loads(body)["digest"]
    with pytest.raises(UnsupportedMediaType, match="media type of a patch"):
        wire.load_patch(DATA, wire.SUPPORT, BEFORE)
