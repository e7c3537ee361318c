"""``/spaces/{space}/lineages``: which declared bases the measurements confirm."""

from __future__ import annotations

from typing import Annotated, Final, Literal, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.catalog.records import ModelFilter
from app.infra.http.dependencies import Cursor, Reading, Turn
from app.infra.http.services import Service
from app.infra.http.turns import counts_as
from app.kinship.audit import LineageAudit
from app.kinship.schemas import Verdict
from app.spaces.dependencies import KnownSpace
from app.ui import programs
from app.ui.rendering import PageRoute, render

__all__ = ["router"]

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, route_class=PageRoute
)

_JUDGED: Final = 50
"""Models a page, each of which takes some milliseconds."""
_VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
_CHOICES: Final[dict[str, tuple[Verdict, ...]]] = {
    "suspicious": tuple(verdict for verdict in _VERDICTS if verdict != "consistent"),
    "all": (),
    **{verdict: (verdict,) for verdict in _VERDICTS},
}
"""What a visitor may ask for, and the verdicts that this is; none are all of them."""

Show = Literal["suspicious", "all"] | Verdict


@router.get("/spaces/{space}/lineages")
@counts_as("heavy")
def lineages(
    request: Request,
    audit: Service[LineageAudit],
    space: KnownSpace,
    session: Reading,
    turn: Turn,
    show: Annotated[Show, Query()] = "suspicious",
    cursor: Cursor = None,
) -> HTMLResponse:
    """The findings among the next models by name; the page says how to go on."""
    verdicts = _CHOICES[show]
    page = None
    if space.kind == "supports":
        page = audit.page(
            session,
            space,
            limit=_JUDGED,
            cursor=cursor,
            wanted=ModelFilter(),
            verdicts=verdicts,
            deadline=turn,
        )
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
