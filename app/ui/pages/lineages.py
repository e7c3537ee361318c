"""``/spaces/{space}/lineages``: which declared bases the measurements confirm."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service
from app.kinship.findings.service import FindingService
from app.kinship.schemas import Verdict
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.ui import programs
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_JUDGED: Final = 50
"""Models on a page; each takes some milliseconds."""
_VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
_CHOICES: Final[dict[str, tuple[Verdict, ...]]] = {
    "suspicious": tuple(verdict for verdict in _VERDICTS if verdict != "consistent"),
    "all": (),
    **{verdict: (verdict,) for verdict in _VERDICTS},
}
"""The choices of a visitor, and the verdicts of each; no verdicts mean all."""

Show = Literal["suspicious", "all"] | Verdict


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
    """The findings among the next models by name; the page says how to go on."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
    verdicts = _CHOICES[show]
    page = None
    if space.kind == "supports":
        findings.catch_up(space, context.deadline)
        with context.reading() as session:
            page = findings.page(session, space, limit=_JUDGED, cursor=cursor, verdicts=verdicts)
    return render(
        request,
        "lineages.html",
        space=space,
        page=page,
        show=show,
        choices=list(_CHOICES),
        cursor=cursor,
        judged=_JUDGED,
        programs=programs.of_lineages(request, space, verdicts),
    )
