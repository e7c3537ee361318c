"""What attacks on averages are measured with: rivals against a count by hand, and the attacks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.federation.robust import (
    ATTACKS,
    NONE,
    SIGNS,
    SMALL,
    attacked,
    coordinate_median,
    krum,
    trimmed_mean,
)


def updates(seed: int, members: int = 9, size: int = 5) -> np.ndarray:
    """Updates of which the first is far from all others."""
    found = np.random.default_rng(seed).normal(size=(members, size))
    found[0] += 20
    return found


@pytest.mark.parametrize("seed", range(3))
def test_krum_is_the_update_nearest_to_its_nearest(seed: int) -> None:
    """By the definition: the least sum of squared distances to the n - f - 2 nearest others."""
    sent, attackers = updates(seed), 2
    scores = []
    for at, own in enumerate(sent):
        far = sorted(float(((own - other) ** 2).sum()) for i, other in enumerate(sent) if i != at)
        scores.append(sum(far[: len(sent) - attackers - 2]))
    order = np.argsort(scores)
    np.testing.assert_allclose(krum(sent, attackers), sent[order[0]])
    np.testing.assert_allclose(krum(sent, attackers, 5), sent[order[:5]].mean(axis=0))
    assert 0 not in order[:5]


@pytest.mark.parametrize("seed", range(3))
def test_medians_and_trimmed_means_are_those_counted_by_hand(seed: int) -> None:
    """Coordinate by coordinate."""
    sent = updates(seed)
    columns = [sorted(column) for column in sent.T.tolist()]
    np.testing.assert_allclose(coordinate_median(sent), [column[4] for column in columns])
    cut = [sum(column[2:7]) / 5 for column in columns]
    np.testing.assert_allclose(trimmed_mean(sent, 2), cut)
    np.testing.assert_allclose(trimmed_mean(sent, 0), sent.mean(axis=0))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_changes_what_attackers_send_alone(attack: str) -> None:
    """Honest rows stay; noise is as long as said, and the small attack within the others'."""
    sent, attackers = updates(1), np.arange(9) < 2
    found = attacked(attack, sent, attackers, np.random.default_rng(0))
    np.testing.assert_array_equal(sent[2:], found[2:])
    lengths = np.linalg.norm(found[:2], axis=1) / np.linalg.norm(sent[:2], axis=1)
    if attack == SMALL:
        honest = sent[2:]
        np.testing.assert_allclose(found[0], honest.mean(axis=0) - honest.std(axis=0))
    else:
        np.testing.assert_allclose(lengths, 10 if attack.endswith("x10") else 1)
    if attack.startswith(SIGNS):
        assert (np.sign(found[:2]) == -np.sign(sent[:2])).all()
    if attack == NONE:
        np.testing.assert_array_equal(sent, found)
