"""What is known of models when a report is made: facts that are declared, and figures of pairs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from modelkin.core.fingerprints.sources import Verdict

__all__ = ["KnownModel", "Likeness", "Period"]


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
    """

    model: str
    other: str
    verdict: Verdict
    share: float
    log10_p: float


@dataclass(frozen=True, slots=True)
class Period:
    """The time of a report; without a begin it is about all models."""

    since: datetime | None
    until: datetime
