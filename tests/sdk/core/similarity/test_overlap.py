"""Exact overlap, of supports and of their packed form."""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core import estimators, packed
from modelkin.core.importance import Importance, Origin
from modelkin.core.layout import Layout
from modelkin.core.packed import PackedSupport
from modelkin.core.similarity import matrix as matrices
from modelkin.core.similarity import overlap
from modelkin.core.similarity.overlap import TensorOverlap
from modelkin.core.support import Support
from modelkin.errors import InvalidParameter, InvalidSupport, SpaceMismatch

SPACES = (1, 63, 64, 65, 700, 100_000, 2**32 + 5)


@st.composite
def families(draw: st.DrawFn) -> list[Support]:
    """Up to five supports of one space, dense or sparse."""
    m = draw(st.sampled_from(SPACES))
    some = st.sets(st.integers(0, m - 1), min_size=1, max_size=50)
    most = some.map(lambda left_out: set(range(m)) - left_out or {0}) if m <= 700 else some
    sets = draw(st.lists(some | most, min_size=2, max_size=5))
    return [Support.from_indices(sorted(indices), m) for indices in sets]


def members(support: Support) -> set[int]:
    return set(support.indices.tolist())


@pytest.mark.slow
@given(family=families())
def test_counts_are_those_of_sets(each_kernels: ModuleType, family: list[Support]) -> None:
    """For any two supports, shared, similarity, jaccard and intersection are Python's own sets'."""
    for a, b in itertools.product(family, repeat=2):
        both, either = members(a) & members(b), members(a) | members(b)
        assert len(both) == overlap.shared_count(a, b)
        assert sorted(both) == overlap.intersection(a, b).tolist()
        assert len(both) / len(either) == overlap.jaccard(a, b)
        assert 2 * len(both) / (a.k + b.k) == overlap.similarity(a, b)


@pytest.mark.slow
@given(family=families())
def test_packed_counts_are_the_same(each_kernels: ModuleType, family: list[Support]) -> None:
    """Bitmaps and lists in every pairing, and the matrix of all, count what the supports share."""
    forms = [PackedSupport.pack(support) for support in family]
    matrix = matrices.matrix(forms)
    for i, j in itertools.product(range(len(family)), repeat=2):
        assert overlap.shared_count(family[i], family[j]) == packed.packed_shared_count(
            forms[i], forms[j]
        )
        assert overlap.similarity(family[i], family[j]) == matrix[i, j]


@pytest.mark.slow
@given(family=families())
def test_packed_bytes_come_back(each_kernels: ModuleType, family: list[Support]) -> None:
    """A packed support is its bytes, M and K: nothing is lost on disk."""
    for support in family:
        form = PackedSupport.pack(support)
        again = PackedSupport.from_buffer(form.to_bytes(), support.num_parameters, support.k)
        assert (form.kind, support) == (again.kind, again.unpack())


@pytest.mark.parametrize(("k", "kind"), [(31, "list"), (32, "list"), (33, "bitmap")])
def test_the_smaller_form_is_packed(k: int, kind: str) -> None:
    """A list as long as 4 bytes an index are no more than one bit a parameter, else a bitmap."""
    form = PackedSupport.pack(Support.from_indices(range(k), 1024))
    assert kind == form.kind
    assert min(4 * k, 128) == len(form.to_bytes())


@pytest.mark.parametrize("k", [10, 500])
def test_packed_supports_are_read_in_place(tmp_path: Path, k: int) -> None:
    """From a memory map nothing is copied, and counting over it is exact."""
    support = Support.from_indices(range(0, 2 * k, 2), 1000)
    (tmp_path / "packed").write_bytes(PackedSupport.pack(support).to_bytes())
    with (tmp_path / "packed").open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    form = PackedSupport.from_buffer(view, 1000, k)
    assert np.shares_memory(form.array, np.frombuffer(view, np.uint8))
    assert k == packed.packed_shared_count(form, form)


