"""Authentication of requests: the API key, and the tenant and scopes that it opens.

Bearer is for programs; Basic, with the key as password, is for the explorer in a browser. Where
keys are not required, every caller is the default tenant.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes

from app.auth.records import Identity, Tenant
from app.auth.service import Authenticator
from app.errors import Forbidden, RateLimited, Unauthorized, Unavailable
from app.infra.db.near_names import may_suggest
from app.infra.db.visibility import show_tenant
from app.infra.http.json_bodies import JsonRoute
from app.infra.http.openapi import problems
from app.infra.http.query_parameters import DECLARED_ALONE
from app.infra.http.services import services_of
from app.infra.http.short_reads import ShortReads

__all__ = [
    "REFUSALS",
    "AUTHENTICATED",
    "AdminTenant",
    "AuthenticatedJsonRoute",
    "Caller",
    "MetricsTenant",
    "ReadingTenant",
    "ValuesTenant",
    "require_scopes",
    "WritingTenant",
    "identify",
]

# Only for the OpenAPI document: the header is read below, which understands Basic too.
_declared = HTTPBearer(auto_error=False, description="an API key, `mk_...`")


def identify(request: Request) -> Identity:
    """The holder of the request's key, looked up once a request.

    Raises:
        Unauthorized: a key is required, and the request has none or an invalid one.
    """
    authenticator = services_of(request)[Authenticator]
    if not authenticator.keys_required:
        return authenticator.default
    if not hasattr(request.state, "identity"):
        key = _presented(request.headers.get("authorization", ""))
        request.state.identity = authenticator.identify(key)
    identity: Identity = request.state.identity
    return identity


def require_scopes(identity: Identity, needed: Iterable[str]) -> None:
    """Refuse a caller whose key lacks one of the scopes.

    Raises:
        Forbidden: it does; says which.
    """
    missing = set(needed) - identity.scopes
    if missing:
        raise Forbidden(f"this key lacks the scope {', '.join(sorted(missing))}")


async def _identity(request: Request, _: Annotated[object, Depends(_declared)]) -> Identity:
    return await _identified(request)


async def _identified(request: Request) -> Identity:
    if services_of(request)[Authenticator].keys_required and not hasattr(request.state, "identity"):
        found = await services_of(request)[ShortReads].call(partial(identify, request))
    else:
        found = identify(request)  # no query, so no thread to wait for
    show_tenant(found.tenant.id)
    return found


async def _tenant(
    needed: SecurityScopes, identity: Annotated[Identity, Depends(_identity)]
) -> Tenant:
    require_scopes(identity, needed.scopes)
    may_suggest.set("read" in identity.scopes)
    return identity.tenant


AUTHENTICATED = [Depends(_identity), DECLARED_ALONE]
"""Dependencies of a router that requires a key before it reads anything else of a request.

It refuses unknown query parameters next; each of its operations declares ``InvalidParameter``.
"""

REFUSALS: Final = problems(Unauthorized, Forbidden, RateLimited, Unavailable)
"""What every operation of such a router may answer."""

Caller = Annotated[Identity, Depends(_identity)]
"""Who asks, whatever its scopes: an operation takes a tenant, too, which checks them."""
ReadingTenant = Annotated[Tenant, Security(_tenant, scopes=["read"])]
WritingTenant = Annotated[Tenant, Security(_tenant, scopes=["write"])]
MetricsTenant = Annotated[Tenant, Security(_tenant, scopes=["metrics"])]
ValuesTenant = Annotated[Tenant, Security(_tenant, scopes=["values"])]
AdminTenant = Annotated[Tenant, Security(_tenant, scopes=["admin"])]


class AuthenticatedJsonRoute(JsonRoute):
    """A JSON route that identifies the caller before it reads the body.

    FastAPI reads the body of a request before it solves the dependencies of its router.
    """

    async def before_body(self, request: Request) -> None:
        await _identified(request)


def _presented(header: str) -> str:
    kind, _, value = header.strip().partition(" ")
    if not value:
        raise Unauthorized("this needs a key: send Authorization: Bearer mk_...")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (ValueError, binascii.Error):
            raise Unauthorized("malformed Basic credentials in the Authorization header") from None
    raise Unauthorized("send Authorization: Bearer mk_..., no other kind is understood")
