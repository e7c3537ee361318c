"""Measure who finds kin: line fingerprints, the Model Provenance Kit, a cosine of weights.

All answer about the same pairs, in one run, each at its own default. The trainings take minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.provenance import kit
from benchmarks.provenance.pairs import Pair
from benchmarks.provenance.planted import planted_pairs
from benchmarks.provenance.tables import (
    Rule,
    answered,
    by_kinds,
    costs,
    hindsight,
    judged,
    listed,
    overall,
    unread,
)
from benchmarks.provenance.tools import Cosine, Fingerprints, Tool
from benchmarks.report import Findings

__all__ = ["LIBRARIES", "findings", "run"]

LIBRARIES = ("modelkin", "numpy", "numba", "torch", "transformers", "gguf")


def run(quick: bool) -> Findings:
    """Make the models, and put the same pairs to each tool; a quick run has no kit."""
    with tempfile.TemporaryDirectory(prefix="modelkin-bench-") as name:
        folder = Path(name)
        if quick:
            return findings(planted_pairs(folder), [], [Fingerprints(), Cosine()])
        # Its libraries take seconds to import, for which no other subject should wait.
        from benchmarks.provenance.everything import all_pairs

        peer = kit.ProvenanceKit(kit.installed(folder / "environment"))
        pairs, apart = all_pairs(folder / "models")
        return findings(pairs, apart, [Fingerprints(), peer, Cosine()])


def findings(pairs: list[Pair], apart: list[Pair], tools: Sequence[Tool]) -> Findings:
    """What tools answer.

    Args:
        pairs: those that are counted.
        apart: those that are only listed.
        tools: modelkin's first.
    """
    count, answers = len(pairs), [tool.answers([*pairs, *apart]) for tool in tools]
    rules = [Rule(name, each) for some in answers for name, each in some.verdicts.items()]
    counted = [Rule(rule.name, rule.verdicts[:count]) for rule in rules]
    best = [
        hindsight(name, pairs, values[:count])
        for some in answers
        for name, values in some.values.items()
    ]
    tables = [
        overall(pairs, counted + best),
        answered(pairs, counted),
        by_kinds(pairs, counted),
    ]
    if apart:
        tables.append(listed(apart, [Rule(rule.name, rule.verdicts[count:]) for rule in rules]))
    taken = {next(iter(some.verdicts)): some.costs for some in answers}
    return Findings(list(judged(pairs, counted)), [*tables, unread(taken), costs(taken)])