def test_an_unaligned_buffer_is_copied(each_kernels: ModuleType) -> None:
    """A form that starts at an odd address still counts right."""
    support = Support.from_indices(range(0, 1000, 2), 1000)
    shifted = memoryview(b"-" + PackedSupport.pack(support).to_bytes())[1:]
    form = PackedSupport.from_buffer(shifted, 1000, 500)
    assert 500 == packed.packed_shared_count(form, PackedSupport.pack(support))


def test_packed_bytes_of_another_length_are_refused() -> None:
    """A truncated form is an error that says which length M and K demand."""
    with pytest.raises(InvalidSupport, match="has 128 bytes, or 628 with octaves, not 120"):
        PackedSupport.from_buffer(bytes(120), 1000, 500)


@pytest.mark.parametrize("indices", [[5, 1000], [7, 5], [5, 5]])
def test_a_damaged_list_is_refused(indices: list[int]) -> None:
    """Indices out of range or order would lead a kernel out of the memory it reads."""
    with pytest.raises(InvalidSupport, match="damaged"):
        PackedSupport.from_buffer(np.array(indices, "<u4").tobytes(), 1000, 2)


@pytest.mark.parametrize("word", [0, 1, 2**51 - 1, 2**63])
def test_a_bitmap_of_another_size_is_refused(word: int) -> None:
    """A bitmap that has not K bits is not counted with: some of them have flipped."""
    with pytest.raises(InvalidSupport, match="damaged"):
        PackedSupport.from_buffer(word.to_bytes(8, "little"), 63, 50)


def test_a_bitmap_beyond_its_space_does_not_unpack() -> None:
    """K bits, one of which lies beyond M, are not a support."""
    form = PackedSupport.from_buffer((2**63 | 2**49 - 1).to_bytes(8, "little"), 63, 50)
    with pytest.raises(InvalidSupport, match="of 63 parameters"):
        form.unpack()


