"""Weights by what members add: those of all orders, bounded, and estimated from signatures."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from modelkin import Support
from modelkin.errors import SpaceMismatch
from modelkin.federation.additions import cover, holders, rarity

M = 400


def supports(*sizes: int, seed: int = 0) -> list[Support]:
    """Supports with a common core of a third of the smallest."""
    rng, core = np.random.default_rng(seed), min(sizes) // 3
    found = []
    for size in sizes:
        others = rng.choice(np.arange(core, M), size - core, replace=False)
        found.append(Support.from_indices(np.sort([*range(core), *others]), M))
    return found


def test_cover_is_the_mean_of_what_is_added_in_all_orders() -> None:
    """The formula gives what a walk through every order adds, over each member's own K."""
    members = supports(30, 30, 45, 60)
    sets = [set(each.indices.tolist()) for each in members]
    added = np.zeros(len(sets))
    for order in permutations(range(len(sets))):
        before: set[int] = set()
        for at in order:
            added[at] += len(sets[at] - before)
            before |= sets[at]
    expected = added / math.factorial(len(sets)) / [each.k for each in members]
    assert cover(holders(members)) == pytest.approx(expected.tolist())


def test_rarity_is_one_and_the_mean_of_logarithms() -> None:
    """An index of c of n members is as rare as donors have it, over that of one of them alone."""
    members = supports(30, 40, 50)
    held = np.zeros((3, M), bool)
    for row, each in zip(held, members, strict=True):
        row[each.indices] = True
    rare = np.log(4 / (held.sum(axis=0) + 1)) / math.log(2)
    expected = [1 + rare[row].mean() for row in held]
    assert rarity(holders(members)) == pytest.approx(expected)


def test_members_alike_weigh_alike() -> None:
    """Copies of a support share what it adds, and one that is alone has a weight, too."""
    one, other = supports(30, 30)
    assert cover(holders([one] * 4)) == pytest.approx([0.25] * 4)
    assert rarity(holders([one] * 4)) == pytest.approx([1.0] * 4)
    weights = np.array(cover(holders([one, one, other])))
    assert weights[0] == weights[1] < weights[2]
    for measure in (cover, rarity):
        (alone,) = measure(holders([one]))
        assert 1.0 == alone


@pytest.mark.parametrize(
    ("sizes", "most"), [((60, 60), 1 / 2), ((60,) * 7, 1 / 2), ((3, 60, 60), 3 / 5)]
)
def test_no_member_is_the_whole_mean(sizes: tuple[int, ...], most: float) -> None:
    """Even one unlike all others has half at most by cover, and twice the least by rarity.

    Of n supports of unlike sizes it is n / (2 n - 1).
    """
    *others, odd = supports(*sizes)
    members = [*[others[0]] * len(others), odd]
    shares = np.array(cover(holders(members)))
    assert (shares / shares.sum()).max() <= most
    weights = np.array(rarity(holders(members)))
    assert weights.max() <= 2 * weights.min()


def test_signatures_estimate_the_weights() -> None:
    """Of many permutations they are near those of the supports; one signature is enough for all."""
    members = supports(60, 60, 90, 60, seed=4)
    signed: list[Any] = [each.signature(4096) for each in members]
    for measure in (cover, rarity):
        exact = measure(holders(members))
        assert measure(holders(signed)) == pytest.approx(exact, rel=0.06)
        assert measure(holders(signed)) == measure(holders([*members[:3], signed[3]]))


def test_a_signature_without_a_least_value_has_no_weight() -> None:
    """With one permutation one member has the least index of all, and the others say nothing."""
    members = [Support.from_indices([at], M).signature(1) for at in range(3)]
    found = cover(holders(members))
    assert [None, None, 1.0] == sorted(found, key=lambda value: value is not None)


def test_contents_that_cannot_be_compared_are_refused() -> None:
    """Supports of other models, and signatures of other seeds."""
    one = supports(30)[0]
    with pytest.raises(SpaceMismatch, match="numbers of parameters"):
        holders([one, Support.from_indices([1], M + 1)])
    with pytest.raises(SpaceMismatch, match="seed"):
        holders([one.signature(), one.signature(seed=2)])
