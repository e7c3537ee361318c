"""Declared bases beside the measured similarities.

/v1/spaces/{space}/lineage is of one model, /v1/spaces/{space}/lineages an audit of all.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from app.infra.errors import ModelNotFound, TooMuch, Unavailable
from app.infra.http.dependencies import Cursor
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.kinship.audit import LineageAudit
from app.kinship.lineage import LineageService
from app.kinship.schemas import LineageFindingPage, LineageOut, Verdict
from app.models.catalog.records import ModelFilter
from app.models.spaces.dependencies import KindName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext
from modelkin._validation import check_model_name

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_MAX_JUDGED: Final = 50
"""Models of a page: each takes some milliseconds."""


@routes.get(
    "/lineage",
    operation_id="get_lineage",
    summary="Check the declared base of a model",
    refuses=(ModelNotFound, TooMuch, Unavailable),
    turn="heavy",
)
def lineage(
    context: ReadingContext,
    spaces: Service[SpaceService],
    lineages: Service[LineageService],
    space_name: KindName,
    model: Annotated[str, Query(description="the stored model")],
) -> LineageOut:
    """The declared `base_model` beside the nearest models, with a verdict and its evidence.

    Similarity has no direction: it may contradict a declared base, and never proves one. In a space
    of weights kappa, the similarity beyond chance, decides first; elsewhere S is compared with that
    of the other models. A space of differences contradicts no base.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        return LineageOut.of(
            lineages.lineage(session, space, check_model_name(model), context.deadline)
        )


@routes.get(
    "/lineages",
    operation_id="list_lineages",
    summary="Check the declared bases of a space",
    refuses=(TooMuch, Unavailable),
    turn="heavy",
)
def lineages(
    context: ReadingContext,
    spaces: Service[SpaceService],
    audit: Service[LineageAudit],
    space_name: KindName,
    verdict: Annotated[
        list[Verdict] | None,
        Query(max_length=10, description="only findings of this verdict; repeat for several"),
    ] = None,
    base_model: Annotated[
        str | None, Query(description="only models that declare this base_model")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_JUDGED, description="the most models to judge for this page")
    ] = _MAX_JUDGED,
    cursor: Cursor = None,
) -> LineageFindingPage:
    """The verdict on each model with a declared base, and on others that stand out, by name.

    A model without a declared base is listed, as `undeclared`, if another model stands out near it.
    A page judges `limit` models, and fewer if that takes long: it may be short or empty before the
    last one. `next_cursor` goes on, with the same filters.
    """
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        base = None if base_model is None else check_model_name(base_model, field="base_model")
        found = audit.page(
            session,
            space,
            limit=limit,
            cursor=cursor,
            wanted=ModelFilter(base_model=base),
            verdicts=verdict or (),
            deadline=context.deadline,
        )
    return LineageFindingPage.of(found)
