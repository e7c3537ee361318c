"""``Support``: valid by construction, immutable, one value."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.importance import Importance, Origin
from modelkin.core.indices import MAX_PARAMETERS, index_dtype
from modelkin.core.layout import Layout
from modelkin.core.support import Support
from modelkin.core.support_files import origin_path, write_origin
from modelkin.errors import InvalidParameter, InvalidSupport, SpaceMismatch


@pytest.mark.parametrize(
    "indices",
    [[1, 5, 9], (1, 5, 9), range(1, 10, 4), np.array([1, 5, 9]), np.array([1, 5, 9], ">i2"),
     np.array([1, 0, 5, 0, 9], np.uint8)[::2], torch.tensor([1, 5, 9])],
)  # fmt: skip
def test_any_integers_make_a_support(indices: Any) -> None:
    """Lists, ranges, arrays of any integer type and tensors give one and the same support."""
    support = Support.from_indices(indices, 10)
    assert ([1, 5, 9], np.dtype(np.uint32)) == (support.indices.tolist(), support.indices.dtype)
    assert (3, 10, 0.3, 3) == (support.k, support.num_parameters, support.density, len(support))


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "at least one index"),
        ([3, 1], r"not sorted: indices\[0\] = 3 is followed by 1"),
        ([1, 1], r"repeated: indices\[0\] = 1"),
        (np.array([2, 1], np.uint64), "not sorted"),
        ([-1, 2], r"indices\[0\] = -1 is negative"),
        ([1, 10], r"indices\[1\] = 10 is out of range for 10"),
        ([1, 2**64], "does not fit"),
        ([-1, 2**63], "does not fit"),
        ([1.0, 2.0], "must be integers"),
        (np.array([1.5]), "must be integers"),
        ([True, False], "must be integers"),
        ([[1, 2]], "one-dimensional"),
        (["1"], "must be integers"),
        ([1, None], "must be integers"),
        ([[1], [2, 3]], "not an array of integers"),
        (None, "must be integers"),
        (2**70, "must be integers"),
        (torch.ones(2, dtype=torch.bfloat16), "not an array of integers"),
        (7, "one-dimensional"),
    ],
)
def test_what_is_no_support(indices: Any, message: str) -> None:
    """Everything else is refused with what is wrong and where, and nothing is sorted silently."""
    with pytest.raises(InvalidSupport, match=message):
        Support.from_indices(indices, 10)


@pytest.mark.parametrize("m", [0, -1, MAX_PARAMETERS + 1, 1.0, "10", True, None])
def test_what_is_no_index_space(m: Any) -> None:
    """M is an integer of 1 to 2^63 - 1."""
    with pytest.raises(InvalidParameter, match="num_parameters must be"):
        Support.from_indices([0], m)


@pytest.mark.parametrize(("m", "dtype"), [(2**32, np.uint32), (2**32 + 1, np.uint64)])
def test_indices_take_32_bits_while_they_can(m: int, dtype: type) -> None:
    """uint32 holds every index up to M = 2^32, uint64 beyond; the last index is a valid one."""
    support = Support.from_indices([m - 1], m)
    assert dtype == index_dtype(m) == support.indices.dtype
    assert [m - 1] == support.indices.tolist()


def test_a_support_cannot_be_changed() -> None:
    """Neither through its indices nor through the array it was made from."""
    given_array = np.array([1, 2], np.uint32)
    support = Support.from_indices(given_array, 9)
    given_array[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        support.indices[0] = 0
    assert [1, 2] == support.indices.tolist()


@given(st.sets(st.integers(0, 30), min_size=1), st.sets(st.integers(0, 30), min_size=1))
def test_equality_is_that_of_sets(a: set[int], b: set[int]) -> None:
    """Supports are equal, hash alike and share a digest exactly when their sets are equal."""
    x, y = (Support.from_indices(sorted(s), 31) for s in (a, b))
    assert (a == b) == (x == y) == (x.digest == y.digest)
    assert len({frozenset(a), frozenset(b)}) == len({x, y})


def test_the_space_is_part_of_the_value() -> None:
    """The same indices of another M are another support with another digest."""
    a, b = Support.from_indices([1], 9), Support.from_indices([1], 10)
    assert a != b
    assert a.digest != b.digest
    assert a != [1]


def test_repr_says_how_dense() -> None:
    """A support in a session says its K, M and density, not its indices."""
    assert "<Support of 2 of 1,000 parameters (0.20%)>" == repr(Support.from_indices([1, 2], 1000))


def test_the_constructor_checks_what_it_is_given() -> None:
    """``Support(...)`` refuses what ``from_indices`` refuses, and equals it for the rest."""
    with pytest.raises(InvalidSupport, match="not sorted"):
        Support([5, 3], 10)
    with pytest.raises(InvalidSupport, match="out of range"):
        Support(np.array([1, 2**40], np.uint64), 10)
    assert Support([1, 5], 10) == Support.from_indices([1, 5], 10)


@given(st.lists(st.integers(-3, 30), max_size=8), st.integers(-1, 30))
def test_the_constructor_takes_ascending_indices_and_nothing_else(
    indices: list[int], num_parameters: int
) -> None:
    """Whatever it is given, it makes a support of just that, or refuses it as input."""
    valid = indices == sorted(set(indices)) and all(0 <= i < num_parameters for i in indices)
    if valid and indices:
        support = Support(indices, num_parameters)
        assert (indices, num_parameters) == (support.indices.tolist(), support.num_parameters)
        assert support == Support.from_bytes(support.to_bytes())
        return
    with pytest.raises((InvalidSupport, InvalidParameter)):
        Support(indices, num_parameters)


def test_the_origin_of_a_support_is_beside_its_value() -> None:
    """Supports of other origins are one value; pickles and ``with_origin`` keep the origin."""
    layout = Layout.of([("a", (4,)), ("b", (6,))])
    origin = Origin(Importance.of("weight"), layout)
    plain, stated = Support([1, 5], 10), Support.from_indices([1, 5], 10, origin=origin)
    assert stated == plain
    assert hash(stated) == hash(plain)
    assert stated.digest == plain.digest
    assert stated.to_bytes() == plain.to_bytes()
    assert (plain.origin, stated.origin) == (None, origin)
    copied = pickle.loads(pickle.dumps(stated))
    assert copied == stated
    assert copied.origin == origin
    assert not copied.indices.flags.writeable
    assert plain.with_origin(origin).origin == origin
    assert stated.with_origin(None).origin is None
    assert Support.from_bytes(stated.to_bytes()).origin is None


def test_an_origin_of_another_size_is_refused() -> None:
    """The layout of an origin is of the support's M, and a kind alone is not an origin."""
    origin = Origin(layout=Layout.of([("a", (9,))]))
    with pytest.raises(SpaceMismatch, match="9 parameters, the support 10"):
        Support([1, 5], 10, origin=origin)
    with pytest.raises(InvalidParameter, match="origin must be"):
        Support([1, 5], 10).with_origin(cast(Any, "weight"))


