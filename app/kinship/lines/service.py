"""The lineage of a stored fingerprint: its declared bases beside the lines in common.

Statements come with the fingerprint, and are unchecked. So a base may declare itself, or lead back
to its model; it may be of any layout, or be gone.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import FingerprintNotFound
from app.kinship.family import Family
from app.kinship.lineage_comparer import require_time
from app.kinship.lines.caveats import caveats
from app.kinship.lines.judge import LineJudge, Lines
from app.kinship.lines.summary import with_summary
from app.tenancy.auth.records import Tenant
from modelkin.core.kinship.line_relations import LineageRelation, headline
from modelkin.core.kinship.lineage import Judgement, lineage_verdict
from modelkin.types.lineages import (
    DeclaredBase,
    FingerprintLineage,
    LineageLink,
    LineEvidence,
)

__all__ = ["FingerprintLineageService", "relation_of"]

_WEIGHTIEST: Final = ("mismatch", "unknown_base", "inconclusive", "consistent")
"""Verdicts of bases; the first that occurs decides, as in a space."""


class FingerprintLineageService:
    """The use case that compares the declared bases of a fingerprint with its lines.

    Args:
        fingerprints: the stored fingerprints.
        judge: judges bases by lines.
    """

    def __init__(self, fingerprints: FingerprintService, judge: LineJudge) -> None:
        self._fingerprints = fingerprints
        self._judge = judge

    def lineage(
        self, session: Reader, tenant: Tenant, name: str, deadline: Deadline = NEVER
    ) -> FingerprintLineage:
        """Return the lineage of a stored fingerprint.

        Raises:
            FingerprintNotFound: the name has none.
            TooMuch, ClientLeft: the deadline is over, or the client has gone; partial evidence
                would mislead.
        """
        require_time(deadline)
        record = self._fingerprints.get(session, tenant, name)
        model = self._judge.find(session, tenant, name)
        if model is None:
            raise FingerprintNotFound(f"the fingerprint of {name!r} has just been removed")
        declared = record.facts.base_models
        read = partial(self._judge.declared_bases, session, tenant)
        family = Family.by(read, name, declared)
        lines = self._judge.judge(session, tenant, model, declared, deadline)
        bases = [_declared(each, lines) for each in declared]
        decided = min(bases, key=lambda each: _WEIGHTIEST.index(each.verdict), default=None)
        verdict = lineage_verdict(
            None if decided is None else _judgement(decided),
            declared=bool(declared),
            circular=family.leads_back,
        )
        evidence = None if decided is None else decided.lines
        likely = None if lines.likely is None or verdict == "consistent" else lines.likely.shown
        lineage = FingerprintLineage(
            model=name,
            verdict=verdict,
            reason=None if evidence is None or verdict == "cycle" else "lines",
            summary="",
            declared_base=None if decided is None else decided.base_model,
            declared_bases=tuple(bases),
            base_relation=record.facts.base_relation,
            relation=relation_of(lines, evidence),
            lines=evidence,
            likely_base=None if likely is None else likely.model,
            likely_by_lines=likely,
            chain=tuple(self._links(session, tenant, family, lines, deadline)),
            cycle=family.cycle,
            compared=0 if lines.near is None else lines.near.compared,
            truncated=lines.near is not None and lines.near.truncated,
        )
        judged = lines.bases.get(lineage.declared_base or "")
        said = [] if judged is None or verdict == "cycle" else caveats(model, judged)
        return with_summary(lineage, () if lines.whole is None else lines.whole.shown, said)

    def _links(
        self,
        session: Reader,
        tenant: Tenant,
        family: Family,
        lines: Lines,
        deadline: Deadline,
    ) -> list[LineageLink]:
        """The declared bases, one after another, each with the lines that it shares."""
        links = []
        for model, base in family.chain:
            require_time(deadline)
            shared = self._judge.share(session, tenant, model, base, lines)
            share, log10_p = shared or (None, None)
            links.append(LineageLink(model, base, share_of_lines=share, log10_p=log10_p))
        return links


def relation_of(lines: Lines, evidence: LineEvidence | None) -> LineageRelation | None:
    """What a model is to its bases in one word: to several together, else to that which decides."""
    if lines.whole is not None:
        return headline(lines.whole.relations, None)
    return None if evidence is None else evidence.relation


def _declared(name: str, lines: Lines) -> DeclaredBase:
    judged = lines.bases.get(name)
    if judged is None:
        return DeclaredBase(name, "unknown_base")
    return DeclaredBase(name, judged.judgement.verdict, "lines", lines=judged.shown)


def _judgement(base: DeclaredBase) -> Judgement | None:
    if base.lines is None:
        return None
    verdict = base.lines.verdict
    assert verdict in ("consistent", "mismatch", "inconclusive")
    return Judgement(verdict, "lines")
