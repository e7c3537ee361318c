"""Nothing speaks against the truth, and what a sender is known for speaks against others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from studies.attacks.knowledge import (
    between,
    clipped,
    larger_unseen,
    matching,
    smaller_unseen,
)

TRUTH = torch.tensor([3.0, -0.5, 1.0, 0.25, -2.0, 0.0])


def test_matching_weighs_values_by_their_errors() -> None:
    """The definition in numpy; coordinates that were not seen count for nothing."""
    at, error = torch.tensor([0, 2, 4]), torch.tensor([1.0, 0.5, 2.0])
    seen, guess = TRUTH[at], torch.arange(6.0)
    weight = 1 / error.numpy()
    difference = (guess[at] - seen).numpy() * weight
    wanted = (difference**2).sum() / ((seen.numpy() * weight) ** 2).sum()
    assert float(matching(seen, at, error)(guess)) == pytest.approx(float(wanted))
    assert float(matching(seen, at)(TRUTH + torch.eye(6)[1])) == 0


def test_clipping_forgets_the_size_of_a_gradient() -> None:
    """Any multiple above the norm fits; one below it does not."""
    everything = torch.arange(6)
    cut = TRUTH / TRUTH.norm()
    mismatch = clipped(cut, everything, 1.0)
    for factor in (1.0, 7.0):
        assert float(mismatch(TRUTH * factor)) == pytest.approx(0, abs=1e-12)
    assert float(mismatch(cut / 2)) == pytest.approx(0.25)


def test_steps_allow_all_values_that_round_to_them() -> None:
    """Inside nothing is lost; outside the distance to the step is."""
    at = torch.arange(6)
    mismatch = between(TRUTH - 0.5, TRUTH + 0.5, at)
    assert float(mismatch(TRUTH + 0.4)) == 0
    assert float(mismatch(TRUTH + 1.5)) == pytest.approx(1.0)


def test_what_was_not_sent_is_bounded_by_what_was() -> None:
    """Above the least of Top-k, or below the largest of what PriPrune left, it is held against."""
    largest, rest = torch.tensor([0, 4]), torch.tensor([1, 2, 3, 5])
    top, left = smaller_unseen(TRUTH[largest], largest), larger_unseen(TRUTH[rest], rest)
    for mismatch in (top, left):
        assert float(mismatch(TRUTH)) == 0
    higher, lower = TRUTH.clone(), TRUTH.clone()
    higher[1], lower[0] = -2.5, 0.25
    power = float(np.square(TRUTH[largest].numpy()).sum())
    assert float(top(higher)) == pytest.approx(0.25 / power)
    power = float(np.square(TRUTH[rest].numpy()).sum())
    assert float(left(lower)) == pytest.approx(0.75**2 / power)
