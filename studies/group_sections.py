"""Sections of the page of evidence about clusters of clients, and what else trains their models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.cells import Cell
from studies.sections import of_split, table
from studies.summaries import mean, spread
from studies.tables import clusters as grouped

__all__ = ["clusters"]


def clusters(cells: Sequence[Cell]) -> Iterator[str]:
    """Table 1: accuracy of the models that clusters train, and the clusters themselves."""
    yield (
        f"{grouped.CLIENTS} clients. Accuracy is each client's own, on samples that it kept; ARI "
        "compares with the planted groups. Average linkage and IFCA know their number, 4."
    )
    for split in dict.fromkeys(cell.setting.split for cell in cells):
        held = of_split(cells, split)
        yield f"### {split}, {len(held)} seeds"
        rows = [
            [
                name,
                *(spread(held, name, column) for column in ("accuracy", "ARI")),
                f"{mean(held, name, 'clusters'):.1f}" if "clusters" in found else "",
            ]
            for name, found in held[0].figures.items()
        ]
        yield table(("models", "accuracy", "ARI", "clusters"), rows)
