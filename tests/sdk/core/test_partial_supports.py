"""Supports that cover a part of their space: bytes, digests, and what of two is compared."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest

from modelkin import Layout, Support, select_support, wire
from modelkin.core.codecs.checks import with_crc
from modelkin.core.gaps import Gaps
from modelkin.core.importance import Origin
from modelkin.core.packed import PackedSupport
from modelkin.core.patch import Patch
from modelkin.core.similarity import overlap
from modelkin.core.similarity.edges import exact_similarity, growth_of_pairs
from modelkin.core.similarity.matrix import growth, matrix
from modelkin.core.similarity.outside import overlap_outside
from modelkin.errors import InvalidParameter, InvalidSupport, SpaceMismatch
from modelkin.wire import JSON, RAW, ROARING, SUPPORT

M = 10_000
LAYOUT = Layout.of([("a", (40, 100)), ("b", (40, 100)), ("c", (20, 100))])
GAPS = [(3_000, 4_000), (8_000, 9_500)]


def draw(seed: int, gaps: list[tuple[int, int]], k: int = 400) -> Support:
    """K indices outside the gaps, of which another one of the same seed has some."""
    outside = np.ones(M, np.bool_)
    for begin, end in gaps:
        outside[begin:end] = False
    weights = np.abs(np.random.default_rng(seed % 3).normal(size=M))
    weights += 0.3 * np.abs(np.random.default_rng(seed).normal(size=M))
    return select_support(weights * outside, k=k, layout=LAYOUT).with_origin(None)


PARTIAL = Support(draw(1, GAPS).indices, M, gaps=GAPS)


def test_bytes_of_each_kind_keep_the_gaps() -> None:
    """The native format, JSON, packed forms, pickles and copies give the support again."""
    for media_type in (SUPPORT, JSON):
        body = wire.dump_support(PARTIAL, media_type)
        assert PARTIAL == wire.load_support(body, media_type, M)
    assert GAPS == [tuple(pair) for pair in json.loads(wire.dump_support(PARTIAL, JSON))["gaps"]]
    packed = PackedSupport.pack(PARTIAL)
    again = PackedSupport.from_buffer(packed.to_bytes(), M, PARTIAL.k)
    assert (PARTIAL, PARTIAL.digest) == (again.unpack(), again.digest)
    assert packed.nbytes == len(packed.to_bytes())
    assert PARTIAL == pickle.loads(pickle.dumps(PARTIAL)) == copy.deepcopy(PARTIAL)
    assert Gaps(tuple(GAPS)) == PARTIAL.with_origin(None).gaps


@pytest.mark.parametrize("k", [40, 4000])
def test_packed_forms_are_lists_and_bitmaps(k: int) -> None:
    """Either form has the gaps behind it, and a flipped bit of these is noticed."""
    support = Support(draw(2, GAPS, k).indices, M, gaps=GAPS)
    data = PackedSupport.pack(support).to_bytes()
    assert support == PackedSupport.from_buffer(data, M, k).unpack()
    inside = bytearray(data)
    inside[-40:-32] = (0).to_bytes(8, "little")
    with pytest.raises(InvalidSupport):
        PackedSupport.from_buffer(bytes(inside), M, k)


def test_the_digest_covers_the_gaps() -> None:
    """The same indices with other gaps, or none, are another support; so signatures alone agree."""
    plain = Support(PARTIAL.indices, M)
    less = Support(PARTIAL.indices, M, gaps=GAPS[:1])
    assert 3 == len({plain.digest, less.digest, PARTIAL.digest})
    assert 3 == len({plain, less, PARTIAL})
    assert plain.signature() == PARTIAL.signature()


@pytest.mark.parametrize(
    ("gaps", "message"),
    [
        ([(0, M)], "lies in the gap"),
        ([(9_000, M + 1)], "ranges of the 10000 parameters"),
        ([(5, 3)], "not a range"),
        ([("a", 3)], "gaps: "),
        ([(2 * i, 2 * i + 1) for i in range(1 << 17)], "at most 65536 ranges"),
    ],
)  # fmt: skip
def test_gaps_that_cannot_be(gaps: list[tuple[int, int]], message: str) -> None:
    """Each is refused with what is wrong."""
    with pytest.raises(InvalidSupport, match=message):
        Support([1], 10_000 if len(gaps) < 9 else 1 << 20, gaps=gaps)


def test_bodies_that_cannot_be() -> None:
    """Counts beyond the body, ranges that cross, and an ordered support with gaps are refused."""
    body = bytearray(PARTIAL.to_bytes()[:-4])
    for at, value in ((56, 1 << 31), (56, 0), (60, 9_000), (6, 3)):
        wrong = bytearray(body)
        wrong[at : at + 4] = value.to_bytes(4, "little")
        with pytest.raises(InvalidSupport):
            Support.from_bytes(with_crc(bytes(wrong)))
    with pytest.raises(InvalidSupport, match="ordered support has no gaps"):
        Support([1, 2], 10, octaves=[0, 1], gaps=[(5, 6)])
    for fields in ({"gaps": 3}, {"gaps": [[1]]}, {"gaps": [[1, 2.5]]}, {"gaps": [[True, 2]]}):
        with pytest.raises(InvalidSupport, match="gaps"):
            wire.load_support(json.dumps({"indices": [7], **fields}).encode(), JSON, 10)


def test_forms_without_a_place_for_gaps() -> None:
    """Bitmaps, raw indices and patches refuse it, instead of a support that seems whole."""
    for media_type in (ROARING, RAW):
        with pytest.raises(InvalidParameter, match="covers a part"):
            wire.dump_support(PARTIAL, media_type)
    with pytest.raises(InvalidParameter, match="covers a part"):
        Patch.between(PARTIAL, PARTIAL)


def brute(a: Support, b: Support) -> float:
    """S over what both cover, index by index."""
    covered = np.ones(M, np.bool_)
    for begin, end in (*a.gaps.ranges, *b.gaps.ranges):
        covered[begin:end] = False
    one, other = ({i for i in s.indices.tolist() if covered[i]} for s in (a, b))
    return 2 * len(one & other) / (len(one) + len(other))


def test_pairs_are_compared_over_what_both_cover() -> None:
    """Overlap, matrix and edges are those of the indices outside the gaps of both."""
    some = [draw(1, []), draw(4, GAPS), draw(7, [(0, 500)]), draw(5, []), draw(8, GAPS[:1])]
    gaps = [[], GAPS, [(0, 500)], [], GAPS[:1]]
    supports = [Support(s.indices, M, gaps=g) for s, g in zip(some, gaps, strict=True)]
    expected = np.array([[brute(a, b) for b in supports] for a in supports])
    packed = [PackedSupport.pack(support) for support in supports]
    assert expected == pytest.approx(matrix(packed))
    assert expected == pytest.approx(
        np.array([[overlap.similarity(a, b) for b in supports] for a in supports])
    )
    ends = np.array([(a, b) for a in range(5) for b in range(a + 1, 5)], np.int64)
    found = exact_similarity(dict(enumerate(packed)), ends)
    assert expected[tuple(ends.T)] == pytest.approx(found)
    grown = growth_of_pairs(dict(enumerate(packed)), ends)
    assert growth(packed)[tuple(ends.T)] == pytest.approx(grown)
    one = overlap_outside(packed[0], packed[1], Gaps(), LAYOUT)
    assert expected[0, 1] == pytest.approx(one.similarity)
    tensors = overlap.by_tensor(supports[0], supports[1], LAYOUT)
    assert [3000, 4000, 500] == [tensor.size for tensor in tensors]
    by_chance = sum(2 * t.a * t.b / t.size for t in tensors) / sum(t.a + t.b for t in tensors)
    assert one.expected == pytest.approx(by_chance)


@pytest.mark.parametrize("k", [40, 4000])
def test_indices_of_many_ranges_are_counted_at_once(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists and bitmaps count those of each range, up to the last parameter, as one by one."""
    monkeypatch.setattr("modelkin.core.gaps.BLOCK_WORDS", 7)
    packed, draw = PackedSupport.pack(draw_whole(k)), np.random.default_rng(5)
    indices = packed.unpack().indices
    for count in (1, 63, 700):
        edges = [*np.sort(draw.choice(M, 2 * count - 1, replace=False)).tolist(), M]
        ranges = list(zip(edges[::2], edges[1::2], strict=True))
        expected = [int(np.count_nonzero((indices >= a) & (indices < b))) for a, b in ranges]
        assert expected == packed.counts_in(ranges).tolist()
        assert sum(expected) == packed.count_in(Gaps(tuple(ranges)))


