"""The plots of the page of evidence, each made of the cells of one study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from studies import baselines
from studies.cells import Cell, Cells
from studies.clustered import ROUNDS
from studies.plots import Line, Panel, drawn
from studies.sections import paragraphs
from studies.sections.summaries import mean
from studies.tables import membership, personal, retrieval, samples
from studies.tables.clusters import ALONE, CFL, GLOBAL, IFCA, IOS, row

__all__ = ["pictures"]

_RANKS: Final = (4, 8, 16)


def pictures(cells: Cells) -> dict[str, str]:
    """SVG by the names of files, of the studies that have cells."""
    found = {}
    for name, (study, draw) in _PICTURES.items():
        held = cells.of(study)
        if held:
            found[name] = draw(held)
    return found


def _by_round(cells: Sequence[Cell]) -> str:
    """Figures 2 to 4, and the same of the fourth split."""
    names = (
        *(personal.ios("K*"), baselines.PLAIN_COSINE, baselines.PLAIN_EUCLIDEAN),
        *(IFCA, CFL, GLOBAL, ALONE),
    )
    panels = []
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        held = paragraphs.of_split(cells, split)
        lines = [Line(name, _rounds(held, name)) for name in names]
        panels.append(Panel(split, lines))
    title = "Accuracy of clients after each round, by how they are clustered"
    return drawn(panels, title=title, x="round", y="accuracy", ticks=(1, 5, 10, 15))


def _rounds(cells: Sequence[Cell], name: str) -> list[tuple[float, float]]:
    numbers = range(1, ROUNDS + 1)
    return [(number, mean(cells, f"{name}, by round", str(number))) for number in numbers]


def _recall(cells: Sequence[Cell]) -> str:
    """Tie-aware recall by the number of neighbours, on the splits of the first federation."""
    _, own = next(paragraphs.federations(cells))
    best = paragraphs.tuned(own, "A")
    names = dict.fromkeys(
        (
            retrieval.ios("A"),
            f"A: {baselines.PLAIN_COSINE}",
            best,
            f"A: {baselines.PLAIN_EUCLIDEAN}",
            retrieval.ios("B"),
            "chance",
        )
    )
    panels = []
    for split in dict.fromkeys(cell.setting.split for cell in own):
        held = paragraphs.of_split(own, split)
        lines = [
            Line(name, [(k, mean(held, name, f"tied R@{k}")) for k in _RANKS]) for name in names
        ]
        panels.append(Panel(split, lines))
    title = "Recall of the nearest clients, by how many are asked for"
    return drawn(panels, title=title, x="k", y="tie-aware R@k", ticks=_RANKS)


def _agreement(cells: Sequence[Cell]) -> str:
    """ARI of groups with swapped labels by the samples of a client."""
    rows = [
        row(name, way)
        for name in (IOS, samples.DATA_SPACES)
        for way in (samples.KNOWN, samples.FREE)
    ]
    panels, ticks = [], sorted(set(cells[0].figures["samples"].values()))
    for network in dict.fromkeys(cell.setting.network for cell in cells):
        held = [cell for cell in cells if cell.setting.network == network]
        columns = held[0].figures["samples"]
        lines = [
            Line(name, [(count, mean(held, name, column)) for column, count in columns.items()])
            for name in rows
        ]
        panels.append(Panel(network, lines))
    title = "Agreement with groups whose labels are swapped, by the samples of a client"
    return drawn(panels, title=title, x="samples of a client", y="ARI", ticks=ticks)


def _membership(cells: Sequence[Cell]) -> str:
    """Figure 1: by the samples of a client, after the first round and after the last one."""
    panels = []
    for split in membership.SPLITS:
        held = paragraphs.of_split(cells, split)
        for number in (membership.ROUNDS[0], membership.ROUNDS[-1]) if held else ():
            lines = [Line(name, _by_samples(held, name, str(number))) for name in membership.DRAWN]
            panels.append(Panel(f"{split}, {number} round{'s' * (number > 1)}", lines))
    title = "Membership by the samples of a client, from gradients and from indices"
    words = {"x": "samples of a client", "y": "AUC"}
    return drawn(panels, title=title, ticks=membership.SAMPLES, doubling=True, **words)


def _by_samples(cells: Sequence[Cell], name: str, number: str) -> list[tuple[float, float]]:
    return [
        (count, mean(cells, membership.row(count, name), number)) for count in membership.SAMPLES
    ]


_PICTURES: Final[dict[str, tuple[str, Callable[[Sequence[Cell]], str]]]] = {
    "recall.svg": (retrieval.NAME, _recall),
    "accuracy-by-round.svg": (personal.NAME, _by_round),
    "samples.svg": (samples.NAME, _agreement),
    "membership.svg": (membership.NAME, _membership),
}