def test_a_saved_support_keeps_its_origin(tmp_path: Path) -> None:
    """Its kind, base and tensors; a support without one leaves no file of an earlier one."""
    layout = Layout.of([("w", (4, 2)), ("b", (2,))])
    origin = Origin(Importance("delta", "sha256:" + "ab" * 32), layout)
    support = Support([1, 4, 9], 10, origin=origin)
    path = tmp_path / "own.mksp"
    support.save(path)
    loaded = Support.load(str(path))
    assert (support, origin) == (loaded, loaded.origin)
    assert support.to_bytes() == path.read_bytes()
    support.with_origin(None).save(path)
    assert ["own.mksp"] == [each.name for each in tmp_path.iterdir()]
    assert Support.load(path).origin is None


@pytest.mark.parametrize("beside", ["of another", "of another size", "damaged", "no object"])
def test_an_origin_that_is_not_the_supports_does_not_count(tmp_path: Path, beside: str) -> None:
    """The file beside a support names its digest, and may be anything."""
    path = tmp_path / "own.mksp"
    support = Support([1, 4, 9], 10)
    support.save(path)
    if beside == "of another":
        write_origin(path, Support([1, 4], 10).digest, Origin(Importance("fisher")))
    elif beside == "of another size":
        write_origin(path, support.digest, Origin(Importance("fisher"), Layout.of([("w", (4,))])))
    else:
        origin_path(path).write_text("[]" if beside == "no object" else '{"digest"')
    assert Support.load(path).origin is None


def test_a_file_that_holds_no_support_is_refused(tmp_path: Path) -> None:
    """Another file, or none."""
    (tmp_path / "other").write_bytes(b"other")
    with pytest.raises(InvalidSupport):
        Support.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        Support.load(tmp_path / "nowhere")
