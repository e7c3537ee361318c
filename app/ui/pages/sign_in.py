"""``/sign-in``: takes a key, where keys are required, and begins a session of its holder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response
from fastapi.responses import RedirectResponse

from app.infra.errors import Unauthorized
from app.infra.http.requests.bodies import BodyLimits, read_body
from app.infra.http.services import Service
from app.tenancy.auth.rate_limits import RateLimits
from app.tenancy.auth.records import Identity
from app.tenancy.auth.service import Authenticator
from app.tenancy.auth.visitor_sessions import VisitorSessions
from app.ui import sign_in_cookie
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_LIMITS: Final = BodyLimits(8 << 10, 8 << 10, timeout=10)
"""The limits of the form, which holds a key and an address."""


@routes.get("/sign-in")
def page(request: Request, authenticator: Service[Authenticator], next: str = "/") -> Response:  # noqa: A002 - its name in the address
    """The form, unless no key is needed."""
    wanted = sign_in_cookie.own_path(next)
    if not authenticator.keys_required:
        return RedirectResponse(wanted, 303)
    return render(request, "sign_in.html", next=wanted, wrong=None)


async def _form(request: Request) -> Mapping[str, str]:
    """The fields of the form."""
    body = await read_body(request, _LIMITS, "")
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}


@routes.post("/sign-in")
def begin(
    request: Request,
    authenticator: Service[Authenticator],
    rates: Service[RateLimits],
    sessions: Service[VisitorSessions],
    form: Annotated[Mapping[str, str], Depends(_form)],
) -> Response:
    """Begins a session with the key of the form, in place of the one before; leads to ``next``."""
    key, wanted = form.get("key", "").strip(), sign_in_cookie.own_path(form.get("next", "/"))
    try:
        holder = _check(authenticator, rates, _address(request), key)
    except Unauthorized as error:
        return render(request, "sign_in.html", status=401, next=wanted, wrong=str(error))
    answer = RedirectResponse(wanted, 303)
    sign_in_cookie.begin(request, answer, sessions.begin(holder))
    _end(request, sessions)
    return answer


@routes.post("/sign-out")
def end(request: Request, sessions: Service[VisitorSessions]) -> Response:
    """Ends the session, in every process."""
    answer = RedirectResponse("/sign-in", 303)
    _end(request, sessions)
    sign_in_cookie.end(request, answer)
    return answer


def _end(request: Request, sessions: VisitorSessions) -> None:
    """End the session that a request comes with, if there is one."""
    if (token := sign_in_cookie.token(request.scope)) is not None:
        sessions.end(token)


def _check(authenticator: Authenticator, rates: RateLimits, address: str, key: str) -> Identity:
    """Return the holder of a key, or raise what a request with it would; wrong keys count alike."""
    if not key:
        raise Unauthorized("no key was entered")
    credentials = f"Bearer {key}"
    rates.check_tries(address, credentials)
    try:
        return authenticator.identify(key)
    except Unauthorized:
        rates.note_bad(address, credentials)
        raise


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
