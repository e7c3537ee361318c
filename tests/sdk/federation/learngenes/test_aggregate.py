"""Eq. 9: the mean of each tensor over the members that sent it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkin.errors import InvalidParameter
from modelkin.federation.learngenes.aggregate import aggregate, unfit

Array = npt.NDArray[Any]
SHAPES = {"a.weight": (3, 4), "a.bias": (3,), "b.weight": (2, 3), "b.scale": ()}


def tensors(seed: int, dtype: type[np.floating[Any]] = np.float32) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.normal(size=s), dtype) for n, s in SHAPES.items()}


@pytest.mark.slow
@given(
    st.dictionaries(
        st.integers(0, 2**62),
        st.tuples(st.integers(1, 10**6), st.frozensets(st.sampled_from([*SHAPES]), min_size=1)),
        min_size=1,
        max_size=7,
    ),
    st.integers(1, 4),
)
def test_it_is_the_weighted_mean_over_senders(
    members: dict[int, tuple[int, frozenset[str]]], min_members: int
) -> None:
    """Within 1e-7 of numpy's float64 average, for any members, weights and tensors sent."""
    before = tensors(0)
    sent = {
        node: {n: v for n, v in tensors(node % 1000 + 1).items() if n in names}
        for node, (_, names) in members.items()
    }
    examples = {node: float(count) for node, (count, _) in members.items()}
    result = aggregate(before, sent, examples=examples, min_members=min_members)
    for name, old in before.items():
        senders = [node for node in sent if name in sent[node]]
        assert len(senders) == result.members[name]
        if len(senders) < min_members:
            assert name in result.kept
            assert result.tensors[name] is old
            continue
        stacked = np.stack([sent[node][name] for node in senders]).astype(np.float64)
        expected = np.average(stacked, axis=0, weights=[examples[node] for node in senders])
        np.testing.assert_allclose(result.tensors[name], expected, rtol=1e-7, atol=1e-7)
        assert np.float32 == result.tensors[name].dtype


def test_the_order_of_arrival_changes_no_bit() -> None:
    """Members count in ascending ids, numbers by value and names by code point."""
    before, nodes = tensors(0), [2, 10, 7, 3]
    sent = {node: tensors(node) for node in nodes}
    turned = {node: sent[node] for node in reversed(nodes)}
    weights = {node: 0.1 * node for node in nodes}
    one, other = (aggregate(before, each, examples=weights) for each in (sent, turned))
    assert all((one.tensors[name] == other.tensors[name]).all() for name in SHAPES)


def test_equal_weights_are_the_paper_s() -> None:
    """Without examples every member counts alike; a result is rounded once, to the old dtype."""
    before = tensors(0, np.float16)
    sent = {name: tensors(seed, np.float16) for seed, name in enumerate("abc")}
    result = aggregate(before, sent)
    for name in SHAPES:
        exact = np.mean([sent[m][name].astype(np.float64) for m in "abc"], axis=0)
        assert (exact.astype(np.float16) == result.tensors[name]).all()
    assert () == result.kept


def test_nothing_that_was_given_is_changed() -> None:
    """Old values and what members sent stay as they are."""
    before, sent = tensors(0), {node: tensors(node) for node in (1, 2, 3)}
    aggregate(before, sent)
    assert all((before[name] == tensors(0)[name]).all() for name in SHAPES)
    assert all((sent[2][name] == tensors(2)[name]).all() for name in SHAPES)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, "it sent no tensor"),
        ({"c": np.ones(2, np.float32)}, "a tensor 'c' that the cluster does not have"),
        ({"a.bias": np.ones(2, np.float32)}, r"the shape \[2\], not \[3\]"),
        ({"a.bias": np.ones(3, np.int64)}, "of int64, not of floats"),
        ({"a.bias": np.array([1, np.nan, 0], np.float32)}, "NaN or infinite"),
        ({"a.bias": np.array([1, 1e300, 0])}, "NaN or infinite"),
    ],
)
def test_what_a_member_may_not_send(wrong: dict[str, Array], reason: str) -> None:
    """The reason serves to leave a member out; an average refuses it by its name."""
    before = tensors(0)
    with pytest.raises(InvalidParameter, match=f"member 7: .*{reason}"):
        aggregate(before, {1: tensors(1), 7: wrong, 9: tensors(9)})
    assert unfit(tensors(1), before) is None


@pytest.mark.parametrize("count", [0, -1, float("nan"), float("inf"), None, True, "3"])
def test_weights_are_positive_numbers(count: Any) -> None:
    """Each member has one."""
    with pytest.raises(InvalidParameter, match="examples of member 2 must be a positive number"):
        aggregate(tensors(0), {1: tensors(1), 2: tensors(2)}, examples={1: 3, 2: count})


@pytest.mark.parametrize("least", [0, True, 1.5])
def test_min_members_is_a_count(least: Any) -> None:
    """At least one."""
    with pytest.raises(InvalidParameter, match="min_members must be a whole number"):
        aggregate(tensors(0), {1: tensors(1)}, min_members=least)
