"""The cells of no one architecture, small, from what they measure to the page."""

from __future__ import annotations

import numpy as np
import pytest

from studies.lines.cells.hiding import hiding_figures
from studies.lines.cells.rotations import compared, rotated, rotation_figures
from studies.lines.cells.savings import saved, savings_figures
from studies.lines.cells.wide import WEIGHTS, Weights, of_kin, of_wide_strangers
from studies.lines.derivatives import Derivative
from studies.lines.gates import gates_of_lines
from studies.lines.networks.others import GRAPH
from studies.lines.results import FOLLOWED
from studies.lines.section import section
from studies.lines.trained import Trained
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


def test_a_cell_of_savings_is_made_of_untrained_networks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A child without training takes nothing beside its base, and a stranger as much as alone."""
    figures = savings_figures(Zoo(tmp_path_factory.mktemp("zoo")), [GRAPH], longest=0)
    for kind in ("bfloat16", "float32"):
        assert figures["graph network: heavy"][kind] > 0.99
        stranger = figures["graph network: a stranger"]
        assert stranger[kind] < stranger[f"{kind} alone"] < 0.3
    cells = {"savings": figures}
    assert [True] == [gate.met for gate in gates_of_lines(cells)]
    assert "| graph network: heavy | 1.00 | 0.50 | 1.00 (0.26)" in "\n".join(section(cells))


@pytest.mark.slow
def test_a_cell_of_hiding_is_made_of_untrained_networks(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A turn costs no loss and hides all; a part of a base makes no child, and all of it does."""
    figures = hiding_figures(Zoo(tmp_path_factory.mktemp("zoo")), longest=0, batches=1)
    cells = {"hiding": figures}
    trained, turned, forged = gates_of_lines(cells)
    assert not trained.met  # a base and a stranger without training know as much
    assert turned.met
    assert forged.met
    page = "\n".join(section(cells))
    assert "| rotated | +0.000 | 0.00" in page
    assert "| all matrices, in unused tensors | shares weights | 5" in page


def test_rows_and_columns_are_stored_beside_those_most_like_them() -> None:
    """Of a matrix of another size, in whatever order; what the base has not is stored whole."""
    draw = np.random.default_rng(3)
    base = {name: draw.standard_normal((96, 80), np.float32) for name in ("rows", "columns")}
    fewer = {"rows": base["rows"][::-2], "columns": base["columns"][:, 5:70]}
    assert saved(Derivative("fewer", fewer), base)["float32"] > 0.98
    both = saved(Derivative("both", {"rows": base["rows"][:60, :60]}), base)
    new = saved(Derivative("new", {"rows": base["rows"]}, {"rows": ()}), base)
    for found in (both, new):
        assert found["float32"] == found["float32 alone"] < 0.3


def test_a_followed_hub_stands_beside_the_study_of_it() -> None:
    """Its answers, and each table of its report with what is true and what is not."""
    report = {"found": 47.0, "of": 53.0, "false": 0.0}
    shown = "\n".join(section({FOLLOWED: {"answers": {"kin": 9451.0}, "contradicted": report}}))
    assert "| kin | 9,451 |" in shown
    assert "| contradicted | 47 | 53 | 0 |" in shown
