"""/v1/spaces/{space}/donors: from whom a model could learn, and in what proportion."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from app.api.auth import AUTHENTICATED
from app.api.deps import Handle, K, KnownSpace, Reading, TagFilter
from app.api.payloads import ANY_BODY, AnyPayload
from app.api.schemas import DonorsOut
from modelkin.names import check_model_name

__all__ = ["router"]

router = APIRouter(prefix="/v1/spaces/{space}/donors", tags=["kin"], dependencies=AUTHENTICATED)


@router.get("", operation_id="get_donors")
def of_stored(
    resources: Handle,
    space: KnownSpace,
    session: Reading,
    tags: TagFilter,
    target: Annotated[str, Query(description="the stored model that is to learn")],
    k: K = 10,
) -> DonorsOut:
    """Donors for a stored model, best first; their weights are proportional to S and sum to 1."""
    name = check_model_name(target, field="target")
    subject = resources.library.stored_subject(session, space, name)
    return DonorsOut.of(resources.search.donors(session, space, subject, k=k, tags=tags))


@router.post("", operation_id="find_donors", openapi_extra=ANY_BODY)
def of_given(
    resources: Handle,
    payload: AnyPayload,
    space: KnownSpace,
    session: Reading,
    tags: TagFilter,
    k: K = 10,
) -> DonorsOut:
    """Donors for the support or signature in the body, which is not stored."""
    subject = resources.library.given_subject(space, payload.either(space.num_parameters))
    return DonorsOut.of(resources.search.donors(session, space, subject, k=k, tags=tags))