def test_the_matrix_is_cut_to_its_memory(
    each_kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices and tiles of any size give one matrix, dense and sparse forms mixed."""
    rng = np.random.default_rng(0)
    drawn = [np.flatnonzero(rng.random(3000) < d) for d in (0.5, 0.02, 0.3, 0.01, 0.6)]
    supports = [Support.from_indices(indices, 3000) for indices in drawn]
    expected = [[overlap.similarity(a, b) for b in supports] for a in supports]
    monkeypatch.setattr(matrices, "MATRIX_BITMAP_BYTES", 7 * 8 * 5)
    monkeypatch.setattr(matrices, "TILE_SIZE", 2)
    assert expected == matrices.matrix([PackedSupport.pack(s) for s in supports]).tolist()


def test_a_matrix_needs_supports() -> None:
    """A matrix of nothing is an error, and of one support it is a one."""
    with pytest.raises(InvalidParameter, match="at least one support"):
        matrices.matrix([])
    form = PackedSupport.pack(Support.from_indices([1], 9))
    assert [[1.0]] == matrices.matrix([form]).tolist()


def test_tensors_share_the_whole(each_kernels: ModuleType) -> None:
    """The overlap in a tensor is that of its slice, compared with chance; without indices none."""
    layout = Layout.of([("a", (4,)), ("none", (0,)), ("b", (3, 2)), ("c", ())])
    a = Support.from_indices([0, 1, 4, 5], layout.num_parameters)
    b = Support.from_indices([1, 2, 9], layout.num_parameters)
    assert (
        TensorOverlap("a", 4, 2, 2, 1, 0.5, 0.5, 0.0),
        TensorOverlap("none", 0, 0, 0, 0, None),
        TensorOverlap("b", 6, 2, 1, 0, 0.0, 4 / 6 / 3, -4 / 6 / 3 / (1 - 4 / 6 / 3)),
        TensorOverlap("c", 1, 0, 0, 0, None),
    ) == overlap.by_tensor(a, b, layout)


def test_different_spaces_are_never_compared() -> None:
    """Supports, forms or a layout of different M are an error, not a zero."""
    a, b = Support.from_indices([1], 5), Support.from_indices([1], 6)
    forms = [PackedSupport.pack(a), PackedSupport.pack(b)]
    for compare in (
        overlap.shared_count,
        overlap.similarity,
        overlap.jaccard,
        overlap.intersection,
    ):
        with pytest.raises(SpaceMismatch, match="of 5 and 6 parameters"):
            compare(a, b)
    with pytest.raises(SpaceMismatch):
        packed.packed_shared_count(forms[0], forms[1])
    with pytest.raises(SpaceMismatch):
        matrices.matrix(forms)
    with pytest.raises(SpaceMismatch, match="layout has 6 parameters"):
        overlap.by_tensor(a, a, Layout.of([("w", (6,))]))


@given(a=st.integers(0, 99), b=st.integers(0, 99), both=st.integers(1, 99))
def test_similarity_and_jaccard_convert(a: int, b: int, both: int) -> None:
    """S = 2J/(1+J) and J = S/(2-S) for every pair of sizes."""
    s, j = estimators.similarity_of(both, a + both, b + both), both / (a + b + both)
    assert pytest.approx(j) == estimators.jaccard_of(s)
    assert pytest.approx(s) == estimators.similarity_from_jaccard(j)


_LAYOUT = Layout.of({"a": (10,), "b": (30,)}.items())
_SWAPPED = Layout.of({"b": (30,), "a": (10,)}.items())
_FISHER = Origin(Importance.of("fisher"), _LAYOUT)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Origin(Importance.of("weight")), "selected by fisher and by weight"),
        (Origin(layout=_SWAPPED), r"same tensors in another order.*reordered"),
        (Origin(layout=Layout.of({"a": (40,)}.items())), r"'a' has shape \[10\] in .* \[40\] in"),
        (Origin(blinding="shake256:" + "0" * 32), "under no key and in one under shake256:0"),
    ],
)
def test_different_origins_do_not_compare(other: Origin, message: str) -> None:
    """Two kinds of importance, or two layouts, are an error that names both, not a number."""
    a, b = Support([1, 5], 40, origin=_FISHER), Support([1, 5], 40, origin=other)
    for compare in (
        overlap.similarity,
        overlap.jaccard,
        overlap.intersection,
        overlap.shared_count,
    ):
        with pytest.raises(SpaceMismatch, match=message):
            compare(a, b)
    with pytest.raises(SpaceMismatch, match=message):
        overlap.by_tensor(a, b, _LAYOUT)
    for estimate in ("jaccard", "similarity", "standard_error"):
        with pytest.raises(SpaceMismatch, match=message):
            getattr(a.signature(), estimate)(b.signature())


def test_what_only_one_support_states_refuses_nothing() -> None:
    """A support without an origin, or with half of one, compares as before."""
    a = Support([1, 5], 40, origin=_FISHER)
    for origin in (None, Origin(), Origin(Importance.of("fisher", note="2 epochs")), _FISHER):
        b = Support([1, 5], 40, origin=origin)
        assert 1.0 == overlap.similarity(a, b) == a.signature().similarity(b.signature())


def test_differences_from_two_bases_do_not_compare() -> None:
    """Deltas name their base, and those of another are of another kind."""
    first, second = (
        Support([1, 5], 40, origin=Origin(Importance.of("delta", f"sha256:{digit * 64}")))
        for digit in "ab"
    )
    with pytest.raises(SpaceMismatch, match=r"delta against sha256:a+ and by delta.*sha256:b+"):
        overlap.similarity(first, second)


@pytest.mark.parametrize("other", [np.arange(3), None, "a.mksp"])
def test_what_is_no_support_is_refused(other: Any) -> None:
    """On either side, with what makes one."""
    own = Support.from_indices([1, 2], 9)
    for pair in ((own, other), (other, own)):
        with pytest.raises(InvalidParameter, match="make one of an importance"):
            overlap.similarity(*pair)
