"""Records of findings: plain frozen values, and the order of what matters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, get_args

from modelkin.core.kinship.lineage import LineageVerdict
from modelkin.types.reports.audits import LineageFinding

__all__ = [
    "JOB_KIND",
    "NOTHING_TO_SAY",
    "RANKS",
    "SUSPICIOUS",
    "UNJUDGED",
    "VERDICTS",
    "Due",
    "FindingPage",
    "InboxFinding",
    "InboxVerdict",
    "Made",
    "Totals",
]

JOB_KIND: Final = "findings"
"""The kind of the jobs that judge the models of a space."""
RANKS: Final[Mapping[LineageVerdict, int]] = {
    "mismatch": 0,
    "cycle": 1,
    "undeclared": 2,
    "unknown_base": 3,
    "inconclusive": 4,
    "consistent": 5,
}
"""The place of a verdict in a list: what matters most comes first."""
NOTHING_TO_SAY: Final = 8
"""The rank of a model that declares nothing, and that nothing stands out near."""
UNJUDGED: Final = 9
"""The rank of a model that is not judged yet."""
VERDICTS: Final = {rank: verdict for verdict, rank in RANKS.items()}
SUSPICIOUS: Final[tuple[LineageVerdict, ...]] = tuple(v for v in RANKS if v != "consistent")
"""The verdicts that ask for a look."""
assert set(get_args(LineageVerdict)) == RANKS.keys()


@dataclass(frozen=True, slots=True)
class Due:
    """A model whose verdict has to be found, and what was kept of it.

    Attributes:
        asked: how much may have changed its verdict by now.
        state: what was judged of it; None before the first verdict.
        found_at: since when its verdict names its base.
        declared_bases: what it declared then.
    """

    model_id: int
    asked: int
    state: str | None
    rank: int
    base: str | None
    found_at: datetime | None
    declared_bases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A verdict as it is stored.

    Attributes:
        rank: its place, which leaves out what says nothing.
        base: the base that it is about: the declared one, else the likely one.
        base_id, nearest_id, likely_id: the models that it names.
        news_from: the similarity from which on another model may change it.
        state: what of the model was judged.
        version: that of the space when the model changed last.
        near: the models near it, by name, with their similarity to it.
    """

    model_id: int
    name: str
    finding: LineageFinding
    rank: int
    base: str | None
    base_id: int | None
    nearest_id: int | None
    likely_id: int | None
    news_from: float
    state: str
    version: int
    near: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Totals:
    """How many findings of a space there are.

    Attributes:
        found: by verdict, acknowledged ones included.
        acknowledged: by verdict.
        pending: models that are not judged yet.
        outdated: models that are judged, and will be again.
    """

    found: Mapping[LineageVerdict, int]
    acknowledged: Mapping[LineageVerdict, int]
    pending: int
    outdated: int


@dataclass(frozen=True, slots=True)
class FindingPage:
    """Findings of a space in the order of what matters, and all their totals."""

    items: tuple[LineageFinding, ...]
    next_cursor: str | None
    totals: Totals


@dataclass(frozen=True, slots=True)
class InboxFinding:
    """A finding among those of all spaces.

    Attributes:
        base: the base that it is about.
        likely_base: the model that may be the base instead; None for none.
        similarity: S to the base that it is about.
        found_at: since when it is known.
    """

    space: str
    model: str
    base: str | None
    likely_base: str | None
    similarity: float | None
    summary: str
    found_at: datetime


@dataclass(frozen=True, slots=True)
class InboxVerdict:
    """The open findings of a verdict in all spaces: how many, and the newest."""

    verdict: LineageVerdict
    count: int
    newest: tuple[InboxFinding, ...]
