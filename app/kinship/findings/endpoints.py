"""/v1/spaces/{space}/lineages: the findings of a space; and what was acknowledged of a model."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from app.infra.errors import ModelNotFound, TooMuch, Unavailable
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.kinship.findings.schemas import AcknowledgementIn, KeptFindingOut, LineageFindingPage
from app.kinship.findings.service import FindingService
from app.kinship.schemas import Verdict
from app.models.spaces.dependencies import KindName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    ReadingWritingContext,
    WritingContext,
)
from modelkin._validation import check_model_name

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}",
    tags=["kinship"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

_LIMIT: Final = 100
_MAX_LIMIT: Final = 1000
"""Findings of a page: each has some sentences."""
ModelQuery = Annotated[str, Query(description="the stored model")]


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
    findings: Service[FindingService],
    space_name: KindName,
    verdict: Annotated[
        list[Verdict] | None,
        Query(max_length=10, description="only findings of this verdict; repeat for several"),
    ] = None,
    base_model: Annotated[
        str | None, Query(description="only models that declare this base_model")
    ] = None,
    acknowledged: Annotated[
        bool | None, Query(description="only findings that are acknowledged, or are not")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=_MAX_LIMIT, description="the most findings of this page")
    ] = _LIMIT,
    cursor: Cursor = None,
) -> LineageFindingPage:
    """The verdict on each model with a declared base, and on others that stand out.

    What matters most comes first: `mismatch`, `cycle`, `undeclared`, `unknown_base`,
    `inconclusive`, `consistent`, and each of them by name. A model without a declared base is
    listed, as `undeclared`, if another model stands out near it; the root of a family is not.

    Verdicts are kept, and found again as models come and go: in a space of up to 50 models before
    the answer, in a larger one some seconds after a change. `totals` count all of them, and say how
    many models wait for their first verdict.
    """
    base = None if base_model is None else check_model_name(base_model, field="base_model")
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
    findings.catch_up(space, context.deadline)
    with context.reading() as session:
        found = findings.page(
            session,
            space,
            limit=limit,
            cursor=cursor,
            verdicts=verdict or (),
            base_model=base,
            acknowledged=acknowledged,
        )
    return LineageFindingPage.of(found)


@routes.put(
    "/lineage/acknowledgement",
    operation_id="acknowledge_lineage",
    summary="Acknowledge the finding of a model",
    refuses=(ModelNotFound, Unavailable),
)
def acknowledge(
    context: ReadingWritingContext,
    spaces: Service[SpaceService],
    findings: Service[FindingService],
    space_name: KindName,
    model: ModelQuery,
    received: JsonBody[AcknowledgementIn],
) -> KeptFindingOut:
    """Say that the present verdict on a model is known, so that nobody has to look at it again.

    It holds as long as the verdict and the base that it is about stay the same. If they change, the
    finding is open again.
    """
    body, name = received.read(), check_model_name(model)
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
    findings.refresh(space, name, context.deadline)
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        made_by = context.identity.prefix
        found = findings.acknowledge(session, space, name, note=body.note, made_by=made_by)
    return KeptFindingOut.of(found)


@routes.delete(
    "/lineage/acknowledgement",
    operation_id="withdraw_acknowledgement",
    summary="Have the finding of a model open again",
    refuses=(ModelNotFound,),
    status_code=204,
)
def withdraw(
    context: WritingContext,
    spaces: Service[SpaceService],
    findings: Service[FindingService],
    space_name: KindName,
    model: ModelQuery,
) -> None:
    """Forget what was acknowledged of a model; without anything this changes nothing."""
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        findings.withdraw(session, space, check_model_name(model))
