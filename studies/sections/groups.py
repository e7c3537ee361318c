"""Sections of the page of evidence about clusters of clients, and what else trains their models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from studies import baselines, rivals
from studies.cells import Cell, Cells
from studies.sections.paragraphs import first, of_split, table
from studies.sections.summaries import mean, seeds, spread
from studies.settings import NETWORKS
from studies.tables import clusters as grouped
from studies.tables import numbers as freed
from studies.tables import personal
from studies.tables import samples as few

__all__ = ["clusters", "compared", "numbers", "unfound"]

_TOLD: Final = (grouped.KNOWN, grouped.row(baselines.PLAIN_COSINE, grouped.LINKED))
_UNTOLD: Final = (grouped.FREE, grouped.row(baselines.PLAIN_COSINE, grouped.PROPAGATED))
_APART: Final = 0.1
"""ARI, from which a known number counts as better than a free one."""
_OF_LABELS: Final = (personal.ios("K*"), baselines.PLAIN_COSINE)


def clusters(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 1: accuracy of the models that clusters train, and the clusters themselves."""
    yield (
        f"{grouped.CLIENTS} clients. Accuracy is each client's own, on samples that it kept; ARI "
        "compares with the planted groups. Average linkage and IFCA know their number, 4."
    )
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        held = of_split(cells, split)
        yield f"### {rivals.shown(split)}, {len(held)} seeds"
        rows = [
            [
                name,
                *(spread(held, name, column) for column in ("accuracy", "ARI")),
                f"{mean(held, name, 'clusters'):.1f}" if "clusters" in found else "",
            ]
            for name, found in held[0].figures.items()
        ]
        yield table(("models", "accuracy", "ARI", "clusters"), rows)


def numbers(cells: Sequence[Cell]) -> Iterator[str]:
    """How well each algorithm finds groups whose number it does not know."""
    yield (
        f"{freed.CLIENTS} clients of each kind, with all their samples. ARI with the planted "
        "groups by the service's algorithms with the number free, and by average linkage at the "
        "number 4. Clients of iid are alike: one cluster has an ARI of 1, any other number 0. A "
        "client in no cluster counts as one alone."
    )
    columns = [*freed.ALGORITHMS, freed.KNOWN]
    shown = [(f"supports, {network}", grouped.IOS, network) for network in NETWORKS]
    shown.append((few.DATA_SPACES, few.DATA_SPACES, NETWORKS[0]))  # of no network
    rows = []
    for title, row, network in shown:
        own = [cell for cell in cells if cell.setting.network == network]
        for split in freed.SPLITS:
            held = of_split(own, split)
            if held:
                found = (mean(held, row, column) for column in columns)
                agreements = ("" if math.isnan(each) else f"{each:.2f}" for each in found)
                rows.append([title, f"{split}, {seeds(held)}", *agreements])
    yield table(("similarity of", "clients", *columns), rows)


def unfound(cells: Sequence[Cell]) -> Iterator[str]:
    """Groups that supports show at a known number, and no algorithm with it free."""
    for network in NETWORKS:
        own = [cell for cell in cells if cell.setting.network == network]
        missed = []
        for split in freed.SPLITS:
            held = of_split(own, split)
            known = mean(held, grouped.IOS, freed.KNOWN)
            free = max(mean(held, grouped.IOS, name) for name in freed.ALGORITHMS)
            if known - free >= _APART:
                missed.append(f"{split} (ARI {known:.2f} known, {free:.2f} free)")
        if missed:
            yield (
                f"**With their number free, groups may stay hidden**: supports of the {network} "
                f"show to no algorithm all of {', '.join(missed)}."
            )


def compared(cells: Cells) -> Iterator[str]:
    """Each shift of Tables 1 and 8, by every way to train models for clients."""
    shifts = [(held, (*_TOLD, *_UNTOLD)) for held in _by_split(cells.of(grouped.NAME))]
    shifts += [(held, ("", "", *_OF_LABELS)) for held in _by_split(cells.of(personal.NAME))]
    if not shifts:
        return
    yield "## Clusters and their rivals"
    yield "`python -m studies table1` and `table8`"
    yield (
        "Accuracy of the clients' models on samples that they kept, and the ARI with groups. The "
        "number of clusters is known (4, also where there are no groups), or free: the algorithms "
        "find their own. K is 10% of M; on Patho and Dir of Table 8 it is K\\*. "
        "Intervals are in the sections of [Table 1](#clusters-table-1) and "
        "[Table 8](#clusters-of-unlike-labels-tables-2-and-8-figures-2-to-4)."
    )
    others = map(rivals.short, rivals.RIVALS)
    heads = ("IOS, known", "IOS, free", *others, "cosine, known", "cosine, free")
    rows = (row for held, own in shifts for row in _shift(held, own))
    yield table(("shift", "", *heads), rows)


def _by_split(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    held = first(cells)
    for split in rivals.splits(held):
        yield of_split(held, split)


def _shift(held: Sequence[Cell], own: Sequence[str]) -> Iterator[list[str]]:
    """Its accuracy, and below it the ARI where there are groups."""
    known, cosine_known, free, cosine_free = own
    rows = (known, free, *rivals.RIVALS, cosine_known, cosine_free)
    for column in ("accuracy", "ARI"):
        found = [_rounded(held, row, column) for row in rows]
        if any(found):
            yield [f"{rivals.titled(held[0])}, {seeds(held)}", column, *found]


def _rounded(held: Sequence[Cell], row: str, column: str) -> str:
    found = mean(held, row, column)
    return "" if math.isnan(found) else f"{found:.3f}"
