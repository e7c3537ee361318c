"""The gates that each study must reproduce, also where a peer is ahead, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from demo.planted import CONCEPTS
from studies import baselines
from studies.cells import Cell, Cells
from studies.settings import DIRICHLET, PATHOLOGICAL, TUNING_SEEDS, Setting
from studies.tables import clusters, disclosure, retrieval, samples

__all__ = ["Gate", "gates_of"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A figure beside what it must be.

    Attributes:
        figure: what was measured.
        seen: its value.
        target: in words.
        met: whether it is.
    """

    figure: str
    seen: float
    target: str
    met: bool

    def __str__(self) -> str:
        return f"{'met' if self.met else 'MISSED'}: {self.figure}: {self.seen:.3f}, {self.target}"


def gates_of(studies: Sequence[str], cells: Cells | None = None) -> list[Gate]:
    """The gates of some studies, judged on the cells that there are."""
    held = cells or Cells()
    return [gate for study in studies if study in _GATES for gate in _GATES[study](held.of(study))]


def _of_retrieval(cells: Sequence[Cell]) -> Iterator[Gate]:
    """Procedure A at K = 10% with the demo's CNN on digits, as measured before the product was."""
    own = [cell for cell in _first(cells) if cell.setting.clients == Setting().clients]
    expected = {
        retrieval.ios("A"): (0.81, 0.75),
        f"A: {baselines.PLAIN_COSINE}": (0.89, 0.81),
        "A: cosine of importance^1/2": (0.875, 0.855),
    }
    for row, targets in expected.items():
        for split, target in zip(DIRICHLET, targets, strict=True):
            seen = _mean(own, split, row, "R@8")
            words = f"{target} within 0.03"
            yield Gate(f"R@8 on {split}, {row}", seen, words, abs(seen - target) <= 0.03)
    for split in PATHOLOGICAL:
        seen = _mean(own, split, retrieval.ios("A"), "tied R@8")
        yield Gate(f"tie-aware R@8 on {split}", seen, "at least 0.98", seen >= 0.98)
    ratios = [
        c.figures["A: signatures"]["RMSE"] / c.figures["A: signatures"]["expected RMSE"]
        for c in own
    ]
    seen = float(np.mean(ratios))
    yield Gate("RMSE of signatures, of theory's", seen, "1 within 0.25", abs(seen - 1) <= 0.25)


def _of_clusters(cells: Sequence[Cell]) -> Iterator[Gate]:
    own = _first(cells)
    for split in ("labels", *CONCEPTS):
        seen = _mean(own, split, clusters.KNOWN, "ARI")
        yield Gate(f"ARI on {split}", seen, "at least 0.95", seen >= 0.95)
    for split in CONCEPTS:
        others = max(
            _mean(own, split, name, "accuracy") for name in (clusters.GLOBAL, clusters.ALONE)
        )
        seen = _mean(own, split, clusters.KNOWN, "accuracy") - others
        words = "at least 0.05 above the better of global and alone"
        yield Gate(f"accuracy on {split}", seen, words, seen >= 0.05)


def _of_samples(cells: Sequence[Cell]) -> Iterator[Gate]:
    """The gates of few samples, as the page on clustering measures them."""
    row = clusters.row(clusters.IOS, samples.FREE)
    own = [cell for cell in cells if cell.setting.network == "two layers"]
    found = [cell.figures[row]["100%"] for cell in own]
    seen = float(np.mean(found)) if found else float("nan")
    figure = "ARI on swapped labels, two layers, all samples, number free"
    yield Gate(figure, seen, "at least 0.95", seen >= 0.95)


def _of_disclosure(cells: Sequence[Cell]) -> Iterator[Gate]:
    own = [cell for cell in _first(cells) if cell.setting.clients == Setting().clients]
    aucs = [c.figures["blinded"]["label presence"] for c in own]
    seen = float(np.mean(aucs))
    yield Gate(
        "an outsider's AUC on blinded supports", seen, "0.5 within 0.05", abs(seen - 0.5) <= 0.05
    )
    gap = max(abs(c.figures["blinded"]["R@8"] - c.figures["whole"]["R@8"]) for c in own)
    yield Gate("R@8 of blinded less that of plain ones", gap, "0 to the last digit", gap == 0)


def _first(cells: Sequence[Cell]) -> list[Cell]:
    """The cells of the federations of the gates, without those that baselines are tuned on."""
    return [
        cell
        for cell in cells
        if (cell.setting.data, cell.setting.network) == ("digits", "cnn")
        and cell.setting.seed not in TUNING_SEEDS
    ]


def _mean(cells: Sequence[Cell], split: str, row: str, column: str) -> float:
    """Not a number, which meets no gate, where there is no cell."""
    found = [c.figures[row][column] for c in cells if c.setting.split == split]
    return float(np.mean(found)) if found else float("nan")


_GATES: Final[dict[str, Callable[[Sequence[Cell]], Iterator[Gate]]]] = {
    retrieval.NAME: _of_retrieval,
    clusters.NAME: _of_clusters,
    samples.NAME: _of_samples,
    disclosure.NAME: _of_disclosure,
}
