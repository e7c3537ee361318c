"""The one place that knows HTTP status codes: every error becomes an RFC 9457 problem document.

Nothing that a client sent is echoed here: a body may hold text that JSON cannot, and a 422 must
never turn into a 500.
"""

from __future__ import annotations

import http
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from app.infra.errors import (
    BodyTimeout,
    ClientLeft,
    Conflict,
    CrossSiteRequest,
    Forbidden,
    MisdirectedRequest,
    NotAcceptable,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    QueueFull,
    QuotaExceeded,
    RangeNotSatisfiable,
    RateLimited,
    StorageFull,
    TooMuch,
    Unauthorized,
    Unavailable,
    ValuesNotKept,
)
from app.infra.fault_log import FaultLog
from app.infra.http.middleware.security_headers import HEADERS
from app.validation_texts import text_of
from modelkin.errors import (
    InvalidInput,
    InvalidParameter,
    MissingExtra,
    ModelkinError,
    PayloadTooLarge,
    SpaceMismatch,
    UnsupportedMediaType,
)

__all__ = [
    "LOADING",
    "PROBLEM",
    "STOPPING",
    "answer",
    "describe_error",
    "fields_of",
    "install",
    "not_ready",
    "problem",
    "status_of",
]

PROBLEM = "application/problem+json"
LOADING: Final = (503, "loading")
"""Status and code of a service that is not ready yet: no error, for nothing went wrong."""
STOPPING: Final = (503, "stopping")
"""Status and code of a service that is about to end, and answers everything else until then."""

# The first class that an error inherits from decides, so subclasses stand before their parents.
_STATUS: Mapping[type[ModelkinError], int] = {
    InvalidInput: 422,
    Unauthorized: 401,
    Forbidden: 403,
    CrossSiteRequest: 403,
    MisdirectedRequest: 421,
    RateLimited: 429,
    QueueFull: 429,
    QuotaExceeded: 507,
    NotFound: 404,
    SpaceMismatch: 409,
    Conflict: 409,
    PreconditionFailed: 412,
    PreconditionRequired: 428,
    PayloadTooLarge: 413,
    UnsupportedMediaType: 415,
    NotAcceptable: 406,
    RangeNotSatisfiable: 416,
    BodyTimeout: 408,
    ClientLeft: 400,
    StorageFull: 507,
    Unavailable: 503,
    MissingExtra: 501,
}

_HEADERS: Mapping[int, Mapping[str, str]] = {
    # Basic is for browsers: its password is the key.
    401: {"WWW-Authenticate": 'Bearer realm="modelkin", Basic realm="modelkin"'},
    503: {"Retry-After": "1"},
    # The rest of such a body is not worth receiving (RFC 9110, sections 15.5.9 and 15.5.14).
    408: {"Connection": "close"},
    413: {"Connection": "close"},
}

_MAX_FIELDS = 100
"""A body of many mistakes does not get an answer larger than itself."""

log = logging.getLogger(__name__)
_faults = FaultLog()


