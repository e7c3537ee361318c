"""/v1/keys: the API keys of the caller's tenant. A key needs the scope `admin`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from app.infra.errors import KeyNotFound, QuotaExceeded, StorageFull
from app.infra.http.answers import Answer, PageLimit, page_answer
from app.infra.http.dependencies import Cursor
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.tenancy.auth.dependencies import (
    AUTHENTICATED,
    REFUSALS,
    AdminContext,
)
from app.tenancy.auth.schemas import KeyCreated, KeyNew, KeyOut, KeyPage
from app.tenancy.auth.service import KeyService
from modelkin.errors import InvalidParameter

__all__ = ["routes"]

routes = Routes(
    prefix="/v1/keys",
    tags=["keys"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
)

KeyPrefix = Annotated[str, Path(description="the first 11 characters of the key, `mk_QwAU1Z3X`")]


@routes.post(
    "",
    operation_id="create_key",
    summary="Create an API key of your tenant",
    refuses=(StorageFull, QuotaExceeded),
    status_code=201,
)
def create(
    context: AdminContext,
    keys: Service[KeyService],
    received: JsonBody[KeyNew],
) -> Answer[KeyCreated]:
    """Make a key of your tenant, with at most the scopes that your own key has.

    Only this answer has the key; the service stores its SHA-256.
    """
    body = received.read()
    with context.writing() as session:
        made, key = keys.create_for(
            session,
            context.identity,
            label=body.label,
            scopes=body.scopes,
            valid_for=body.valid_for,
        )
    return Answer(
        KeyCreated.with_secret(made, context.identity, key),
        headers={"Location": f"/v1/keys/{made.prefix}", "Cache-Control": "no-store"},
    )


@routes.get(
    "",
    operation_id="list_keys",
    summary="List the API keys of your tenant",
    refuses=(InvalidParameter,),
    response_model=KeyPage,
)
def list_keys(
    context: AdminContext,
    keys: Service[KeyService],
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The keys of your tenant, newest first, with the hour of their last use."""
    with context.reading() as session:
        page = keys.page(session, context.tenant, limit=limit, cursor=cursor)
    return page_answer((KeyOut.of(key, context.identity) for key in page.items), page.next_cursor)


@routes.get(
    "/{prefix}",
    operation_id="get_key",
    summary="Show an API key of your tenant",
    refuses=(KeyNotFound, InvalidParameter),
)
def show(
    context: AdminContext,
    keys: Service[KeyService],
    prefix: KeyPrefix,
) -> KeyOut:
    """One key of your tenant."""
    with context.reading() as session:
        return KeyOut.of(keys.get(session, context.tenant, prefix), context.identity)


@routes.delete(
    "/{prefix}",
    operation_id="revoke_key",
    summary="Revoke an API key of your tenant",
    refuses=(KeyNotFound, InvalidParameter, StorageFull),
    status_code=204,
)
def revoke(
    context: AdminContext,
    keys: Service[KeyService],
    prefix: KeyPrefix,
) -> None:
    """Revoke a key of your tenant, your own too: it opens nothing from now on, and stays listed."""
    with context.writing() as session:
        keys.revoke_own(session, context.tenant, prefix)
