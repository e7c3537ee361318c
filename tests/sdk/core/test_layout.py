"""``Layout``: tensors, their sizes and their places."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.core.layout import Layout, TensorSpec
from modelkin.errors import InvalidLayout

SMALL = Layout.of([("conv", (2, 3)), ("empty", (0, 4)), ("scale", ()), ("head", (5,))])


def test_sizes_and_ends() -> None:
    """Sizes are products of shapes, a scalar has one parameter, an empty tensor none."""
    assert [6, 0, 1, 5] == [tensor.size for tensor in SMALL.tensors]
    assert [6, 6, 7, 12] == SMALL.ends.tolist()
    assert 12 == SMALL.num_parameters


@given(st.sets(st.integers(0, 11), min_size=1))
def test_counts_by_tensor(indices: set[int]) -> None:
    """Every index is counted in the tensor that it lies in."""
    bounds = [(0, 6), (6, 6), (6, 7), (7, 12)]
    expected = [sum(a <= i < b for i in indices) for a, b in bounds]
    assert expected == SMALL.counts(np.array(sorted(indices), np.uint32)).tolist()


def test_json_round_trip() -> None:
    """A layout is what its JSON says."""
    assert {"name": "conv", "shape": [2, 3]} == SMALL.to_json()[0]
    assert SMALL == Layout.from_json(SMALL.to_json())
    trusted = Layout.trusted(SMALL.to_json())
    assert (SMALL, hash(SMALL), SMALL.digest) == (trusted, hash(trusted), trusted.digest)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([], "at least one tensor"),
        ([("a", (1,)), ("a", (2,))], "'a'.* twice"),
        ([("", (1,))], r"layout\[0\] has no name"),
        ([("a", (1,)), (3, (1,))], r"layout\[1\] has no name"),
        ([("a", (1.5,))], "shape of 'a' must be integers"),
        ([("a", (2, -1))], "negative dimension"),
        ([("a", (0,))], "0 parameters"),
        ([("a", (2**62, 2))], "9223372036854775808 parameters"),
    ],
)
def test_what_is_no_layout(tensors: Any, message: str) -> None:
    """Tensors that make no layout are refused, by name where there is one."""
    with pytest.raises(InvalidLayout, match=message):
        Layout.of(tensors)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ((), "at least one tensor"),
        ((("a", (1,)),), r"layout\[0\] must be a TensorSpec.*Layout.of takes pairs"),
        ((TensorSpec("a", (1,)), TensorSpec("a", (2,))), "twice"),
        ((TensorSpec("", (1,)),), "has no name"),
        ((TensorSpec("a", (-1,)),), "negative dimension"),
        ((TensorSpec("a", cast(Any, 3)),), "must be integers"),
        (7, "made of tensors, not of 7"),
    ],
)
def test_the_constructor_checks_what_it_is_given(tensors: Any, message: str) -> None:
    """``Layout(...)`` refuses what ``Layout.of`` refuses."""
    with pytest.raises(InvalidLayout, match=message):
        Layout(tensors)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.lists(st.integers(-1, 3), max_size=3)))
)
def test_a_layout_is_valid_or_refused(pairs: list[tuple[str, list[int]]]) -> None:
    """Distinct names, dimensions of 0 and more, and a parameter: those make a layout, no others."""
    names = [name for name, _ in pairs]
    sizes = [int(np.prod(shape)) for _, shape in pairs]
    valid = len(set(names)) == len(names) and "" not in names and sum(sizes) > 0
    valid = valid and all(d >= 0 for _, shape in pairs for d in shape)
    tensors = tuple(TensorSpec(name, tuple(shape)) for name, shape in pairs)
    if valid:
        assert Layout(tensors) == Layout.of(pairs)
        assert sum(sizes) == Layout(tensors).num_parameters
        return
    with pytest.raises(InvalidLayout):
        Layout(tensors)


def test_the_constructor_takes_any_iterable_of_tensors() -> None:
    """A list of tensors, with numpy's integers, makes an equal layout that can be hashed."""
    tensors: Any = [TensorSpec(t.name, tuple(np.array(t.shape))) for t in SMALL.tensors]
    assert SMALL == Layout(tensors)
    assert hash(SMALL) == hash(Layout(tensors))


def test_the_largest_layout() -> None:
    """2^63 - 1 parameters still fit, and their last end is exact."""
    layout = Layout.of([("a", (2**62,)), ("b", (2**62 - 1,))])
    assert 2**63 - 1 == layout.num_parameters == int(layout.ends[-1])
