"""How right the answers of a tool are, over all pairs and by their kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.provenance.pairs import Pair

__all__ = ["Score", "Values", "Verdicts", "best_threshold", "by_kind", "decided", "score_of"]

Verdicts = Sequence[bool | None]
"""Whether the models of each pair are kin; None where a tool has no answer."""
Values = Sequence[float | None]
"""What a tool decides by, one for each pair; None where it has no answer."""


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of answers. A pair without an answer counts as wrong, and never as called kin.

    Attributes:
        kin: the pairs of kin.
        strangers: the pairs of strangers.
        found: kin that are called kin.
        false: strangers that are called kin.
        unanswered: pairs without an answer.
        unanswered_strangers: those of strangers among them.
    """

    kin: int
    strangers: int
    found: int
    false: int
    unanswered: int
    unanswered_strangers: int

    @property
    def right(self) -> int:
        """The right answers."""
        return self.found + self.strangers - self.false - self.unanswered_strangers

    @property
    def accuracy(self) -> float:
        """The share of right answers among all pairs."""
        return self.right / (self.kin + self.strangers)

    @property
    def precision(self) -> float:
        """The share of kin among those that are called kin; 1 where none is."""
        called = self.found + self.false
        return self.found / called if called else 1.0

    @property
    def recall(self) -> float:
        """The share of kin that is found; 1 where there are none."""
        return self.found / self.kin if self.kin else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.found + self.false + self.kin
        return 2 * self.found / both if both else 1.0


def score_of(pairs: Sequence[Pair], verdicts: Verdicts) -> Score:
    """The score of the verdicts on pairs, in their order."""
    answered = list(zip((pair.are_kin for pair in pairs), verdicts, strict=True))
    kin = sum(pair.are_kin for pair in pairs)
    return Score(
        kin=kin,
        strangers=len(pairs) - kin,
        found=answered.count((True, True)),
        false=answered.count((False, True)),
        unanswered=answered.count((True, None)) + answered.count((False, None)),
        unanswered_strangers=answered.count((False, None)),
    )


def by_kind(pairs: Sequence[Pair], verdicts: Verdicts) -> dict[str, Score]:
    """The score of each kind of pair, in the order in which kinds come."""
    kinds = dict.fromkeys(pair.kind for pair in pairs)
    places = {kind: [at for at, pair in enumerate(pairs) if pair.kind == kind] for kind in kinds}
    return {
        kind: score_of([pairs[at] for at in some], [verdicts[at] for at in some])
        for kind, some in places.items()
    }


def decided(values: Values, threshold: float) -> list[bool | None]:
    """Kin where a value is above the threshold; no answer where there is no value."""
    return [None if value is None else value > threshold for value in values]


def best_threshold(pairs: Sequence[Pair], values: Values) -> float:
    """The threshold with the greatest F1 on these very pairs, known in hindsight alone."""
    tried = sorted({value for value in values if value is not None})
    return max(
        [tried[0] - 1.0, *tried] if tried else [0.0],
        key=lambda threshold: score_of(pairs, decided(values, threshold)).f1,
    )
