"""The cells of wide lines and of rotations, small, from what they measure to gates and page."""

from __future__ import annotations

import numpy as np
import pytest

from studies.lines.gates import gates_of_lines
from studies.lines.networks.others import GRAPH
from studies.lines.rotations import compared, rotated, rotation_figures
from studies.lines.section import section
from studies.lines.trained import Trained
from studies.lines.wide import WEIGHTS, Weights, of_kin, of_wide_strangers
from studies.lines.zoo import Zoo

WIDTH = 4096


def test_wide_lines_are_as_expected() -> None:
    """Kin by what sets have in common, strangers by chance, on the page and by the gates."""
    kin = of_kin("unequal places", WIDTH, 100)
    strangers = of_wide_strangers("unequal places", WIDTH, 1536)
    assert 0.7 < kin["drift 0.01"] < 0.95
    assert kin["drift 0.3"] < 0.1
    assert kin["Q4_0"] < 0.05 < 0.5 < kin["Q8_0"]
    assert strangers["chance by 2"] == pytest.approx(strangers["equal by 2"], rel=0.2)
    assert 0 == strangers["equal"] < strangers["chance"] < 0.001
    cells = {"wide lines": {"unequal places, 4,096": kin | strangers}}
    pairs, by_two, by_three, share = gates_of_lines(cells)
    assert not pairs.met  # 2.4e6 of 1e9
    assert by_two.met
    assert share.met
    assert strangers["equal by 3"] / strangers["chance by 3"] == by_three.seen  # 2.4 are expected
    assert "| unequal places, 4,096 |" in "\n".join(section(cells))


@pytest.mark.parametrize("name", WEIGHTS)
def test_wide_weights_are_the_same_again(name: str) -> None:
    """Block by block, and others for strangers."""
    first, again, other = (Weights(name, 1000, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.block(3), again.block(3))
    assert not np.array_equal(first.block(3), first.block(4))
    assert not np.array_equal(first.block(3), other.block(3))


def test_a_cell_of_rotations_is_made_of_untrained_networks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A rotated base is seen, and a stranger is not."""
    zoo = Zoo(tmp_path_factory.mktemp("zoo"))
    base = Trained(GRAPH, zoo, longest=0).base()
    found = compared(rotated(base), base)
    assert found["compared"] == found["alike"] > 0
    assert 0 == found["elsewhere"]
    assert found["kappa"] > 0.95
    assert 0 == compared(rotated(Trained(GRAPH, zoo, longest=0).base(1)), base)["alike"]
    cells = {"rotations": rotation_figures(zoo, [GRAPH], longest=0)}
    assert all(gate.met for gate in gates_of_lines(cells))
    assert "| graph network | 0.99 (2 of 2) |" in "\n".join(section(cells))
