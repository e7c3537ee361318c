"""The gates of lines of trained networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from studies.cells import Figures
from studies.gates import Gate
from studies.lines.cells import hiding
from studies.lines.cells.wide import DRIFTS
from studies.lines.results import (
    HIDING,
    HUB,
    MERGES,
    ONE_SEED,
    ROTATIONS,
    SAVINGS,
    STRANGERS,
    WIDE,
    WORDS,
)
from studies.lines.words.section import ALL

__all__ = ["EXPECTED", "LLAMA", "derivatives", "gates_of_lines"]

LLAMA: Final = "LLaMA-like"
_GGUF: Final = " with the names and order of GGUF"
EXPECTED: Final = {
    "light": 0.92,
    "fine-tune": 0.54,
    "heavy": 0.09,
    "LoRA": 0.49,
    "65 tokens more": 0.75,
    "1,392 of 2,048 tokens": 0.87,
    "new head": 0.90,
    "deeper": 0.65,
    "fewer layers": 0.64,
    "mixture of experts": 0.70,
    "5 of 8 hidden units": 0.54,
    "192 of 256 places of the stream": 0.17,
    "same initial weights, other data": 0.14,
    f"Q8_0{_GGUF}": 0.87,
    f"Q6_K, imitated{_GGUF}": 0.79,
    f"Q5_0{_GGUF}": 0.64,
    f"Q4_K, imitated{_GGUF}": 0.56,
    f"Q4_0{_GGUF}": 0.45,
    f"Q3_K, imitated{_GGUF}": 0.29,
    f"Q2_K, imitated{_GGUF}": 0.18,
    "int8": 0.94,
    "bfloat16": 0.97,
    "FP8": 0.64,
    "int4, groups of 128, not of tokens": 0.58,
    "nf4, not of tokens": 0.42,
    "fused and renamed": 0.73,
    "transposed": 1.0,
    "flipped signs": 1.0,
    "permuted units": 0.76,
    "permuted stream": 0.37,
    "folded gains and scaled units": 0.64,
    "noise of 0.05 sigma": 0.64,
    "noise of 0.2 sigma": 0.18,
    "noise of 0.5 sigma": 0.02,
    "shard 1 of 2": 0.26,
    "shard 1 of 4": 0.14,
}
"""The shares of lines that were found before the product was, of LLaMA-like networks."""
_NEAR: Final = 0.05
_LEAST_TENSORS: Final = 1000


def derivatives(cells: Mapping[str, Figures]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Each architecture, derivative and what was found of it."""
    for name, figures in cells.items():
        for derivative, row in figures.items():
            if "wrong" in row:
                yield name, derivative, row


def gates_of_lines(cells: Mapping[str, Figures]) -> list[Gate]:
    """All gates of the cells that there are."""
    judged = {"": _placed, LLAMA: _llama, HUB: _hub, MERGES: _merges, STRANGERS: _strangers}
    judged |= {WIDE: _wide, ROTATIONS: _rotations, WORDS: _words, SAVINGS: _savings}
    judged |= {HIDING: _hiding}
    return [
        gate for name, gates in judged.items() if name in cells or not name for gate in gates(cells)
    ]


