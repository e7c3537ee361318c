"""/v1/spaces/{space}/support-size: the K that the clients of a space agree on."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field

from app.auth.dependencies import AUTHENTICATED, REFUSALS, AuthenticatedJsonRoute
from app.errors import QuotaExceeded, StorageFull
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from app.spaces.dependencies import SUPPORT_SPACE_PROBLEMS, SupportSpace, WritableSupportSpace
from app.spaces.origins import stated_origin
from app.spaces.support_sizes import SupportSizeService
from modelkin._validation import check_model_name
from modelkin.errors import InvalidParameter, SpaceMismatch

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/spaces/{space}/support-size",
    tags=["spaces"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)


class SizeReportIn(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra={"examples": [{"k_star": 812, "client": "org/client-7"}]},
    )

    k_star: int = Field(ge=1, description="the K* that Algorithm 1 gives this client")
    client: str | None = Field(
        None,
        description="the reporting client: each counts once, with its last report; those without "
        "a name count as one",
    )
    num_parameters: int | None = Field(
        None, ge=1, description="M of its importance; another than the space's is refused"
    )
    importance: str | None = Field(
        None,
        description="the kind of its importance; another than the space's is refused",
    )
    base: str | None = Field(
        None, description="with the kind delta, the digest of the weights it differs from"
    )
    layout: str | None = Field(
        None, description="the digest of its layout; another than the space's is refused"
    )
    blinding: str | None = Field(
        None, description="the check value of its key; another than the space's is refused"
    )


class SupportSizeNow(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    policy: Literal["free", "fixed", "agreed"]
    k: int | None = Field(
        description="the K to use; null before the first report, and in a free space (there a "
        "report is answered with the client's own K*)"
    )
    reports: int = Field(description="where it is agreed: clients whose median it is")


@router.get(
    "",
    operation_id="get_support_size",
    summary="Show the support size to use now",
    responses=problems(*SUPPORT_SPACE_PROBLEMS),
)
def show(
    support_sizes: Service[SupportSizeService], space: SupportSpace, session: Reading
) -> SupportSizeNow:
    """The K to use now: fixed, or the median of the K* reported so far."""
    return SupportSizeNow.model_validate(support_sizes.current(session, space))


@router.post(
    "",
    operation_id="report_support_size",
    summary="Report the support size that suits a model",
    responses=problems(
        *SUPPORT_SPACE_PROBLEMS,
        *BODY_PROBLEMS,
        InvalidParameter,
        SpaceMismatch,
        StorageFull,
        QuotaExceeded,
    ),
)
def report(
    support_sizes: Service[SupportSizeService],
    space: WritableSupportSpace,
    session: Writing,
    body: Annotated[SizeReportIn, Body()],
) -> SupportSizeNow:
    """Report a K*; the answer is the K to use. Of an even number of reports the lower median.

    State what the support will be of: what the space would refuse to store does not count.
    """
    client = "" if body.client is None else check_model_name(body.client, field="client")
    found = support_sizes.report(
        session,
        space,
        k_star=body.k_star,
        client=client,
        num_parameters=body.num_parameters,
        origin=stated_origin(body.importance, body.base, body.layout, body.blinding),
    )
    return SupportSizeNow.model_validate(found)
