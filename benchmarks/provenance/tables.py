"""The tables of the comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.provenance.pairs import Pair
from benchmarks.provenance.scores import (
    Score,
    Verdicts,
    best_threshold,
    by_kind,
    decided,
    score_of,
)
from benchmarks.provenance.tools import Costs
from benchmarks.report import Row, Table, duration

__all__ = [
    "Rule",
    "answered",
    "by_kinds",
    "costs",
    "hindsight",
    "judged",
    "listed",
    "overall",
    "unread",
]

F1: Final = 0.98
_WEIGHTS: Final = {".safetensors": "safetensors", ".gguf": "GGUF", ".onnx": "ONNX"}
_LARGE: Final = 30_000_000
"""Bytes of weights that tell published models from those that are trained here."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to answer about all pairs.

    Attributes:
        name: of the tool, and what it decides by.
        verdicts: on the pairs.
    """

    name: str
    verdicts: Verdicts


def hindsight(name: str, pairs: Sequence[Pair], values: Sequence[float | None]) -> Rule:
    """The rule with the threshold that is the best on these very pairs."""
    threshold = best_threshold(pairs, values)
    return Rule(f"{name} > {threshold:.2f}, the best on these pairs", decided(values, threshold))


def judged(pairs: Sequence[Pair], rules: Sequence[Rule]) -> Iterator[Row]:
    """F1 and false positives of the first rule, beside those of the second."""
    ours, other = (score_of(pairs, rule.verdicts) for rule in rules[:2])
    beside = f"{rules[1].name}: {other.f1:.3f}"
    yield Row("F1", f"{ours.f1:.3f}", beside, "", f"≥ {F1}", ours.f1 >= F1)
    yield Row(
        "strangers that are called kin",
        f"{ours.false} of {ours.strangers}",
        f"{rules[1].name}: {other.false}",
        "",
        "0",
        ours.false == 0,
    )


def overall(pairs: Sequence[Pair], rules: Iterable[Rule]) -> Table:
    """The measures of each rule over all pairs."""
    return _overall("All pairs", pairs, rules)


def answered(pairs: Sequence[Pair], rules: Sequence[Rule]) -> Table:
    """Those over the pairs to which the second rule has an answer."""
    at = [number for number, verdict in enumerate(rules[1].verdicts) if verdict is not None]
    some = [Rule(rule.name, [rule.verdicts[number] for number in at]) for rule in rules]
    title = f"The pairs to which {rules[1].name} has an answer"
    return _overall(title, [pairs[number] for number in at], some)


def _overall(title: str, pairs: Sequence[Pair], rules: Iterable[Rule]) -> Table:
    kin = sum(pair.are_kin for pair in pairs)
    counts = f"{title}: {kin} of kin and {len(pairs) - kin} of strangers"
    columns = ["", "accuracy", "precision", "recall", "F1", "false", "no answer"]
    rows = [_measures(rule.name, score_of(pairs, rule.verdicts)) for rule in rules]
    return Table(counts, columns, rows)


def _measures(name: str, score: Score) -> list[str]:
    shares = (score.accuracy, score.precision, score.recall, score.f1)
    return [name, *(f"{share:.3f}" for share in shares), f"{score.false}", f"{score.unanswered}"]


def by_kinds(pairs: Sequence[Pair], rules: Sequence[Rule]) -> Table:
    """Right answers by kind."""
    scores = [by_kind(pairs, rule.verdicts) for rule in rules]
    rows = [
        [kind, f"{first.kin + first.strangers}", *(_right(each[kind]) for each in scores)]
        for kind, first in scores[0].items()
    ]
    title = "Right answers by kind, and in brackets the pairs without one, which count as wrong"
    return Table(title, ["kind", "pairs", *(rule.name for rule in rules)], rows)


def _right(score: Score) -> str:
    return f"{score.right} ({score.unanswered})" if score.unanswered else f"{score.right}"


def listed(pairs: Sequence[Pair], rules: Sequence[Rule]) -> Table:
    """How many of the pairs that do not count each rule calls kin."""
    rows = []
    for kind in dict.fromkeys(pair.kind for pair in pairs):
        at = [number for number, pair in enumerate(pairs) if pair.kind == kind]
        called = [sum(rule.verdicts[number] is True for number in at) for rule in rules]
        rows.append([kind, f"{len(at)}", *(f"{count}" for count in called)])
    title = "Pairs that are listed apart and do not count: how many are called kin"
    return Table(title, ["kind", "pairs", *(rule.name for rule in rules)], rows)


def unread(tools: Mapping[str, Costs]) -> Table:
    """The models that a tool could not read, by the format of their weights."""
    rows = [
        [name, f"{len(each.unread)} of {len(each.seconds)}", _formats(each.unread)]
        for name, each in tools.items()
    ]
    return Table("Models that could not be read", ["", "models", "formats"], rows)


def _formats(models: Iterable[Path]) -> str:
    counts = Counter(_WEIGHTS[_weights(model).suffix] for model in models)
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _weights(model: Path) -> Path:
    return max(model.iterdir(), key=lambda path: path.stat().st_size)


def costs(tools: Mapping[str, Costs]) -> Table:
    """The processor time of a model and what is kept of it: medians, of safetensors alone."""
    rows = []
    for group, is_large in (("trained here", False), ("all-MiniLM-L6-v2's", True)):
        for name, each in tools.items():
            models = [
                model
                for model in each.kept
                if _weights(model).suffix == ".safetensors"
                and (_weights(model).stat().st_size > _LARGE) == is_large
            ]
            if models:
                seconds = median(each.seconds[model] for model in models)
                kept = median(each.kept[model] for model in models)
                size = median(_weights(model).stat().st_size for model in models)
                rows.append(
                    [
                        f"{group}, {size / 1e6:.0f} MB",
                        name,
                        duration(seconds),
                        f"{kept / 1e3:,.0f} kB",
                    ]
                )
    return Table("Costs of a model, medians", ["models", "", "processor time", "kept"], rows)
