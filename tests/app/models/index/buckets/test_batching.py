"""Splitting a history into steps, and choosing the buckets that a query reads."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from app.models.index.buckets.batching import Step, choose_buckets, split_into_steps

SIZES = st.lists(st.integers(0, 20), max_size=12).map(lambda s: np.array(s, np.int64))
CHANGES = st.lists(st.tuples(st.integers(1, 30), st.none() | st.binary(max_size=2)), max_size=30)


@given(SIZES, st.integers(0, 25), st.integers(0, 60))
def test_a_choice_keeps_its_bounds(sizes: np.ndarray, cap: int, limit: int) -> None:
    """No chosen bucket is over the cap or empty, and all together are within the limit."""
    chosen, truncated = choose_buckets(sizes, cap=cap, limit=limit)
    assert all(0 < size <= cap for size in sizes[chosen])
    assert sizes[chosen].sum() <= limit
    assert truncated == (sizes[chosen].sum() < sizes.sum())


def test_equal_buckets_are_chosen_in_order() -> None:
    """Of buckets of one size the first are chosen, so that the result is always the same."""
    chosen, truncated = choose_buckets(np.array([2, 2, 2]), cap=9, limit=4)
    assert ([0, 1], True) == (chosen.tolist(), truncated)


@given(CHANGES, st.integers(1, 7))
def test_steps_join_to_the_whole(
    changes: list[tuple[int, bytes | None]], max_step_size: int
) -> None:
    """Steps lead from the first version to the last without a gap, and carry every change once."""
    feed = [(2 * v, model, data) for v, (model, data) in enumerate(changes, 1)]
    steps = list(split_into_steps(feed, 0, 100, max_step_size=max_step_size))
    assert 0 == steps[0].since
    assert 100 == steps[-1].until
    assert [s.until for s in steps[:-1]] == [s.since for s in steps[1:]]
    assert all(len(s.upserts) + len(s.removals) <= max_step_size for s in steps)
    assert [c for c in changes if c[1] is not None] == [u for s in steps for u in s.upserts]
    assert [c[0] for c in changes if c[1] is None] == [r for s in steps for r in s.removals]


def test_a_version_is_never_cut_in_two() -> None:
    """Changes of one version stay in one step, though the one before could have held some."""
    feed = [(1, 10, b"a"), (2, 11, b"b"), (2, 12, None), (3, 13, b"c")]
    steps = list(split_into_steps(feed, 0, 5, max_step_size=2))
    assert [
        Step(0, 1, ((10, b"a"),), ()),
        Step(1, 2, ((11, b"b"),), (12,)),
        Step(2, 5, ((13, b"c"),), ()),
    ] == steps


def test_a_version_too_large_for_a_step_is_an_error() -> None:
    """One version with more changes than a step may hold cannot be split."""
    with pytest.raises(ValueError, match="version 7"):
        list(split_into_steps([(7, m, b"x") for m in range(4)], 0, 7, max_step_size=3))


def test_an_empty_history_is_one_step() -> None:
    """A history without changes is one empty step."""
    assert [Step(3, 9, (), ())] == list(split_into_steps([], 3, 9))
