"""/v1/keys: the API keys of the caller's tenant. A key needs the scope `admin`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Response

from app.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AdminTenant,
    AuthenticatedJsonRoute,
    Caller,
)
from app.auth.schemas import KeyCreated, KeyNew, KeyOut, KeyPage
from app.auth.service import KeyService
from app.errors import KeyNotFound, QuotaExceeded, StorageFull
from app.infra.http.answers import PageLimit, page_answer
from app.infra.http.bodies import BODY_PROBLEMS
from app.infra.http.dependencies import Cursor, Reading, Writing
from app.infra.http.openapi import problems
from app.infra.http.services import Service
from modelkin.errors import InvalidParameter

__all__ = ["router"]

router = APIRouter(
    prefix="/v1/keys",
    tags=["keys"],
    route_class=AuthenticatedJsonRoute,
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

KeyPrefix = Annotated[str, Path(description="the first 11 characters of the key, `mk_QwAU1Z3X`")]


@router.post(
    "",
    operation_id="create_key",
    summary="Create an API key of your tenant",
    responses=problems(*BODY_PROBLEMS, InvalidParameter, QuotaExceeded, StorageFull),
    status_code=201,
)
def create(
    keys: Service[KeyService],
    caller: Caller,
    tenant: AdminTenant,
    body: Annotated[KeyNew, Body()],
    session: Writing,
    response: Response,
) -> KeyCreated:
    """Make a key of your tenant, with at most the scopes that your own key has.

    Only this answer has the key; the service stores its SHA-256.
    """
    del tenant
    made, key = keys.create_for(
        session, caller, label=body.label, scopes=body.scopes, valid_for=body.valid_for
    )
    response.headers["Location"] = f"/v1/keys/{made.prefix}"
    response.headers["Cache-Control"] = "no-store"
    return KeyCreated.with_secret(made, caller, key)


@router.get(
    "",
    operation_id="list_keys",
    summary="List the API keys of your tenant",
    responses=problems(InvalidParameter),
    response_model=KeyPage,
)
def list_keys(
    keys: Service[KeyService],
    limit: PageLimit,
    caller: Caller,
    tenant: AdminTenant,
    session: Reading,
    cursor: Cursor = None,
) -> Response:
    """The keys of your tenant, newest first, with the hour of their last use."""
    page = keys.page(session, tenant, limit=limit, cursor=cursor)
    return page_answer((KeyOut.of(key, caller) for key in page.items), page.next_cursor)


@router.get(
    "/{prefix}",
    operation_id="get_key",
    summary="Show an API key of your tenant",
    responses=problems(KeyNotFound, InvalidParameter),
)
def show(
    keys: Service[KeyService],
    caller: Caller,
    tenant: AdminTenant,
    prefix: KeyPrefix,
    session: Reading,
) -> KeyOut:
    """One key of your tenant."""
    return KeyOut.of(keys.get(session, tenant, prefix), caller)


@router.delete(
    "/{prefix}",
    operation_id="revoke_key",
    summary="Revoke an API key of your tenant",
    responses=problems(KeyNotFound, InvalidParameter, StorageFull),
    status_code=204,
)
def revoke(
    keys: Service[KeyService], tenant: AdminTenant, prefix: KeyPrefix, session: Writing
) -> None:
    """Revoke a key of your tenant, your own too: it opens nothing from now on, and stays listed."""
    keys.revoke_own(session, tenant, prefix)
