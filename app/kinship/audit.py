"""The audit of a space: the lineage verdict of one model after another, page by page."""

from __future__ import annotations

from collections.abc import Collection

from app.infra.db.database import Reader
from app.infra.db.pagination import encode_cursor
from app.infra.deadlines import NEVER, Deadline
from app.infra.errors import ModelNotFound, TooMuch
from app.kinship.lineage import LineageService
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelFilter
from app.models.spaces.records import SpaceRecord
from modelkin.types.lineages import Lineage, LineageFinding
from modelkin.types.paging import Page

__all__ = ["LineageAudit"]


class LineageAudit:
    """The use case that judges many declared bases.

    Args:
        reader: lists the models.
        lineages: judges each.
    """

    def __init__(self, reader: ModelReader, lineages: LineageService) -> None:
        self._reader = reader
        self._lineages = lineages

    def page(
        self,
        session: Reader,
        space: SpaceRecord,
        *,
        limit: int,
        cursor: str | None,
        wanted: ModelFilter,
        verdicts: Collection[str] = (),
        deadline: Deadline = NEVER,
    ) -> Page[LineageFinding]:
        """The findings among the next models by name; other models may follow an empty page.

        A model without a declared base is a finding only if another model stands out near it.

        Args:
            limit: the most models that are judged.
            wanted: the models to judge.
            verdicts: the verdicts of the findings that are listed; all findings if empty.
            deadline: the time after which the page ends early, after one model at least.

        Raises:
            TooMuch, ClientLeft: the deadline is over, or the client has gone, before the first
                model is judged.
        """
        listed = self._reader.models(session, space, limit=limit, cursor=cursor, wanted=wanted)
        found: list[LineageFinding] = []
        last: str | None = None
        for model in listed.items:
            try:
                lineage = self._lineages.lineage(session, space, model.name, deadline)
            except ModelNotFound:  # deleted meanwhile
                continue
            except TooMuch:
                if last is None:
                    raise
                return Page(tuple(found), encode_cursor(last))
            last = model.name
            if (not verdicts or lineage.verdict in verdicts) and _says_something(lineage):
                found.append(_finding(lineage))
        return Page(tuple(found), listed.next_cursor)


def _says_something(lineage: Lineage) -> bool:
    return lineage.verdict != "undeclared" or lineage.likely_base is not None


def _finding(lineage: Lineage) -> LineageFinding:
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
