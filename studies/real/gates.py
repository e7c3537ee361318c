"""What published checkpoints must show, family by family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from studies.cells import Figures
from studies.gates import Gate
from studies.real.families import chgnet, torchani
from studies.real.results import Result

__all__ = ["gates_of_real"]


def gates_of_real(results: Sequence[Result]) -> list[Gate]:
    """The gates of all families that were measured."""
    return [gate for result in results for gate in _GATES[result.family](result.figures)]


def _torchani(figures: Figures) -> Iterator[Gate]:
    found = figures["K = 5%"]
    yield _at_least("torchani: parents that are nearest, of 8", found["parents nearest"], 8)
    yield _at_least("torchani: least S to a parent", found["parents' least S"], 0.99)
    seen = found["others' greatest kappa"]
    yield _at_most("torchani: greatest kappa of other seeds", seen, 0.2)


def _chgnet(figures: Figures) -> Iterator[Gate]:
    weights = _rows(figures, "weights, 0.3.0 and r2SCAN")
    yield _at_least("chgnet: S of the transfer, at every K", min(_column(weights, "S")), 0.88)
    seen = min(_column(weights, "kappa"))
    yield _at_least("chgnet: kappa of the transfer, at every K", seen, 0.85)
    adam = _rows(figures, "Adam's moments, 0.3.0 and r2SCAN, K = 5%")
    adam += _rows(figures, "Adam's moments, 0.3.0 and r2SCAN, K = 10%")
    yield _at_least("chgnet: S of Adam's moments, K = 5 and 10%", min(_column(adam, "S")), 0.6)
    other = _rows(figures, "weights, 0.3.0 and 0.2.0")
    seen = max(abs(row["S"] - row["chance"]) for row in other)
    yield _at_most("chgnet: S of 0.2.0 less chance, at every K", seen, 0.02)


def _rows(figures: Figures, start: str) -> list[dict[str, float]]:
    return [row for name, row in figures.items() if name.startswith(start)]


def _column(rows: Sequence[dict[str, float]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _at_least(figure: str, seen: float, least: float) -> Gate:
    return Gate(figure, seen, f"at least {least}", seen >= least)


def _at_most(figure: str, seen: float, most: float) -> Gate:
    return Gate(figure, seen, f"at most {most}", seen <= most)


_GATES: Final[dict[str, Callable[[Figures], Iterator[Gate]]]] = {
    torchani.NAME: _torchani,
    chgnet.NAME: _chgnet,
}
