"""``FindingMaker``: the verdict on a model, in the form in which it is kept."""

from __future__ import annotations

from app.infra.db.database import Reader
from app.infra.deadlines import NEVER, Deadline
from app.kinship.findings.records import NOTHING_TO_SAY, RANKS, Made
from app.kinship.findings.repositories.changes import state_of
from app.kinship.lineage import LineageService
from app.kinship.lineage_evidence import OF_DATA
from app.kinship.repository import declared_bases, ids_declaring
from app.models.catalog.records import ModelRecord
from app.models.catalog.repositories.candidates import candidates_by_name
from app.models.spaces.records import SpaceRecord
from modelkin.core.kinship.lineage import MIN_COPY_SIMILARITY
from modelkin.types.lineages import Lineage
from modelkin.types.reports.audits import LineageFinding

__all__ = ["FindingMaker", "finding_of"]

_SETTLED = frozenset({"consistent", "mismatch"})
"""Verdicts that only a nearer model may change; any model that stands out may change the others."""


class FindingMaker:
    """Makes the finding of a model from its lineage.

    Args:
        lineages: judges it.
    """

    def __init__(self, lineages: LineageService) -> None:
        self._lineages = lineages

    def make(
        self, session: Reader, space: SpaceRecord, model: ModelRecord, deadline: Deadline = NEVER
    ) -> Made:
        """Judge a model of a space.

        Raises:
            ModelNotFound: it is gone, or has another name.
            TooMuch, ClientLeft: the deadline is over, or the client has gone.
        """
        lineage = self._lineages.lineage(session, space, model.name, deadline)
        finding = finding_of(lineage)
        named = {finding.declared_base, finding.likely_base, finding.nearest} - {None}
        found = candidates_by_name(session, space, sorted(name for name in named if name))
        ids = {each.name: each.id for each in found}
        silent = lineage.verdict == "undeclared" and _is_no_finding(session, space, lineage)
        return Made(
            model_id=model.id,
            name=model.name,
            finding=finding,
            rank=NOTHING_TO_SAY if silent else RANKS[lineage.verdict],
            base=lineage.declared_base or lineage.likely_base,
            base_id=ids.get(finding.declared_base or ""),
            nearest_id=ids.get(finding.nearest or ""),
            likely_id=ids.get(finding.likely_base or ""),
            news_from=_news_from(finding),
            state=state_of(model),
            version=model.version,
            near={kin.model: kin.similarity for kin in lineage.kin if kin.stands_out is not False},
        )


def finding_of(lineage: Lineage) -> LineageFinding:
    """The verdict of a lineage, without its evidence."""
    shown = lineage.base
    if shown is None:
        shown = next((kin for kin in lineage.kin if kin.model == lineage.likely_base), None)
    nearest = lineage.kin[0] if lineage.kin else None
    lines = lineage.lines or lineage.likely_by_lines
    return LineageFinding(
        model=lineage.model,
        verdict=lineage.verdict,
        reason=lineage.reason,
        declared_base=lineage.declared_base,
        declared_bases=tuple(each.base_model for each in lineage.declared_bases),
        likely_base=lineage.likely_base,
        similarity=None if shown is None else shown.similarity,
        kappa=None if shown is None else shown.kappa,
        log10_p=lineage.log10_p,
        no_p=lineage.no_p,
        covered=None if shown is None else shown.covered,
        base_similarity=None if lineage.base is None else lineage.base.similarity,
        nearest=None if nearest is None else nearest.model,
        nearest_similarity=None if nearest is None else nearest.similarity,
        relation=lineage.relation,
        lines_agree=lineage.lines_agree,
        share_of_lines=None if lines is None else lines.share_of_lines,
        summary=lineage.summary,
    )


def _is_no_finding(session: Reader, space: SpaceRecord, lineage: Lineage) -> bool:
    """Whether a model without a declaration needs none: nothing stands out, or it is a root.

    A root is declared as the base of others, and whatever else stands out near it declares a base
    of its own: if that is wrong, it is a finding about that model. That a root is a copy of another
    one is listed among the copies. Supports of gradients show whose data are alike, as in a
    federation, whatever they were made from.
    """
    if lineage.likely_base is None or space.importance.kind in OF_DATA:
        return True
    if not ids_declaring(session, space, [lineage.model]):
        return False
    if _is_copy(lineage):
        return True
    outside = {
        kin.model for kin in lineage.kin if kin.relation is None and kin.stands_out is not False
    }
    declared = declared_bases(session, space, outside | {lineage.likely_base})
    return all(declared.get(name) for name in outside | {lineage.likely_base})


def _is_copy(lineage: Lineage) -> bool:
    """Whether a model and its likely base are one, by lines or by S."""
    if lineage.likely_by_lines is not None:
        return lineage.likely_by_lines.verdict == "copy"
    return any(
        kin.similarity >= MIN_COPY_SIMILARITY
        for kin in lineage.kin
        if kin.model == lineage.likely_base
    )


def _news_from(finding: LineageFinding) -> float:
    """The similarity from which on a new model may change a verdict."""
    if finding.verdict not in _SETTLED:
        return 0.0
    known = (finding.nearest_similarity, finding.base_similarity)
    return min((each for each in known if each is not None), default=0.0)
