"""The gates of published checkpoints, family by family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from studies.cells import Figures
from studies.gates import Gate
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

__all__ = ["gates_of_real"]


def gates_of_real(results: Sequence[Result]) -> list[Gate]:
    """The gates of all families that were measured."""
    return [gate for result in results for gate in _GATES[result.family](result.figures)]


def _torchani(figures: Figures) -> Iterator[Gate]:
    found = figures["K = 5%"]
    yield _at_least("torchani: parents that are nearest, of 8", found["nearest"], 8)
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


def _mhcnuggets(figures: Figures) -> Iterator[Gate]:
    found = figures["K = 5%"]
    seen = found["nearest of 60"]
    yield _at_least("mhcnuggets: parents than which none is nearer, of 60", seen, 43)
    seen = found["nearest of 15"]
    yield _at_least("mhcnuggets: likewise of 15", seen, 13)
    for algorithm in mhcnuggets.ALGORITHMS:
        seen = figures[f"K = 5%, clusters by {algorithm}"]["ARI"]
        yield _at_least(f"mhcnuggets: ARI to classes, {algorithm}", seen, 1.0)


def _silero(figures: Figures) -> Iterator[Gate]:
    for algorithm in silero.ALGORITHMS:
        found = figures[f"K = 10%, without the basis, {algorithm}"]
        seen = found["clusters"]
        yield Gate(f"silero: clusters by {algorithm}", seen, "3", seen == 3)
        yield _at_least(f"silero: ARI to releases, {algorithm}", found["ARI to releases"], 1.0)
    found = figures["K = 10%, without the basis"]
    seen = found["half of 6.2.3 to 5.1"]
    yield _at_least("silero: S of the half file of 6.2.3 to 5.1", seen, 0.99)
    seen = found["safetensors to ONNX"]
    figure = "silero: S of the safetensors of 6.2.3 to its ONNX"
    yield Gate(figure, seen, "0.8 within 0.02", abs(seen - 0.8) <= 0.02)


def _ncnn(figures: Figures) -> Iterator[Gate]:
    for group, count in (("CUNet", 13), ("upconv7", 10)):
        seen = figures[f"{group}, S"]["nearest own"]
        yield _at_least(f"ncnn: {group} nearest to one of its family, of {count}", seen, count)
    for name in figures:
        if name.endswith(ncnn.NOISE):
            levels = list(figures[name].values())
            falls = [before - after for before, after in pairwise(levels)]
            yield Gate(
                f"ncnn: least fall of {name}, by noise", min(falls), "above 0", min(falls) > 0
            )
    for name in ("CUNet, affinity_propagation", "CUNet, hdbscan", "upconv7, hdbscan"):
        yield _at_least(f"ncnn: ARI to families, {name}", figures[name]["ARI"], 1.0)


def _spliceai(figures: Figures) -> Iterator[Gate]:
    yield _strangers("spliceai: greatest kappa of two seeds, at every K", figures)


def _upscalerjs(figures: Figures) -> Iterator[Gate]:
    yield _strangers("upscalerjs: greatest kappa of two scales, at every K", figures)


_LINES: Final = {"int8, rows": 0.88, "FP8, rows": 0.55, "nf4": 0.21}
"""The least share of lines that copies keep: .05 below what lines were first measured to keep."""


def _minilm(figures: Figures) -> Iterator[Gate]:
    for scheme, found in figures.items():
        least = _KEPT.get(scheme.split()[0].strip(","), _KEPT_BY_BITS.get(int(found["bits"])))
        if least is not None:
            yield _at_least(f"minilm: kappa of a copy by {scheme}", found["kappa"], least)
        lines = _LINES.get(scheme)
        if lines is not None:
            yield _at_least(f"minilm: lines of a copy by {scheme}", found["lines"], lines)


def _rotated(figures: Figures) -> Iterator[Gate]:
    for name, row in figures.items():
        if name.endswith("rotated, and SmolLM2-135M"):
            yield _at_least(f"rotated: {name}: tensors alike, of 90", row["alike"], 90)
        elif "rotated, and" in name:
            yield _at_most(f"rotated: {name}: tensors alike", row["alike"], 0)
    seen = figures[rotated.STRANGERS]["greatest kappa"]
    yield _at_most("rotated: greatest kappa of tensors of two models", seen, 0.15)


def _strangers(figure: str, figures: Figures) -> Gate:
    return _at_most(figure, max(row["kappa, greatest"] for row in figures.values()), 0.03)


def _rows(figures: Figures, start: str) -> list[dict[str, float]]:
    return [row for name, row in figures.items() if name.startswith(start)]


def _column(rows: Sequence[dict[str, float]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _at_least(figure: str, seen: float, least: float) -> Gate:
    return Gate(figure, seen, f"at least {least}", seen >= least)


def _at_most(figure: str, seen: float, most: float) -> Gate:
    return Gate(figure, seen, f"at most {most}", seen <= most)


_KEPT_BY_BITS: Final = {8: 0.99, 4: 0.9}
_KEPT: Final = {"FP8": 0.95, "nf4": 0.85, "NVFP4": 0.85, "MXFP4": 0.7}
"""What is left where steps grow with the values, by the first word of a scheme."""

_GATES: Final[dict[str, Callable[[Figures], Iterator[Gate]]]] = {
    torchani.NAME: _torchani,
    chgnet.NAME: _chgnet,
    mhcnuggets.NAME: _mhcnuggets,
    silero.NAME: _silero,
    ncnn.NAME: _ncnn,
    spliceai.NAME: _spliceai,
    upscalerjs.NAME: _upscalerjs,
    minilm.NAME: _minilm,
    rotated.NAME: _rotated,
}
