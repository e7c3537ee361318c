"""``/spaces/{space}/upload``: files of supports, sent from the browser as they are."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.infra.http.services import Service, services_of
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext
from app.tenancy.auth.service import Authenticator
from app.ui.rendering import PageRoutes, render

__all__ = ["routes"]

routes = PageRoutes()

_MAX_TENSORS: Final = 5_000
"""The most tensors of a layout that the page compares with a file's; beyond it, none."""


@routes.get("/spaces/{space}/upload")
def upload(
    context: ReadingContext,
    spaces: Service[SpaceService],
    space_name: SpaceName,
    request: Request,
) -> HTMLResponse:
    """The page to drop files on. The browser finds out the type of a file by its first bytes."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
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
