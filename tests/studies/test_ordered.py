"""Ordered similarities beside sums by hand, and the rule that judges what they gain."""

from __future__ import annotations

import numpy as np
import pytest

from modelkin import select_support
from studies.cells import Cell
from studies.rarity import rare_overlap
from studies.sections.gains import gaining, ordered
from studies.settings import DIRICHLET, NETWORKS, Setting
from tests.support.orders.reference import important_first, octave_weights, ordered_cosine


def test_octaves_have_equal_shares_of_the_length() -> None:
    """Ranks 1; 2 and 3; 4 to 7 weigh 1, 1/sqrt(2) and 1/2: each octave's squares sum to 1."""
    weights = octave_weights(15)
    assert [1, 2**-0.5, 2**-0.5, 0.5] == pytest.approx(weights[:4].tolist())
    assert [1, 1, 1, 1] == pytest.approx(
        [float((weights[a - 1 : 2 * a - 1] ** 2).sum()) for a in (1, 2, 4, 8)]
    )


def test_an_order_counts_the_first_ranks_most() -> None:
    """Two supports of the same indices are alike as far as their first ranks agree."""
    first = [np.array([5, 1, 2])]
    assert ordered_cosine(first, [np.array([5, 2, 1])], 8) == pytest.approx(1)
    swapped = ordered_cosine(first, [np.array([1, 5, 2])], 8)
    assert swapped == pytest.approx((2 * 2**-0.5 + 0.5) / 2)
    assert ordered_cosine(first, [np.array([0, 3, 4])], 8) == pytest.approx(0)


def test_an_order_is_that_of_the_support_s_importance() -> None:
    """Indices come by falling importance, ties by index, and without those of no importance."""
    importance = np.array([0.1, 0.0, 0.5, 0.5, 0.9], np.float32)
    (found,) = important_first(importance[None], [select_support(importance, k=4)])
    assert [4, 2, 3, 0] == found.tolist()


def test_rarity_is_overlap_where_all_indices_are_as_rare() -> None:
    """With one weight for all, it is S; an index that all clients have counts nothing."""
    sets = [{0, 1}, {1, 2}, {2, 3}, {3, 0}]  # each index twice
    rows = [np.array(sorted(each)) for each in sets]
    found = rare_overlap(rows, 6)
    assert found[0].tolist() == pytest.approx([1, 0.5, 0, 0.5])
    common = [np.append(each, 5) for each in rows]
    assert rare_overlap(common, 6) == pytest.approx(found)


def cells(gain: float, networks: int) -> list[Cell]:
    """Three seeds each, in which so many of the networks gain, and the others nothing."""
    made = []
    for number, network in enumerate(NETWORKS):
        for split in DIRICHLET:
            for seed in range(3):
                more = gain + 0.001 * seed if number < networks else 0.0
                rows = {
                    name: {"R@8": 0.8 + (more if "ordered" in name else 0), "label presence": 0.9}
                    for name in (
                        "A: IOS",
                        "A: ordered",
                        "A: rarity",
                        "A: mean over K",
                        "B: IOS",
                        "B: ordered",
                    )
                }
                made.append(Cell("ordered", Setting(network=network, split=split, seed=seed), rows))
    return made


@pytest.mark.parametrize(
    ("gain", "networks", "word"),
    [(0.05, 2, "spaces have them"), (0.05, 1, "not worth it"), (0.02, 3, "not worth it")],
)
def test_two_networks_must_gain(gain: float, networks: int, word: str) -> None:
    """Ordered supports are worth a format with 0.04 in two of three networks, and not below."""
    found = cells(gain, networks)
    assert len(gaining(found)) == (networks if gain > 0.04 else 0)
    assert any(word in block for block in ordered(found))
