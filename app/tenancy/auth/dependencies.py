"""Authentication of requests: the API key, and the tenant and scopes that it opens.

Bearer is for programs; Basic, with the key as password, is for the explorer in a browser. Where
keys are not required, every caller is the default tenant.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer, SecurityScopes

from app.infra.db.suggestions import may_suggest
from app.infra.db.visibility import show_tenant
from app.infra.errors import Forbidden, RateLimited, StorageFull, Unauthorized, Unavailable
from app.infra.http.openapi import Documented, Refuses, problems
from app.infra.http.request_context import RequestContext
from app.infra.http.requests.query_parameters import refuse_unknown
from app.infra.http.services import services_of
from app.tenancy.auth.records import Identity, Tenant
from app.tenancy.auth.service import Authenticator

__all__ = [
    "AUTHENTICATED",
    "REFUSALS",
    "VISITOR",
    "AdminContext",
    "CallerContext",
    "KeyedContext",
    "MetricsContext",
    "ReadingContext",
    "ReadingWritingContext",
    "ValuesContext",
    "WritingContext",
    "identify",
    "require_scopes",
    "tenant_record",
]

VISITOR: Final = "Session "
"""What ``Authorization`` begins with where the explorer has put the token of a session there."""


def identify(request: Request) -> Identity:
    """The holder of the request's key, looked up once a request.

    Raises:
        Unauthorized: a key is required, and the request has none or an invalid one, or the session
            is over that stands for one.
    """
    authenticator = services_of(request)[Authenticator]
    if not authenticator.keys_required:
        return authenticator.default
    if not hasattr(request.state, "identity"):
        header = request.headers.get("authorization", "")
        if header.startswith(VISITOR):
            found = authenticator.identify_visitor(header.removeprefix(VISITOR))
        else:
            found = authenticator.identify(_presented_key(header))
        request.state.identity = found
    identity: Identity = request.state.identity
    return identity


def require_scopes(identity: Identity, needed: Iterable[str]) -> None:
    """Refuse a caller whose key lacks one of the scopes.

    Raises:
        Forbidden: the key lacks a scope, which the message names.
    """
    missing = set(needed) - identity.scopes
    if missing:
        raise Forbidden(f"this key lacks the scope {', '.join(sorted(missing))}")


async def _caller(request: Request) -> Identity:
    """The caller, whose tenant's rows this request sees from now on."""
    if services_of(request)[Authenticator].keys_required and not hasattr(request.state, "identity"):
        found = await run_in_threadpool(identify, request)
    else:
        found = identify(request)  # no query, so no thread to wait for
    show_tenant(found.tenant.id)
    return found


async def _authenticate(request: Request) -> None:
    await _caller(request)
    refuse_unknown(request)


def tenant_record(request: Request) -> Tenant:
    """The tenant of a request, once its key is known."""
    return identify(request).tenant


AUTHENTICATED = [Depends(_authenticate)]
"""Dependencies of a router that requires a key before it reads anything else of a request.

It refuses unknown query parameters next; each of its operations declares ``InvalidParameter``.
"""

REFUSALS: Final = problems(Unauthorized, Forbidden, RateLimited, Unavailable)
"""The refusals of every operation of such a router."""


class CallerContext(RequestContext):
    """The context of a request that has a key, or needs none.

    Attributes:
        identity: the caller, with the scopes of its key.
    """

    def __init__(self, request: Request, identity: Identity) -> None:
        super().__init__(request)
        self.identity = identity

    @property
    def tenant(self) -> Tenant:
        """The caller's tenant, whose models it may see."""
        return self.identity.tenant


class _Context(Documented):
    # The header is read below, which understands Basic, too.
    shown = HTTPBearer(auto_error=False, description="an API key, `mk_...`")

    async def __call__(self, request: Request, needed: SecurityScopes) -> CallerContext:
        identity = await _caller(request)
        require_scopes(identity, needed.scopes)
        may_suggest.set("read" in identity.scopes)
        return CallerContext(request, identity)


_context = _Context()

KeyedContext = Annotated[CallerContext, Security(_context)]
"""The context of an operation for every valid key, whatever its scopes."""
ReadingContext = Annotated[CallerContext, Security(_context, scopes=["read"])]
WritingContext = Annotated[
    CallerContext, Security(_context, scopes=["write"]), Refuses(StorageFull)
]
ReadingWritingContext = Annotated[
    CallerContext, Security(_context, scopes=["write", "read"]), Refuses(StorageFull)
]
"""The context of an operation that changes something, and answers with what others stored."""
MetricsContext = Annotated[CallerContext, Security(_context, scopes=["metrics"])]
ValuesContext = Annotated[CallerContext, Security(_context, scopes=["values", "read"])]
AdminContext = Annotated[CallerContext, Security(_context, scopes=["admin"])]


def _presented_key(header: str) -> str:
    scheme, _, value = header.strip().partition(" ")
    if not value:
        raise Unauthorized("this needs a key: send Authorization: Bearer mk_...")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (ValueError, binascii.Error):
            raise Unauthorized("malformed Basic credentials in the Authorization header") from None
    raise Unauthorized("send Authorization: Bearer mk_..., no other kind is understood")
