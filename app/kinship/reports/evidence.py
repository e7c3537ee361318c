"""What a report is made from: facts that are declared, and measurements, of many models.

Nothing is read or computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from modelkin.core.fingerprints.sources import Verdict
from modelkin.types.reports import ContradictedBase, TakenApart, UndeclaredBase

__all__ = ["Evidence", "KnownModel", "Likeness", "Period"]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that has a fingerprint, with what is declared beside it.

    Attributes:
        is_reported: whether the report is about it; others stand in it as bases and copies alone.
        is_new: whether it was stored in the time of the report.
        stored_at: when its fingerprint was first stored.
        changed_at: when its fingerprint was last stored.
        published_at: when its owner published it, as a hub says.
        digest: that of its fingerprint.
        weights: the digest of its weights, where somebody stated it.
        verdict: what it is as a whole, as an anatomy says; None before it was measured.
        sentences: what was found about it.
    """

    name: str
    is_reported: bool
    is_new: bool
    stored_at: datetime
    changed_at: datetime
    published_at: datetime | None
    stated_by: str
    parameters: int
    file_bytes: int | None
    digest: str
    weights: str | None
    license: str | None
    declared: tuple[str, ...]
    verdict: str | None
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Likeness:
    """That a model has lines of another one.

    Attributes:
        verdict: ``copy``, ``part``, ``derived``, ``reuses`` or ``related``.
        share: of the model's lines, those that are found in the other.
        log10_p: the decimal logarithm of the probability of so many by chance.
        sentence: the same for people, where there is one.
    """

    model: str
    other: str
    verdict: Verdict
    share: float
    log10_p: float
    sentence: str | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """The time of a report; without a begin it is about all models."""

    since: datetime | None
    until: datetime


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a report is made from.

    Attributes:
        owner: the name of the tenant.
        fingerprints: how many models of the tenant have a fingerprint.
        models: those that the report is about, and all that stand in their findings, by name.
        likenesses: of each model that the report is about, and of those that it is like.
        contradicted: declared bases that the measurements speak against.
        judged: how many declared bases were judged.
        unknown: how many declared bases are not stored, so that nothing can be measured.
        undeclared: bases that were found in spaces.
        merges: what was taken apart.
        notes: what was left out, a sentence each.
    """

    owner: str
    period: Period
    fingerprints: int
    models: Mapping[str, KnownModel]
    likenesses: Mapping[str, Sequence[Likeness]]
    contradicted: Sequence[ContradictedBase] = ()
    judged: int = 0
    unknown: int = 0
    undeclared: Sequence[UndeclaredBase] = ()
    merges: Sequence[TakenApart] = ()
    notes: Sequence[str] = field(default=())
