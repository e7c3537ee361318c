"""Other definitions of the studies' figures, beside scipy's, and what their sections show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import distance

from demo.planted import CONCEPTS, DRAWN, plant
from studies import baselines, opening, page
from studies.cells import Cells, Figures, write_cell
from studies.measures import Oracle, ranking
from studies.settings import Setting
from studies.tables import definitions, disclosure
from studies.tables.definitions import ORACLES, total_variation, wasserstein
from studies.tables.retrieval import ios

MIXES = np.random.default_rng(0).dirichlet(np.full(10, 0.3), 12)


def test_distances_are_scipy_s() -> None:
    """Wasserstein's along the numbers of labels, and the root of Jensen-Shannon's divergence."""
    labels = np.arange(10)
    for a, b in ((0, 1), (2, 7), (5, 5)):
        expected = stats.wasserstein_distance(labels, labels, MIXES[a], MIXES[b])
        assert wasserstein(MIXES)[a, b] == pytest.approx(expected)
        expected = distance.jensenshannon(MIXES[a], MIXES[b], base=2) ** 2
        assert ORACLES["Jensen-Shannon"](MIXES)[a, b] == pytest.approx(expected)
    roots = np.sqrt(MIXES)
    hellinger = distance.cdist(roots, roots) / np.sqrt(2)
    assert ORACLES["Hellinger"](MIXES) == pytest.approx(hellinger, abs=1e-9)


def test_total_variation_is_wasserstein_s_where_labels_are_alike_or_not() -> None:
    """It is what the overlap of two histograms lacks of 1."""
    overlaps = np.minimum(MIXES[:, None], MIXES[None]).sum(axis=-1)
    assert total_variation(MIXES) == pytest.approx(1 - overlaps)


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_finds_its_own_neighbours(name: str) -> None:
    """By each distance, the ranking of that distance has a recall of 1."""
    distances = ORACLES[name]
    assert Oracle(MIXES, distances).recall(ranking(-distances(MIXES)), 4) == 1.0


@pytest.mark.parametrize("concept", CONCEPTS)
def test_labels_that_are_drawn_differ_between_clients(concept: str) -> None:
    """Clients have as many samples as with equal counts, and the same groups; none is twice."""
    equal, drawn = plant(concept), plant(f"{concept}{DRAWN}")
    assert len({row.tobytes() for row in equal.mixes}) == 1
    assert len({row.tobytes() for row in drawn.mixes}) > 12
    assert (equal.groups == drawn.groups).all()
    sizes = {len(own) for own in drawn.labels}
    assert len(sizes) == 1
    assert min(sizes) >= len(equal.labels[0])


def test_pages_show_each_definition(tmp_path: Path) -> None:
    """Both tables of oracles, the presence of labels, and the summary's figure."""
    recalls = {name: 0.1 * (at + 1) for at, name in enumerate(ORACLES)}
    ranks = {"tau-b": 0.61, "Spearman": 0.62, "rising bins": 1.0, "error in a bin": 0.08}
    presence = dict(zip(definitions.LEAST, (0.861, 0.92, 0.97), strict=True))
    figures: Figures = {ios("A"): {**recalls, **ranks}, "label presence": presence}
    certain: Figures = {"label presence": dict.fromkeys(definitions.LEAST, 1.0)}
    for seed in range(2):
        setting = Setting(seed=seed)
        pathological = replace(setting, split="Patho(20%)")
        for each, found in ((setting, figures), (pathological, certain)):
            head = {"study": definitions.NAME, "setting": each.measured}
            write_cell(tmp_path / definitions.NAME / f"{each.name}.json", head, found)
        shown = Cells().of(disclosure.NAME)[0].figures | {"whole": {"label presence": 0.97}}
        head = {"study": disclosure.NAME, "setting": setting.measured}
        write_cell(tmp_path / disclosure.NAME / f"{setting.name}.json", head, shown)
    made = page.written(Cells(tmp_path), judged=False)
    neighbours = made[page.FOLDER / "neighbours.md"]
    assert all(name in neighbours for name in (*ORACLES, *ranks, baselines.HISTOGRAMS))
    assert "| Dir(0.1), 2 | A: IOS, K = 10% | 0.100 ± 0.000 |" in neighbours
    assert "| Dir(0.1), 2 seeds | 0.861 ± 0.000 |" in made[page.FOLDER / "privacy.md"]
    summary = "\n".join(opening.advice(Cells(tmp_path)))
    assert "AUC 0.97 for labels of 10% of a client's samples or more, 0.86 for labels of" in summary
