"""What is said of derivatives beside their base, in the words of hubs: right, open or wrong.

Each is judged as a file of so many bits a parameter beside a base of sixteen, by all keys and by
default settings. Its base is declared, and then a stranger is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from modelkin.core.fingerprints.comparison import compare
from modelkin.core.fingerprints.fingerprint import Fingerprint
from modelkin.core.kinship.line_relations import StoredAs, headline, in_words_of_hubs
from modelkin.core.kinship.lines import LineJudgement, judge_by_lines
from studies.cells import Figures
from studies.lines.comparing import Made, fingerprints_of
from studies.lines.derivatives import Derivative
from studies.lines.networks.catalogue import ARCHITECTURES
from studies.lines.trained import Trained
from studies.lines.words.cases import Case, cases
from studies.lines.words.section import ALL
from studies.lines.zoo import Zoo

__all__ = ["Answer", "answers", "counted", "word_figures"]

_OPEN: Final = frozenset({"shares", "related", "reuses"})
"""Words that say no more than that lines are shared."""
_BASE_BITS: Final = 16.0
_PARAMETERS: Final = 1_000_000
_VERDICTS: Final = ("consistent", "inconclusive", "mismatch")


@dataclass(frozen=True)
class Answer:
    """What is said of a derivative.

    Attributes:
        scale: of its keys.
        words: all that is said of it beside its base.
        verdict: on that base.
        of_stranger: the verdict on a stranger.
    """

    case: Case
    scale: str
    words: frozenset[str]
    verdict: str
    of_stranger: str

    @property
    def kind(self) -> str:
        """Whether what is said is right, open or wrong."""
        told = self.words - _OPEN
        if told - self.case.right:
            return "wrong"
        return "right" if told else "open"


def word_figures(zoo: Zoo, made_of: Callable[[Trained], Iterable[Derivative]]) -> Figures:
    """The counts of each architecture and of all; those that are wrong are printed.

    Args:
        zoo: has the trained weights.
        made_of: what is made of the networks of an architecture.
    """
    counts: dict[str, Counter[str]] = {}
    for name, architecture in ARCHITECTURES.items():
        trained = Trained(architecture, zoo)
        for answer in answers(trained, made_of(trained)):
            if answer.kind == "wrong":
                said = ", ".join(sorted(answer.words))
                print(f"wrong: {name}, {answer.case.name}, {answer.scale}: {said}", flush=True)
            for of in (name, ALL):
                counts.setdefault(of, Counter()).update(counted(answer))
    return {of: dict(count) for of, count in counts.items()}


def answers(trained: Trained, made: Iterable[Derivative]) -> Iterator[Answer]:
    """What is said of each derivative of an architecture, at both scales."""
    base, stranger = (fingerprints_of(trained.base(seed)) for seed in (0, 1))
    for case in cases(trained, made):
        both = fingerprints_of(case.tensors)
        for scale, of in (("all keys", _whole), ("default", _usual)):
            yield _answer(case, scale, of(both), of(base), of(stranger))


def _whole(made: Made) -> Fingerprint:
    return made.whole


def _usual(made: Made) -> Fingerprint:
    return made.usual


def _answer(
    case: Case, scale: str, made: Fingerprint, base: Fingerprint, stranger: Fingerprint
) -> Answer:
    found = judge_by_lines(made, "base", base, [compare(made, "stranger", stranger)])
    claimed = judge_by_lines(made, "stranger", stranger, [compare(made, "base", base)])
    return Answer(case, scale, _words(case, found), found.verdict, claimed.verdict)


def _words(case: Case, found: LineJudgement) -> frozenset[str]:
    stored = StoredAs(_PARAMETERS, round(_PARAMETERS * case.bits / 8), case.declared)
    base = StoredAs(_PARAMETERS, round(_PARAMETERS * _BASE_BITS / 8))
    said = in_words_of_hubs(found.anatomy.relations, found.comparison, stored, base)
    parents = found.anatomy.parents
    first = headline(said, parents[0].verdict if parents else None)
    return frozenset({each.relation for each in said} | ({first} if first else set()))


def counted(answer: Answer) -> dict[str, int]:
    """The counts of one answer."""
    return {
        "answers": 1,
        **{f"word {kind}": int(answer.kind == kind) for kind in ("right", "open", "wrong")},
        **{f"base {v}": int(answer.verdict == v) for v in _VERDICTS},
        **{f"stranger {v}": int(answer.of_stranger == v) for v in _VERDICTS},
    }
