"""``/docs``: Swagger UI over the OpenAPI document, from files that an installed package pins.

Nothing comes from elsewhere, so that no other server learns of a visit or decides what runs here.
Of the package its files are used alone: they are those of ``swagger-ui-dist`` 5.34.0, bit for bit.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from app.infra.http.security_headers import POLICY, page_policy

__all__ = ["FILES", "router"]

router = APIRouter(include_in_schema=False)

_CACHED = {"Cache-Control": "max-age=3600"}
_HEADERS = {
    # Its style sheet holds pictures; it asks this service for the document and for what is tried.
    POLICY: page_policy(
        script_src="'self'", style_src="'self'", img_src="'self' data:", connect_src="'self'"
    )
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>modelkin API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "./openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
  validatorUrl: null,
});
"""


def _folder() -> Path:
    found = find_spec("fastapi_swagger")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "resources"


FILES: Final = _folder()
"""The folder of Swagger UI's files."""


@router.get("/docs")
async def page() -> HTMLResponse:
    """The page."""
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get("/docs/start.js")
async def start() -> Response:
    """The script that begins it; on the page itself the policy would not let it run."""
    return Response(_START, headers=_CACHED, media_type="text/javascript")


@router.get("/docs/swagger-ui.css")
async def style() -> FileResponse:
    """Swagger UI's style sheet."""
    return FileResponse(FILES / "swagger-ui.css", headers=_CACHED)


@router.get("/docs/swagger-ui-bundle.js")
async def script() -> FileResponse:
    """Swagger UI itself."""
    return FileResponse(FILES / "swagger-ui-bundle.js", headers=_CACHED)
