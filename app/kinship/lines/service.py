"""The lineage of a stored fingerprint: its declared bases beside the lines in common.

Statements come with the fingerprint, and are unchecked. So a base may declare itself, or lead back
to its model; it may be of any layout, or be gone.
"""

from __future__ import annotations

from functools import partial

from app.fingerprints.service import FingerprintService
from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.family import Family
from app.kinship.lineage_comparer import require_time
from app.kinship.lines.caveats import caveats, made_of_it_text
from app.kinship.lines.judge import LineJudge, Lines
from app.kinship.lines.records import JudgedByLines, ReadModel
from app.kinship.lines.summary import with_summary
from app.kinship.unknown_chance import NOTHING
from app.tenancy.auth.records import Tenant
from modelkin.core.kinship.lineage import lineage_verdict, weight_of
from modelkin.types.lineages import (
    DeclaredBase,
    FingerprintLineage,
    LineageLink,
)

__all__ = ["FingerprintLineageService"]


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
        model = ReadModel(record, self._fingerprints.read(session, record))
        declared = record.facts.base_models
        read = partial(self._judge.declared_bases, session, tenant)
        family = Family.by(read, name, declared)
        lines = self._judge.judge(session, tenant, model, declared, deadline)
        bases = [_declared(each, lines.bases.get(each)) for each in declared]
        decided = min(bases, key=lambda each: weight_of(each.verdict), default=None)
        base = None if decided is None else lines.bases.get(decided.base_model)
        verdict = lineage_verdict(
            None if base is None else base.by_lines,
            declared=bool(declared),
            circular=family.leads_back,
        )
        counts = base is not None and verdict != "cycle"
        evidence = None if decided is None else decided.lines
        near = None if verdict == "consistent" else lines.likely_base()
        likely = None if near is None else near.shown
        measured = evidence or likely
        lineage = FingerprintLineage(
            model=name,
            verdict=verdict,
            reason="lines" if counts else None,
            summary="",
            declared_base=None if decided is None else decided.base_model,
            declared_bases=tuple(bases),
            base_relation=record.facts.base_relation,
            relation=lines.relation(evidence),
            lines=evidence,
            likely_base=None if likely is None else likely.model,
            likely_by_lines=likely,
            log10_p=None if measured is None else measured.log10_p,
            no_p=NOTHING if measured is None else None,
            chain=tuple(self._links(session, tenant, family, lines, deadline)),
            cycle=family.cycle,
            compared=0 if lines.near is None else lines.near.compared,
            truncated=lines.near is not None and lines.near.truncated,
        )
        said = caveats(model, base) if base is not None and counts else []
        said += made_of_it_text(lines.made_of_it)
        together = () if lines.whole is None else lines.whole.shown
        return with_summary(lineage, together, said, is_root=lines.is_root)

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


def _declared(name: str, judged: JudgedByLines | None) -> DeclaredBase:
    if judged is None:
        return DeclaredBase(name, "unknown_base", no_p=NOTHING)
    shown = judged.shown
    return DeclaredBase(name, shown.verdict, "lines", log10_p=shown.log10_p, lines=shown)
