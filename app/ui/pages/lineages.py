"""``/spaces/{space}/lineages``: which declared bases the measurements confirm."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.kinship.findings.records import RANKS, SUSPICIOUS, Totals
from app.kinship.findings.service import FindingService
from app.kinship.schemas import Verdict
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui import programs
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_SHOWN: Final = 100
"""Findings on a page."""
_CHOICES: Final[dict[str, tuple[Verdict, ...]]] = {
    "suspicious": SUSPICIOUS,
    "all": (),
    **{verdict: (verdict,) for verdict in RANKS},
    "acknowledged": (),
}
"""The choices of a visitor, and the verdicts of each; no verdicts mean all."""

Show = Literal["suspicious", "all", "acknowledged"] | Verdict


@routes.get(
    "/spaces/{space}/lineages",
    turn="heavy",
)
def lineages(
    context: ReadingContext,
    spaces: Service[SpaceService],
    findings: Service[FindingService],
    space_name: SpaceName,
    request: Request,
    show: Annotated[Show, Query()] = "suspicious",
    cursor: Cursor = None,
) -> HTMLResponse:
    """The findings that nobody has acknowledged, what matters first; or those that somebody has."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
    verdicts = _CHOICES[show]
    page = None
    if space.kind == "supports":
        findings.catch_up(space, context.deadline)
        with context.reading() as session:
            page = findings.page(
                session,
                space,
                limit=_SHOWN,
                cursor=cursor,
                verdicts=verdicts,
                acknowledged=show == "acknowledged",
            )
    return render(
        request,
        "lineages.html",
        space=space,
        page=page,
        show=show,
        counts={} if page is None else _counts(page.totals),
        cursor=cursor,
        programs=programs.of_lineages(request, space, verdicts),
    )


def _counts(totals: Totals) -> dict[str, int]:
    """How many findings each choice shows."""
    left = {each: totals.found[each] - totals.acknowledged[each] for each in RANKS}
    counts = {
        name: sum(left[each] for each in (verdicts or RANKS)) for name, verdicts in _CHOICES.items()
    }
    return counts | {"acknowledged": sum(totals.acknowledged.values())}
