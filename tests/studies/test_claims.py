"""The claims about clusters and their rivals: each holds of its cells, and flips with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from studies import baselines, group_sections, opening, rivals, training_sections
from studies.cells import Cell, Cells, Figures, write_cell
from studies.settings import DIRICHLET, Setting
from studies.tables import clusters, newcomers, numbers, personal, retrieval

_SEEDS = 3
_AGAINST, _FOR = "## When not to use it", "## When to use it"
_COSINES = (
    clusters.row(baselines.PLAIN_COSINE, clusters.LINKED),
    clusters.row(baselines.PLAIN_COSINE, clusters.PROPAGATED),
)


def _planted(folder: Path, split: str, accuracies: Mapping[str, float], ari: float = 1) -> Cells:
    """Cells of Table 1 whose rows have these accuracies, and all others 0.5."""
    rows = (clusters.KNOWN, clusters.FREE, *_COSINES, *rivals.RIVALS)
    return _made(folder, clusters.NAME, split, {**dict.fromkeys(rows, 0.5), **accuracies}, ari)


def _made(
    folder: Path, study: str, split: str, accuracies: Mapping[str, float], ari: float
) -> Cells:
    for seed in range(_SEEDS):
        setting = Setting(split=split, clients=clusters.CLIENTS, seed=seed)
        figures: Figures = {
            name: {"accuracy": accuracy + seed / 100, "ARI": ari}
            for name, accuracy in accuracies.items()
        }
        head = {"study": study, "setting": setting.measured}
        write_cell(folder / study / f"{setting.name}.json", head, figures)
    return Cells(folder)


def _advice(cells: Cells) -> dict[str, str]:
    """The two lists by their titles."""
    blocks = list(opening.advice(cells))
    return dict(zip(blocks[::2], blocks[1::2], strict=True))


@pytest.mark.parametrize("rival", rivals.RIVALS)
def test_each_rival_that_is_ahead_is_named(tmp_path: Path, rival: str) -> None:
    """Overlaps find the groups of noisy labels, but a rival trains the better models."""
    ours = {clusters.KNOWN: 0.7, clusters.FREE: 0.7}
    said = _advice(_planted(tmp_path, "noisy labels", {**ours, rival: 0.8}))
    claim = f"{rival[0].upper()}{rival[1:]} is more accurate on noisy labels than index overlaps"
    assert (
        f"**{claim} with the number of clusters known or free**: 0.810 and 0.710" in said[_AGAINST]
    )
    assert "(+0.100 ± 0.000, ahead in 3 of 3 seeds)" in said[_AGAINST]
    assert "though overlaps find the groups (ARI 1.00)" in said[_AGAINST]
    assert "noisy labels" not in said.get(_FOR, "")


def test_a_claim_turns_with_its_cells(tmp_path: Path) -> None:
    """The same split is for overlaps where these are ahead of all rivals."""
    ours = {clusters.KNOWN: 0.9, clusters.FREE: 0.9, clusters.ALONE: 0.8}
    said = _advice(_planted(tmp_path, "noisy labels", ours))
    assert "is more accurate on" not in said[_AGAINST]
    assert 2 == said[_FOR].count("noisy labels 0.910, and 0.810 by the next, each client alone")


def test_claims_say_at_which_number_they_hold(tmp_path: Path) -> None:
    """Ahead with the number known and behind with it free is one claim for, and one against."""
    ours = {clusters.KNOWN: 0.9, clusters.FREE: 0.7, clusters.ALONE: 0.8}
    said = _advice(_planted(tmp_path, "rotations", ours, ari=0.46))
    (against,) = [line for line in said[_AGAINST].split("\n") if "is more accurate" in line]
    assert "Each client alone is more accurate on rotations" in against
    assert "with the number of clusters free**" in against
    assert "overlaps do not find all groups (ARI 0.46)" in against
    assert "such as rotations, with the number of clusters known" in said[_FOR]
    assert "free" not in said[_FOR]


def test_all_who_are_ahead_are_named_the_best_first(tmp_path: Path) -> None:
    """A bullet has the most accurate rival, and the others after it."""
    rows = {clusters.GLOBAL: 0.6, clusters.IFCA: 0.7, clusters.CFL: 0.8}
    (claim,) = rivals.beaten(_planted(tmp_path, "styles", rows))
    first, second, third = (claim.index(name) for name in (clusters.CFL, clusters.IFCA, "global"))
    assert first < second < third
    assert clusters.ALONE not in claim


def test_ties_are_no_claim(tmp_path: Path) -> None:
    """Rows that are as accurate make a claim for neither side, and half a point none for it."""
    cells = _planted(tmp_path, "labels", {})
    assert [] == [*rivals.beaten(cells), *rivals.best(cells), *rivals.cosines(cells)]
    ahead = {clusters.KNOWN: 0.505, clusters.FREE: 0.505}
    assert [] == [*rivals.best(_planted(tmp_path, "labels", ahead))]


@pytest.mark.parametrize(("cosine", "said"), [(0.8, False), (0.95, True)])
def test_the_advice_to_send_values_needs_their_lead(
    tmp_path: Path, cosine: float, said: bool
) -> None:
    """A cosine is advised where it finds more neighbours on both Dirichlet splits."""
    for split in DIRICHLET:
        figures = {
            retrieval.ios("A"): {"R@8": 0.9},
            f"A: {baselines.PLAIN_COSINE}": {"R@8": cosine if split == DIRICHLET[0] else 0.95},
        }
        setting = Setting(split=split)
        head = {"study": retrieval.NAME, "setting": setting.measured}
        write_cell(tmp_path / retrieval.NAME / f"{setting.name}.json", head, figures)
    assert said == any("send importances" in block for block in opening.advice(Cells(tmp_path)))


@pytest.mark.parametrize(("cosine", "word"), [(0.8, "worse"), (0.95, "better")])
def test_the_cosine_is_judged_by_its_clusters_too(tmp_path: Path, cosine: float, word: str) -> None:
    """Which similarity trains the better clusters on Patho(20%), cells decide."""
    rows = {personal.ios("K*"): 0.9, baselines.PLAIN_COSINE: cosine}
    accuracies = {**dict.fromkeys(rivals.RIVALS, 0.5), **rows}
    (claim,) = rivals.cosines(_made(tmp_path, personal.NAME, "Patho(20%)", accuracies, 0))
    assert f"cosine train {word} models than those by IOS" in claim
    assert f"Patho(20%) ({cosine + 0.01:.3f}, IOS 0.910, {0.9 - cosine:+.3f}" in claim


def test_splits_without_groups_have_no_number_to_know(tmp_path: Path) -> None:
    """Of a Dirichlet split only the clusters that overlaps find themselves are compared."""
    rows = {clusters.KNOWN: 0.4, clusters.FREE: 0.6, clusters.ALONE: 0.9}
    (claim,) = rivals.beaten(_planted(tmp_path, "dirichlet 0.1", rows))
    assert "with the number of clusters free**: 0.910 and 0.610" in claim
    assert "ARI" not in claim


def test_one_table_has_every_way_of_every_shift(tmp_path: Path) -> None:
    """Accuracies and ARI stand in the order of the heads; Table 8 knows no number."""
    rows = {clusters.KNOWN: 0.9, clusters.FREE: 0.7, clusters.ALONE: 0.8}
    _planted(tmp_path, "rotations", rows, ari=0.5)
    names = (personal.ios("K*"), baselines.PLAIN_COSINE, *rivals.RIVALS)
    cells = _made(tmp_path, personal.NAME, "Dir(0.1)", dict.fromkeys(names, 0.3), 0)
    *_, table = group_sections.compared(cells)
    heads, _, turned, agreement, uneven, *_ = table.split("\n")
    assert "| shift |  | IOS, known | IOS, free | one global model | each client alone |" in heads
    assert turned.startswith("| rotations, 3 seeds | accuracy | 0.910 | 0.710 | 0.510 | 0.810 |")
    assert agreement.startswith("| rotations, 3 seeds | ARI | 0.500 | 0.500 | 0.500")
    assert uneven.startswith("| Dir(0.1), 3 seeds | accuracy |  | 0.310 | 0.310 | 0.310")


@pytest.mark.parametrize(("placed", "noted"), [(1.0, 1.0), (0.5, 0.25), (0.0, 0.0)])
def test_newcomers_that_are_no_kin_are_claims_where_they_are_placed(
    placed: float, noted: float
) -> None:
    """Noise that is placed is said, with its notes, and kin with a note beside it."""
    noise, kin = newcomers.FOREIGN[0], newcomers.KIN[0]
    figures = {
        "placed": dict.fromkeys(newcomers.STRANGERS, 0.0) | {noise: placed},
        "placed with a note": dict.fromkeys(newcomers.STRANGERS, 0.0) | {noise: noted, kin: noted},
    }
    claims = list(
        training_sections.misplaced([Cell(newcomers.NAME, Setting(network="cnn"), figures)])
    )
    assert (2 if placed else 0) == len(claims)
    if claims:
        assert f"by the cnn, in {placed:.2f} of the cases ({noted:.2f} with a note)" in claims[0]
        assert f"have one, too: {kin} {noted:.2f}" in claims[1]


@pytest.mark.parametrize(("free", "said"), [(0.47, True), (1.0, False)])
def test_groups_that_a_free_number_hides_are_a_claim(free: float, said: bool) -> None:
    """It counts what the best algorithm finds."""
    agreements = dict.fromkeys(numbers.ALGORITHMS, 0.2) | {"leiden": free, numbers.KNOWN: 1.0}
    figures: Figures = {clusters.IOS: {name: float(each) for name, each in agreements.items()}}
    setting = Setting(split="rotations", network="mlp", clients=numbers.CLIENTS)
    claims = list(group_sections.unfound([Cell(numbers.NAME, setting, figures)]))
    assert said == bool(claims)
    assert all(
        "mlp" in claim and "rotations (ARI 1.00 known, 0.47 free)" in claim for claim in claims
    )