def _placed(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    rows = [row for _, _, row in derivatives(cells)]
    if rows:
        sought = sum(row["tensors at 1"] for row in rows)
        words = f"at least {_LEAST_TENSORS}"
        yield Gate("lines: tensors that were looked for", sought, words, sought >= _LEAST_TENSORS)
        wrong = sum(row["wrong"] for row in rows)
        yield Gate("lines: tensors at a wrong place, at any scale", wrong, "0", wrong == 0)


def _llama(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    for name, expected in EXPECTED.items():
        seen = cells[LLAMA].get(name, {}).get("lines", math.nan)
        words = f"{expected} within {_NEAR}"
        yield Gate(f"lines of {LLAMA}, {name}", seen, words, abs(seen - expected) <= _NEAR)
    for name, least in (("heavy", 0.05), ("fine-tune", 0.4), ("LoRA", 0.4)):
        yield _at_least(f"lines of {LLAMA}, {name}", cells[LLAMA][name]["lines"], least)


def _hub(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    figures = cells[HUB]
    for limit, least in ((-9, 0.975), (-13, 0.96)):
        found = figures[f"P below 1e{limit}"]
        yield _at_least(f"lines: recall in the hub at 1e{limit}", found["recall"], least)
        yield _none(f"lines: false pairs in the hub at 1e{limit}", found["false"])
    answers = figures["answers"]
    least = figures["pairs"]["checkpoints"] * 160 / 163
    yield _at_least("lines: first parents that are right", answers["first parent right"], least)
    yield _none("lines: sources in another family", answers["of another family"])


def _merges(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    real = {k: row for k, row in cells[MERGES].items() if not k.startswith("no merge")}
    for title in ("", " by all keys"):
        seen = max(abs(row.get(f"told{title}", math.nan) - row["share"]) for row in real.values())
        yield _at_most(f"lines: greatest error of a merge's share{title}", seen, 0.05)
    others = [row for name, row in cells[MERGES].items() if name not in real]
    seen = sum(row.get("average", 0) + row.get("average by all keys", 0) for row in others)
    yield _none("lines: the base or a sibling taken for an average", seen)


def _strangers(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    rows = {title: row for title, row in cells[STRANGERS].items() if title != ONE_SEED}
    for title, row in rows.items():
        seen = row["ratio"]
        yield Gate(f"lines: strangers' keys of lambda, {title}", seen, "at most 1.3", seen <= 1.3)
        yield _at_least(f"lines: strangers' least log10 P, {title}", row["least log10 P"], -13)


def _wide(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    rows = cells[WIDE].values()
    pairs = sum(row["pairs"] for row in rows)
    yield _at_least("wide lines: pairs of strangers' lines", pairs, 1e9)
    for members in (2, 3):
        equal, chance = (sum(row[f"{k} by {members}"] for row in rows) for k in ("equal", "chance"))
        words = "1/1.3 to 1.3"
        ratio = equal / chance
        name = f"wide lines: strangers' keys of {members} members, of those by chance"
        yield Gate(name, ratio, words, 1 / 1.3 <= ratio <= 1.3)
    seen = max(abs(row[f"drift {d}"] - row[f"expected at {d}"]) for row in rows for d in DRIFTS)
    yield _at_most("wide lines: greatest error of an expected share", seen, 0.1)


def _rotations(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    rows = cells[ROTATIONS].values()
    seen = min(row["rotated, kappa"] for row in rows)
    yield _at_least("inner products: least kappa of a rotated base", seen, 0.95)
    seen = min(row["fine-tune, kappa"] for row in rows)
    yield _at_least("inner products: least kappa of a rotated fine-tune", seen, 0.5)
    seen = max(row["stranger, greatest"] for row in rows)
    yield _at_most("inner products: greatest kappa of a stranger's tensor", seen, 0.25)


def _words(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    figures = cells[WORDS][ALL]
    yield _none("words for derivatives: wrong", figures["word wrong"])
    yield _none("words for derivatives: true bases contradicted", figures["base mismatch"])
    yield _none("words for derivatives: strangers confirmed", figures["stranger consistent"])


def _savings(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    seen = min(row["bfloat16"] - row["lines"] / 2 for row in cells[SAVINGS].values())
    yield _at_least("savings: what bfloat16 saves beyond half of the lines", seen, 0)


def _hiding(cells: Mapping[str, Figures]) -> Iterator[Gate]:
    figures = cells[HIDING]
    base, stranger = (figures[name]["loss"] for name in (hiding.BASE, hiding.STRANGER))
    yield _at_least("hiding: a stranger's loss beyond the base's", stranger - base, 1)
    seen = max(abs(figures[name]["loss"] - base) for name in hiding.TURNED)
    yield _at_most("hiding: loss of a base whose stream is turned", seen, 0.001)
    parts = [row for name, row in figures.items() if "loss" not in row and name != hiding.WHOLE]
    seen = sum(row["said"] >= hiding.DERIVED for row in parts)
    yield _none("forging: strangers said to share weights, by a part of a base", seen)


def _at_least(figure: str, seen: float, least: float) -> Gate:
    return Gate(figure, seen, f"at least {least:.4g}", seen >= least)


def _at_most(figure: str, seen: float, most: float) -> Gate:
    return Gate(figure, seen, f"at most {most}", seen <= most)


def _none(figure: str, seen: float) -> Gate:
    return Gate(figure, seen, "0", seen == 0)
