"""/v1/spaces/{space}/support-size: the K that the clients of a space agree on."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from app.infra.errors import QuotaExceeded
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.spaces.dependencies import (
    KindName,
)
from app.models.spaces.origins import stated_origin
from app.models.spaces.schemas.answers import SizePolicy
from app.models.spaces.service import SpaceService
from app.models.spaces.support_sizes import SupportSizeService
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    ReadingContext,
    WritingContext,
)
from modelkin._validation import check_model_name
from modelkin.errors import SpaceMismatch

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/spaces/{space}/support-size",
    tags=["spaces"],
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

    policy: SizePolicy
    k: int | None = Field(
        description="the K to use; null before the first report, and in a free space (there a "
        "report is answered with the client's own K*)"
    )
    reports: int = Field(description="where it is agreed: clients whose median it is")


@routes.get(
    "",
    operation_id="get_support_size",
    summary="Show the support size to use now",
)
def show(
    context: ReadingContext,
    spaces: Service[SpaceService],
    support_sizes: Service[SupportSizeService],
    space_name: KindName,
) -> SupportSizeNow:
    """The K to use now: fixed, or the median of the K* reported so far."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
        return SupportSizeNow.model_validate(support_sizes.current(session, space))


@routes.post(
    "",
    operation_id="report_support_size",
    summary="Report the support size that suits a model",
    refuses=(SpaceMismatch, QuotaExceeded),
)
def report(
    context: WritingContext,
    spaces: Service[SpaceService],
    support_sizes: Service[SupportSizeService],
    space_name: KindName,
    received: JsonBody[SizeReportIn],
) -> SupportSizeNow:
    """Report a K*; the answer is the K to use. Of an even number of reports the lower median.

    State what the support will be of: what the space would refuse to store does not count.
    """
    body = received.read()
    with context.writing() as session:
        space = spaces.get(session, context.tenant, space_name, kind="supports")
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
