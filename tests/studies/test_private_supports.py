"""The page of private supports, of cells that were made for it."""

from __future__ import annotations

from studies.cells import Cell
from studies.sections import paragraphs
from studies.settings import Setting
from studies.tables import privacy


def cell(setting: Setting, recall: float) -> Cell:
    """One whose recall falls with epsilon."""
    rows = {
        privacy.row(epsilon): {
            "R@4": recall / (number + 1),
            "R@8": recall / (number + 1),
            "label presence": 0.9,
            "membership": 0.5,
        }
        for number, epsilon in enumerate(reversed(privacy.EPSILONS))
    }
    n = setting.samples or 36
    size: dict[str, float] = {"n": n, "clients": setting.clients, "M": 1000, "K": 100}
    return Cell(privacy.NAME, setting, {"federation": size, **rows})


def test_each_number_of_samples_has_a_table() -> None:
    """Rows are epsilons, and chance beside them; seeds of one setting share a table."""
    cells = [cell(setting, 0.6) for setting in privacy.settings((0, 1), "synthetic", "mlp")]
    text = "\n".join(paragraphs.private_supports(cells))
    for samples in privacy.SAMPLES:
        assert f"### {samples} samples a client: synthetic, mlp, Dir(0.1), 2 seeds" in text
    assert "| without noise | 0.600 ± 0.000 |" in text
    assert "| epsilon 1 | 0.100 ± 0.000 |" in text
    assert "| chance | 0.211 | 0.421 |" in text


def test_the_page_opens_with_what_privacy_costs() -> None:
    """Recall of few samples beside chance, and labels that are seen all the same."""
    cells = [cell(setting, 0.6) for setting in privacy.settings((0,), "digits", "cnn")]
    cells += [cell(setting, 0.6) for setting in privacy.settings((0,), "synthetic", "mlp")]
    few, many = paragraphs.priced(cells)
    assert "R@8 is 0.150 at epsilon 10 and 0.100 at epsilon 1 (without noise 0.600" in few
    assert "chance 0.205" in few
    assert "3,600 samples a client, epsilon 1 leaves the label presence at AUC 0.900" in many