def problem(
    request: Request,
    status: int,
    code: str,
    detail: str,
    *,
    fields: Sequence[Mapping[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """Answer with a problem document, or with the page that ``app.state.problem_page`` makes of it.

    Args:
        more: members that only documents of this code have.
    """
    request.scope["problem_code"] = code  # counted by the middleware of metrics
    document: dict[str, Any] = {
        "type": f"urn:modelkin:problem:{code}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": _clean(detail),
        "request_id": request.scope.get("request_id"),
        **(more or {}),
    }
    if fields:
        document["errors"] = [{k: _clean(v) for k, v in f.items()} for f in fields]
    page = getattr(request.app.state, "problem_page", _no_page)(request, document, headers)
    return page or Response(to_json(document), status, headers=headers, media_type=PROBLEM)


def _no_page(*_: object) -> None:
    """Problems are documents alone, where the application shows no pages."""


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem document."""
    app.add_exception_handler(ModelkinError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_bug)


def not_ready(
    request: Request, reason: tuple[int, str], detail: str, more: Mapping[str, Any]
) -> Response:
    """Answer that the service is ``LOADING`` or ``STOPPING``, which is no error."""
    status, code = reason
    return problem(request, status, code, detail, headers=_HEADERS[status], more=more)


def describe_error(error: ModelkinError) -> dict[str, Any]:
    """Return the code and detail of an error, where one of many things went wrong."""
    document: dict[str, Any] = {"code": error.code, "detail": _clean(str(error))}
    if fields := _field_errors(error):
        document["errors"] = [{k: _clean(v) for k, v in field.items()} for field in fields]
    return document


def fields_of(entries: Sequence[Any]) -> list[dict[str, str]]:
    """The errors that pydantic found, a field and a message each."""
    return [{"field": _field(entry["loc"]), "message": text_of(entry)} for entry in entries]


def answer(request: Request, error: ModelkinError) -> Response:
    """The problem document of an error, where no route raised it."""
    status = status_of(type(error))
    if status > 500:
        if not isinstance(error, QuotaExceeded | TooMuch | MissingExtra):  # a tenant asked for it
            _faults.note(error)
    elif status == 500:
        log.error("%s: %s", type(error).__name__, error, exc_info=error)
    return problem(
        request,
        status,
        error.code,
        str(error),
        fields=_field_errors(error),
        headers=_headers(status, error),
        more={"reference": error.reference} if isinstance(error, ValuesNotKept) else None,
    )


def status_of(error: type[ModelkinError]) -> int:
    """Return the HTTP status of a class of errors; 500 for a class that no request may raise."""
    return next((status for known, status in _STATUS.items() if issubclass(error, known)), 500)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ModelkinError)
    return answer(request, error)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    entries = error.errors()[:_MAX_FIELDS]
    # The first part of a place says in which part of the request it is: query, path, body.
    fields = fields_of([{**entry, "loc": entry["loc"][1:] or entry["loc"]} for entry in entries])
    detail = "; ".join(f"{f['field']}: {f['message']}" for f in fields[:3])
    return problem(request, 422, InvalidParameter.code, detail, fields=fields)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, headers = http.HTTPStatus(error.status_code).name.lower(), error.headers
    nothing = f"nothing answers {request.method} {request.url.path}"
    detail = f"{request.method} {request.url.path}: {error.detail}"
    if error.status_code == 404:
        code, detail = "route_not_found", nothing
    if error.status_code == 405:
        takes = _methods(request) or (headers or {}).get("Allow", "")
        headers = {**(headers or {}), "Allow": takes}
        detail = f"{nothing}: this path takes {takes}"
    return problem(request, error.status_code, code, detail, headers=headers)


def _methods(request: Request) -> str:
    """The methods that a path takes; the router knows those of a single route alone."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.path_regex.match(path)]
    return ", ".join(sorted(set().union(*found)))


async def _on_disconnect(request: Request, _error: Exception) -> Response:
    return problem(request, 400, "client_disconnected", "the client left before its body was read")


async def _on_bug(request: Request, error: Exception) -> Response:
    del error  # uvicorn logs it, with its traceback
    detail = "this is a bug in the service; its log has the details under this request id"
    # The middlewares that set these headers are inside of this handler.
    headers = {**HEADERS, "X-Request-Id": request.scope["request_id"]}
    return problem(request, 500, "internal_error", detail, headers=headers)


def _headers(status: int, error: ModelkinError) -> Mapping[str, str] | None:
    if isinstance(error, RateLimited):
        return {"Retry-After": str(error.retry_after)}
    if isinstance(error, RangeNotSatisfiable):
        return {"Content-Range": f"bytes */{error.size}"}
    if isinstance(error, TooMuch):
        return None  # it would take as long again
    return _HEADERS.get(status)


def _field_errors(error: ModelkinError) -> list[dict[str, str]]:
    field = getattr(error, "field", None)
    return [{"field": field, "message": str(error)}] if field else []


def _field(location: Sequence[int | str]) -> str:
    """``("layout", 3, "shape")`` as ``layout[3].shape``."""
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else str(part)
    return name


def _clean(text: str) -> str:
    """The text, made fit for JSON and of a readable length."""
    return text.encode("utf-8", "backslashreplace").decode()[:2000]
