"""Answers of audits: the verdict on each model of a space, totals, and what was acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from modelkin._printing import Printed
from modelkin.types.vocabulary import LineageReason, LineageRelation, LineageVerdict

__all__ = ["Acknowledgement", "LineageFinding", "LineageTotals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What somebody has acknowledged of a model. It holds for this finding, and for no other.

    Attributes:
        verdict: the verdict.
        base: the base that it was about: the declared one, else the likely one.
        note: what was noted; None for nothing.
        made_by: the first characters of the key; None where no key is required.
        made_at: when.
    """

    verdict: LineageVerdict
    base: str | None = None
    note: str | None = None
    made_by: str | None = None
    made_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageFinding:
    """The verdict on one model in the audit of a space; its lineage has the evidence.

    Attributes:
        verdict, reason: as in :class:`modelkin.Lineage`. An ``"undeclared"`` model is a finding
            only if another one stands out near it.
        declared_base: what the model declares; of several bases the one that decides.
        declared_bases: the names of all bases that it declares.
        likely_base: the nearest model that stands out, unless the declared base is confirmed.
        similarity: S to the declared base; of an undeclared model to the likely one.
        kappa: S beyond chance of the same two, as in :class:`modelkin.Neighbor`.
        base_similarity: S to the declared base; None where it is not measured.
        covered: the share of the parameters over which ``similarity`` is, as in
            :class:`modelkin.Neighbor`.
        nearest, nearest_similarity: the nearest model of the space, whatever it is, and S to it.
        log10_p, no_p, relation, lines_agree: as in :class:`modelkin.Lineage`.
        share_of_lines: of the model's lines, those of the declared base, else of the likely one;
            None without fingerprints.
        summary: why, in a sentence or two.
        found_at: since when the verdict names this base.
        judged_at: when it was found last.
        acknowledgement: who has acknowledged this finding; None for nobody.
    """

    model: str
    verdict: LineageVerdict
    reason: LineageReason | None = None
    declared_base: str | None = None
    likely_base: str | None = None
    similarity: float | None = None
    kappa: float | None = None
    base_similarity: float | None = None
    nearest: str | None = None
    nearest_similarity: float | None = None
    declared_bases: tuple[str, ...] = ()
    covered: float | None = None
    log10_p: float | None = None
    no_p: str | None = None
    relation: LineageRelation | None = None
    lines_agree: bool | None = None
    share_of_lines: float | None = None
    summary: str
    found_at: datetime | None = None
    judged_at: datetime | None = None
    acknowledgement: Acknowledgement | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LineageTotals(Printed):
    """How many findings a space has.

    Attributes:
        found: findings by verdict, acknowledged ones included.
        acknowledged: of these, the acknowledged ones.
        pending: models that the service has not judged yet.
        outdated: models whose verdict may have changed, and that it judges again.
    """

    found: Mapping[LineageVerdict, int]
    acknowledged: Mapping[LineageVerdict, int]
    pending: int
    outdated: int
