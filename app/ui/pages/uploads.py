"""``/spaces/{space}/upload``: files of supports, sent from the browser as they are."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.auth.service import Authenticator
from app.infra.http.dependencies import Reading
from app.infra.http.services import Service, services_of
from app.spaces.dependencies import KnownSpace
from app.spaces.service import SpaceService
from app.ui.rendering import PageRoute, render

__all__ = ["router"]

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, route_class=PageRoute
)

_MAX_TENSORS: Final = 5_000
"""Tensors of a layout that the page compares with those of a file; of more it compares none."""


@router.get("/spaces/{space}/upload")
def upload(
    request: Request, spaces: Service[SpaceService], space: KnownSpace, session: Reading
) -> HTMLResponse:
    """Where files are dropped. What a file is, the browser finds out by its first bytes."""
    layout = spaces.layout(session, space)
    tensors = () if layout is None else layout.tensors
    if len(tensors) > _MAX_TENSORS:
        tensors = ()
    return render(
        request,
        "upload.html",
        space=space,
        about={
            "kind": space.kind,
            "tensors": [[each.name, list(each.shape)] for each in tensors],
            "importance": space.importance.kind if space.importance.is_stated else None,
            "base": space.importance.base,
            "service": str(request.base_url).rstrip("/"),
            "space": space.name,
            "keys": services_of(request)[Authenticator].keys_required,
        },
    )
