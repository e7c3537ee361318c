"""Errors as pages, for visitors of pages; programs get the problem document.

A page of the explorer answers with pages alone, except to a program without a key. Elsewhere the
``Accept`` of the request decides, which a browser begins with ``text/html``; paths below ``/v1``
are always for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from app.ui.rendering import render
from app.ui.sign_in_cookie import own_path
from modelkin.errors import InvalidName

__all__ = ["problem_page"]

_FOR_PROGRAMS: Final = ("/v1/", "/metrics", "/livez", "/readyz", "/openapi.json", "/assets/")
_SAFE: Final = frozenset({"GET", "HEAD"})
_PASSING: Final = frozenset({429, 503})
"""What a page may not be a moment later."""

_TITLES: Final = {
    403: "Not allowed",
    404: "Not found",
    409: "That does not fit",
    422: "That address cannot be read",
    429: "Too many requests",
    500: "Something broke",
    503: "Not available now",
}


def problem_page(
    request: Request, document: Mapping[str, Any], headers: Mapping[str, str] | None
) -> Response | None:
    """The page of a problem; None where the request is a program's."""
    if not _wants_page(request):
        return None
    # A name that nothing can have is one that nothing has.
    status: int = 404 if document["code"] == InvalidName.code else document["status"]
    if status == 401:
        return _sign_in(request, document) if _accepts_pages(request) else None
    return render(
        request,
        "problem.html",
        status=status,
        headers=headers,
        title=_TITLES.get(status, document["title"]),
        problem={**document, "status": status},
        can_repeat=status in _PASSING and request.method in _SAFE,
    )


def _wants_page(request: Request) -> bool:
    if getattr(request.scope.get("route"), "answers_pages", False):
        return True
    if request.method not in _SAFE or request.url.path.startswith(_FOR_PROGRAMS):
        return False
    return _accepts_pages(request)


def _accepts_pages(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _sign_in(request: Request, document: Mapping[str, Any]) -> Response:
    """The sign-in page; after a link of another site, first a reload.

    A browser keeps the cookie of a session from such a request, and sends it with the reload.
    """
    if request.headers.get("sec-fetch-site") == "cross-site":
        return HTMLResponse(_RELOAD, 200, {"Cache-Control": "no-store"})
    query = f"?{request.url.query}" if request.url.query else ""
    # A visitor without a key made no mistake: only a wrong one is named as such.
    wrong = document["detail"] if request.headers.get("authorization") else None
    wanted = own_path(request.url.path + query)
    return render(request, "sign_in.html", status=401, next=wanted, wrong=wrong)


_RELOAD: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>modelkin</title></head>
<body><p>One moment: this page opens again.</p></body>
</html>
"""
