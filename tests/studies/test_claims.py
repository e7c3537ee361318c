"""The claims about clusters and their rivals: each holds of its cells, and flips with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from demo.planted import DRAWN
from studies import baselines, opening, rivals
from studies.cells import Cell, Cells, Figures, write_cell
from studies.page import PAGE
from studies.sections import groups as group_sections
from studies.sections import training as training_sections
from studies.settings import DIRICHLET, Setting
from studies.tables import clusters, definitions, newcomers, numbers, personal, retrieval

_SEEDS = 3
_AGAINST, _FOR = "## When not to use it", "## When to use it"
_TABLE = "## Where something else trains better models"
_BEST = "**You want the best model for each client**"
_VALUES = (baselines.PLAIN_COSINE, definitions.FEDBARY)
_OTHERS = tuple(
    clusters.row(each, way) for each in _VALUES for way in (clusters.LINKED, clusters.PROPAGATED)
)


def _planted(folder: Path, split: str, accuracies: Mapping[str, float], ari: float = 1) -> Cells:
    """Cells of Table 1 whose rows have these accuracies, and all others 0.5."""
    rows = (clusters.KNOWN, clusters.FREE, *_OTHERS, *rivals.RIVALS)
    return _made(folder, clusters.NAME, split, {**dict.fromkeys(rows, 0.5), **accuracies}, ari)


def _made(
    folder: Path,
    study: str,
    split: str,
    accuracies: Mapping[str, float],
    ari: float,
    steps: Mapping[str, Sequence[float]] | None = None,
) -> Cells:
    """Cells whose rows have these accuracies, and on each seed so much more."""
    usual = [seed / 100 for seed in range(_SEEDS)]
    for seed in range(_SEEDS):
        setting = Setting(split=split, clients=clusters.CLIENTS, seed=seed)
        figures: Figures = {
            name: {"accuracy": accuracy + (steps or {}).get(name, usual)[seed], "ARI": ari}
            for name, accuracy in accuracies.items()
        }
        head = {"study": study, "setting": setting.measured}
        write_cell(folder / study / f"{setting.name}.json", head, figures)
    return Cells(folder)


def _advice(cells: Cells) -> dict[str, str]:
    """What is below each heading of the opening."""
    found: dict[str, str] = {}
    title = ""
    for block in (*opening.advice(cells), *opening.contested(cells)):
        if block.startswith("#"):
            title = block
        else:
            found[title] = found.get(title, "") + block + "\n"
    return found


def _contests(said: Mapping[str, str]) -> list[list[str]]:
    """The rows of the table of contests, without its heads."""
    rows = [line for line in said.get(_TABLE, "").split("\n") if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in rows[2:]]


@pytest.mark.parametrize("rival", rivals.RIVALS)
def test_each_rival_that_is_ahead_is_named(tmp_path: Path, rival: str) -> None:
    """Overlaps find the groups of noisy labels, but a rival trains the better models."""
    ours = dict.fromkeys((clusters.KNOWN, clusters.FREE, *_OTHERS), 0.7)
    said = _advice(_planted(tmp_path, "noisy labels", {**ours, rival: 0.8}))
    name = rivals.short(rival)
    assert f"{_BEST}: train in a better way where the table has one" in said[_AGAINST]
    assert f"Measured: better are {name} on noisy labels." in said[_AGAINST]
    (row,) = _contests(said)
    assert ["noisy labels", "either", "0.710", name, "0.810"] == row[:5]
    assert ["+0.100 ± 0.000, 3/3", "1.00"] == row[5:7]
    assert "noisy labels" not in said.get(_FOR, "")


def test_a_claim_turns_with_its_cells(tmp_path: Path) -> None:
    """The same split is for overlaps where these are ahead of all rivals."""
    ours = {clusters.KNOWN: 0.9, clusters.FREE: 0.9, clusters.ALONE: 0.8}
    said = _advice(_planted(tmp_path, "noisy labels", ours))
    assert [] == _contests(said)
    assert _BEST not in "".join(said.values())
    assert "**You have groups such as noisy labels**" in said[_FOR]
    assert "0.910 on noisy labels, 0.810 by the next, each client alone (+0.100" in said[_FOR]


def test_claims_say_at_which_number_they_hold(tmp_path: Path) -> None:
    """Ahead with the number known and behind with it free is one claim for, and one against."""
    ours = {clusters.KNOWN: 0.9, clusters.FREE: 0.7, clusters.ALONE: 0.8}
    said = _advice(_planted(tmp_path, "rotations", ours, ari=0.46))
    assert "better are each client alone on rotations (number free)." in said[_AGAINST]
    (row,) = _contests(said)
    assert ["rotations", "free", "0.710", "each client alone", "0.810"] == row[:5]
    assert "0.46" == row[6]
    groups = said[_FOR].split("You have groups")[1]
    assert "such as rotations (number known)**" in groups
    assert "free" not in groups


def test_both_numbers_are_one_claim_with_both_figures(tmp_path: Path) -> None:
    """Different models that win at either number are two figures of one bullet."""
    ours = {clusters.KNOWN: 0.9, clusters.FREE: 0.85, clusters.ALONE: 0.8}
    said = _advice(_planted(tmp_path, "rotations", ours))
    assert 1 == said[_FOR].count("You have groups")
    assert "0.910 on rotations (number known), 0.810" in said[_FOR]
    assert "0.860 on rotations (number free), 0.810" in said[_FOR]


def test_a_split_that_is_lost_at_both_numbers_is_named_once(tmp_path: Path) -> None:
    """Two rows of the table, and one place in the bullet."""
    ours = {clusters.KNOWN: 0.75, clusters.FREE: 0.7, clusters.ALONE: 0.8}
    said = _advice(_planted(tmp_path, "rotations", ours))
    assert "better are each client alone on rotations." in said[_AGAINST]
    assert ["known", "free"] == [row[1] for row in _contests(said)]


def test_all_who_are_ahead_are_named_the_best_first(tmp_path: Path) -> None:
    """A row has the most accurate rival, and the others after it."""
    rows = {clusters.GLOBAL: 0.6, clusters.IFCA: 0.7, clusters.CFL: 0.8}
    (row,) = _contests(_advice(_planted(tmp_path, "styles", rows)))
    assert "CFL" == row[3]
    assert "IFCA, one global model" == row[7]


@pytest.mark.parametrize(("steps", "decided"), [((0.0, 0.1, 0.2), True), ((-0.5, 0.1, 0.7), False)])
def test_undecided_differences_are_marked(
    tmp_path: Path, steps: Sequence[float], decided: bool
) -> None:
    """A lead whose interval includes 0 is a row, marked, and no claim to be better."""
    rows = (personal.ios("K*"), baselines.PLAIN_COSINE, *rivals.RIVALS)
    accuracies = {**dict.fromkeys(rows, 0.5), clusters.ALONE: 0.8, clusters.IFCA: 0.7}
    moved = {clusters.ALONE: steps, clusters.IFCA: steps}
    said = _advice(_made(tmp_path, personal.NAME, "Patho(20%)", accuracies, 0, moved))
    words = "better are each client alone" if decided else "undecided"
    assert f"Measured: {words} on Patho(20%)." in said[_AGAINST]
    (row,) = _contests(said)
    assert decided == ("?" not in row[5])
    assert ("IFCA" if decided else "IFCA?") == row[7]


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    """It has no interval: its row is marked, however large the lead."""
    _planted(tmp_path, "styles", {clusters.ALONE: 0.9})
    for cell in sorted((tmp_path / clusters.NAME).glob("*.json"))[1:]:
        cell.unlink()
    said = _advice(Cells(tmp_path))
    assert "undecided on styles." in said[_AGAINST]
    (row,) = _contests(said)
    assert "+0.400, one seed ?" == row[5]


@pytest.mark.parametrize(("steps", "said"), [((0.0, 0.01, 0.02), True), ((-0.5, 0, 0.5), False)])
def test_undecided_leads_recommend_nothing(
    tmp_path: Path, steps: Sequence[float], said: bool
) -> None:
    """Groups are for overlaps, and values are not, where the interval of the lead excludes 0."""
    rows = (clusters.KNOWN, clusters.FREE, *_OTHERS, *rivals.RIVALS)
    ours = dict.fromkeys(rows[:2], 0.9)
    accuracies = {**dict.fromkeys(rows, 0.5), **ours}
    moved = dict.fromkeys(ours, steps)
    cells = _made(tmp_path, clusters.NAME, "labels", accuracies, 1, moved)
    assert said == bool(rivals.best(cells))
    assert said == bool(rivals.gains(cells, 1))


def test_ties_are_no_claim(tmp_path: Path) -> None:
    """Rows that are as accurate make a claim for neither side, and half a point none for it."""
    cells = _planted(tmp_path, "labels", {})
    assert {} == _advice(cells)
    ahead = {clusters.KNOWN: 0.505, clusters.FREE: 0.505}
    assert [] == rivals.best(_planted(tmp_path, "labels", ahead))


def test_the_opening_is_read_in_a_minute() -> None:
    """On the page, both lists have at most eleven bullets, of three lines before their tables."""
    text = PAGE.read_text(encoding="utf-8")
    lists = [text.split(f"{title}\n\n")[1].split("\n\n")[0] for title in (_AGAINST, _FOR)]
    bullets = [bullet for each in lists for bullet in each.split("\n- ")]
    assert 2 <= len(bullets) <= 11
    words = [bullet.partition("[Table](evidence/")[0].rstrip() for bullet in bullets]
    assert [] == [each for each, bullet in zip(words, bullets, strict=True) if each == bullet]
    assert [] == [each for each in words if each.count("\n") > 2]


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


@pytest.mark.parametrize(
    ("cosine", "list_", "who"),
    [
        (0.8, _FOR, "want clusters, even if you may send values"),
        (0.95, _AGAINST, "may send values, and want clusters"),
    ],
)
def test_the_cosine_is_judged_by_its_clusters_too(
    tmp_path: Path, cosine: float, list_: str, who: str
) -> None:
    """Which similarity trains the better clusters on Patho(20%), cells decide."""
    rows = {personal.ios("K*"): 0.9, baselines.PLAIN_COSINE: cosine}
    accuracies = {**dict.fromkeys(rivals.RIVALS, 0.5), **rows}
    said = _advice(_made(tmp_path, personal.NAME, "Patho(20%)", accuracies, 0))
    assert 1 == "".join(said.values()).count("the cosine")
    assert f"**You {who}**" in said[list_]
    gain = abs(0.9 - cosine)
    assert f"Measured: decided gains in accuracy: Patho(20%) +{gain:.3f}." in said[list_]


def test_splits_without_groups_have_no_number_to_know(tmp_path: Path) -> None:
    """Of a Dirichlet split only the clusters that overlaps find themselves are compared."""
    rows = {clusters.KNOWN: 0.4, clusters.FREE: 0.6, clusters.ALONE: 0.9}
    said = _advice(_planted(tmp_path, "dirichlet 0.1", rows))
    assert "better are each client alone on Dir(0.1)." in said[_AGAINST]
    (row,) = _contests(said)
    assert ["Dir(0.1) of Table 1", "free", "0.610", "each client alone", "0.910"] == row[:5]
    assert "none" == row[6]


def test_equal_names_of_two_tables_are_told_apart(tmp_path: Path) -> None:
    """Tables 1 and 8 both have a Dir(0.1), of other clients: rows say whose it is."""
    _planted(tmp_path, "dirichlet 0.1", {clusters.ALONE: 0.9})
    rows = (personal.ios("K*"), baselines.PLAIN_COSINE, *rivals.RIVALS)
    accuracies = {**dict.fromkeys(rows, 0.5), clusters.ALONE: 0.8}
    found = _contests(_advice(_made(tmp_path, personal.NAME, "Dir(0.1)", accuracies, 0)))
    assert ["Dir(0.1) of Table 1", "Dir(0.1) of Table 8"] == [row[0] for row in found]


def test_one_table_has_every_way_of_every_shift(tmp_path: Path) -> None:
    """Accuracies and ARI stand in the order of the heads; Table 8 knows no number."""
    rows = {clusters.KNOWN: 0.9, clusters.FREE: 0.7, clusters.ALONE: 0.8}
    _planted(tmp_path, "rotations", rows, ari=0.5)
    names = (personal.ios("K*"), *_VALUES, *rivals.RIVALS)
    cells = _made(tmp_path, personal.NAME, "Dir(0.1)", dict.fromkeys(names, 0.3), 0)
    table = next(each for each in group_sections.compared(cells) if each.startswith("|"))
    heads, _, turned, agreement, uneven, *_ = table.split("\n")
    assert "| shift |  | IOS, known | IOS, free | one global model | each client alone |" in heads
    assert turned.startswith("| rotations, 3 seeds | accuracy | 0.910 | 0.710 | 0.510 | 0.810 |")
    assert agreement.startswith("| rotations, 3 seeds | ARI | 0.500 | 0.500 | 0.500")
    assert uneven.startswith("| Dir(0.1) of Table 8, 3 seeds | accuracy |  | 0.310 | 0.310 | 0.310")


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


@pytest.mark.parametrize(("ari", "said"), [(0.4, True), (0.95, False)])
def test_groups_that_labels_by_chance_hide_are_a_claim(
    tmp_path: Path, ari: float, said: bool
) -> None:
    """Both kinds of one concept are compared, with the number known."""
    _planted(tmp_path, "swapped labels", {})
    cells = _planted(tmp_path, f"swapped labels{DRAWN}", {}, ari=ari)
    claims = list(group_sections.chanced(cells.of(clusters.NAME)))
    assert said == bool(claims)
    assert all("swapped labels (ARI 1.00 of equal numbers, 0.40 drawn)" in each for each in claims)


def test_labels_by_chance_are_named_where_the_usual_ones_are_not(tmp_path: Path) -> None:
    """A split that is lost in both kinds is named once, and one that is lost by chance as such."""
    won = {clusters.KNOWN: 0.9, clusters.FREE: 0.9}
    _planted(tmp_path, "styles", {clusters.IFCA: 0.8})
    _planted(tmp_path, f"styles{DRAWN}", {clusters.IFCA: 0.8})
    _planted(tmp_path, "rotations", won)
    cells = _planted(tmp_path, f"rotations{DRAWN}", {clusters.IFCA: 0.8})
    assert "better are IFCA on drawn rotations and styles." in _advice(cells)[_AGAINST]
    assert 3 == len({row[0] for row in _contests(_advice(cells))})


def test_clients_that_are_alike_show_what_clusters_cost(tmp_path: Path) -> None:
    """Of IID, clusters by overlaps and by FedBary stand beside one global model."""
    rows = {clusters.GLOBAL: 0.9, clusters.KNOWN: 0.8}
    *_, said = group_sections.compared(_planted(tmp_path, clusters.IID, rows))
    assert "one global model has an accuracy of 0.910" in said
    assert "Four clusters by overlaps have 0.810" in said


@pytest.mark.parametrize(("theirs", "words"), [(0.3, "behind"), (0.9, "ahead of")])
def test_fedbary_is_said_to_be_where_it_is(tmp_path: Path, theirs: float, words: str) -> None:
    """Whether label histograms or overlaps train the better models, cells decide."""
    name = clusters.row(definitions.FEDBARY, clusters.LINKED)
    *_, said = group_sections.compared(_planted(tmp_path, "labels", {name: theirs}))
    assert f"**FedBary is {words} overlaps**" in said
    assert f"labels +{abs(0.5 - theirs):.3f} (known)" in said
