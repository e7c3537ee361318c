"""Sections of the page of evidence about clusters of clients, and what else trains their models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from demo.planted import CONCEPTS, DRAWN
from studies import baselines, rivals
from studies.cells import Cell, Cells
from studies.clustered import STEP
from studies.sections.paragraphs import first, of_split, table
from studies.sections.summaries import difference, mean, over_seeds, seeds, spread
from studies.settings import NETWORKS
from studies.tables import clusters as grouped
from studies.tables import graphs as linked
from studies.tables import numbers as freed
from studies.tables import personal
from studies.tables import samples as few
from studies.tables.definitions import FEDBARY

__all__ = ["chanced", "clusters", "compared", "graphs", "numbers", "unfound"]

_Rows = tuple[str, ...]
"""Of overlaps, of the cosine, and of FedBary."""
_VALUES: Final = (baselines.PLAIN_COSINE, FEDBARY)
_TOLD: Final = (grouped.KNOWN, *(grouped.row(each, grouped.LINKED) for each in _VALUES))
_UNTOLD: Final = (grouped.FREE, *(grouped.row(each, grouped.PROPAGATED) for each in _VALUES))
_APART: Final = 0.1
"""ARI, from which a known number counts as better than a free one."""
_OF_LABELS: Final = (personal.ios("K*"), *_VALUES)


def clusters(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 1: accuracy of the models that clusters train, and the clusters themselves."""
    yield (
        f"{grouped.CLIENTS} clients. Accuracy is each client's own, on samples that it kept; ARI "
        "compares with the planted groups. Average linkage and IFCA know their number, 4. FedBary "
        "is the paper's rival by data: each client would send its label histogram."
    )
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        held = of_split(cells, split)
        yield f"### {rivals.shown(split)}, {seeds(held)}"
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


def chanced(cells: Sequence[Cell]) -> Iterator[str]:
    """Groups that supports show less where clients have labels by chance."""
    missed = []
    for concept in CONCEPTS:
        splits = (concept, f"{concept}{DRAWN}")
        equal, drawn = (mean(of_split(cells, each), grouped.KNOWN, "ARI") for each in splits)
        if equal - drawn >= _APART:
            missed.append(f"{concept} (ARI {equal:.2f} of equal numbers, {drawn:.2f} drawn)")
    if missed:
        yield (
            "**Labels that are drawn by chance hide groups**: supports show those of "
            f"{', '.join(missed)} less, with their number known."
        )


def compared(cells: Cells) -> Iterator[str]:
    """Each shift of Tables 1 and 8, by every way to train models for clients."""
    shifts = [(held, _TOLD, _UNTOLD) for held in _by_split(cells.of(grouped.NAME))]
    shifts += [(held, ("",) * 3, _OF_LABELS) for held in _by_split(cells.of(personal.NAME))]
    if not shifts:
        return
    yield "## Clusters and their rivals"
    yield "`python -m studies table1` and `table8`"
    yield (
        "Accuracy of the clients' models on samples that they kept, and the ARI with groups. The "
        "number of clusters is known (4, also where there are no groups), or free: the algorithms "
        "find their own. K is 10% of M; on Patho and Dir of Table 8 it is K\\*. FedBary is the "
        "overlap of label histograms. "
        "Intervals are in the sections of [Table 1](#clusters-table-1) and "
        "[Table 8](#clusters-of-unlike-labels-tables-2-and-8-figures-2-to-4)."
    )
    others = map(rivals.short, rivals.RIVALS)
    ours, *values = ((f"{name}, known", f"{name}, free") for name in ("IOS", "cosine", "FedBary"))
    heads = (*ours, *others, *chain.from_iterable(values))
    rows = (row for held, known, free in shifts for row in _shift(held, known, free))
    yield table(("shift", "", *heads), rows)
    yield from _beside_fedbary(cells)
    yield from _needless(cells)


def _beside_fedbary(cells: Cells) -> Iterator[str]:
    """Where clusters by label histograms train the worse models, and where the better ones."""
    for sign, words in ((1, "behind"), (-1, "ahead of")):
        found = rivals.gains(cells, sign, FEDBARY, drawn=True)
        if found:
            yield (
                f"**FedBary is {words} overlaps** in accuracy, where that is decided: {found}. It "
                "sees how many samples of each label a client has, and nothing else."
            )


def _needless(cells: Cells) -> Iterator[str]:
    """What clusters cost clients that are alike."""
    held = of_split(first(cells.of(grouped.NAME)), grouped.IID)
    if not held:
        return
    overlaps, cosine, fedbary = (
        (f"{mean(held, row, 'clusters'):.1f}", f"{mean(held, row, 'accuracy'):.3f}")
        for row in _UNTOLD
    )
    yield (
        "**What clusters cost where there are none**: any samples are dealt to clients of IID, and "
        f"one global model has an accuracy of {mean(held, grouped.GLOBAL, 'accuracy'):.3f}. With "
        f"the number free, overlaps find {overlaps[0]} clusters on average, with an accuracy of "
        f"{overlaps[1]}; the cosine finds {cosine[0]}, with {cosine[1]}, and FedBary {fedbary[0]}, "
        f"with {fedbary[1]}. Four clusters by overlaps have "
        f"{mean(held, grouped.KNOWN, 'accuracy'):.3f}."
    )


def _by_split(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    held = first(cells)
    for split in rivals.splits(held):
        yield of_split(held, split)


def _shift(held: Sequence[Cell], known: _Rows, free: _Rows) -> Iterator[list[str]]:
    """Its accuracy, and below it the ARI where there are groups."""
    ours, *values = zip(known, free, strict=True)
    rows = (*ours, *rivals.RIVALS, *chain.from_iterable(values))
    for column in ("accuracy", "ARI"):
        found = [_rounded(held, row, column) for row in rows]
        if any(found):
            yield [f"{rivals.titled(held[0])}, {seeds(held)}", column, *found]


def _rounded(held: Sequence[Cell], row: str, column: str) -> str:
    found = mean(held, row, column)
    return "" if math.isnan(found) else f"{found:.3f}"


def graphs(cells: Sequence[Cell]) -> Iterator[str]:
    """Personal models that each client averages over its neighbours."""
    yield (
        f"{grouped.CLIENTS} clients and no clusters: in each round a client averages its model "
        f"with those of its {linked.NEIGHBOURS} nearest, as many as groups have others, in "
        "proportion to S or the cosine. Per-FedAvg (Fallah et al., 2020), of the first order, "
        "trains a model for what one step on a client's own samples makes of it. Half of each "
        f"batch makes that step, whose rate is {STEP}, and the other half the gradient after it. "
        "Accuracy is each client's own, on samples that it kept, before and after such a step."
    )
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        held = of_split(cells, split)
        yield f"### Averages over neighbours on {rivals.shown(split)}, {seeds(held)}"
        yield table(
            ("trained by", *linked.COLUMNS),
            (
                [name, *(spread(held, name, column) for column in linked.COLUMNS)]
                for name in held[0].figures
            ),
        )
    yield table(("split", "after a step", over_seeds(cells)), _compared(cells))


def _compared(cells: Sequence[Cell]) -> Iterator[list[str]]:
    last = linked.COLUMNS[-1]
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        held = of_split(cells, split)
        for ours, theirs in linked.PAIRS:
            found = difference(held, ours, theirs, last)
            yield [rivals.shown(split), f"{ours} less {theirs}", str(found)]