def draw_whole(k: int) -> Support:
    """K indices of all, the last one among them."""
    chosen = np.random.default_rng(k).choice(M - 1, k - 1, replace=False)
    return Support(np.sort(np.append(chosen, M - 1)), M)


def test_a_support_of_fewer_tensors_has_gaps_in_a_larger_layout() -> None:
    """A tensor and rows that a model lacks are gaps; its indices are those of a selection there."""
    own = Layout.of([("model.c", (15, 100)), ("model.a", (40, 100)), ("model.b", (41, 100))])
    values = np.abs(np.random.default_rng(3).normal(size=own.num_parameters)).astype("f4")
    moved = select_support(values, fraction=0.05, layout=own, order=LAYOUT)
    assert ((9_500, 10_000),) == moved.gaps.ranges
    assert int(0.05 * 9_500) == moved.k
    first = select_support(values, k=600, layout=own)
    assert moved.gaps == first.reordered(LAYOUT).gaps
    with pytest.raises(SpaceMismatch, match="'c'"):
        select_support(values[:4100], k=9, layout=Layout.of([("b", (41, 100))]), order=LAYOUT)


def test_a_tied_table_that_is_saved_once_is_no_smaller_part() -> None:
    """The other copy is a gap, however large, and does not count against the part."""
    twice = Layout.of([("wte.weight", (90, 8)), ("h.weight", (8, 8)), ("lm_head.weight", (90, 8))])
    once = Layout.of([("transformer.wte.weight", (90, 8)), ("transformer.h.weight", (8, 8))])
    support = Support([1, 725], 784, origin=Origin(layout=once)).reordered(twice)
    assert ((784, 1504),) == support.gaps.ranges
