"""``/docs``: Swagger UI over the OpenAPI document, from files that an installed package pins.

Nothing comes from elsewhere, so that no other server learns of a visit or decides which code runs
here. Only the files of the package are used: they are those of ``swagger-ui-dist`` 5.34.0, bit for
bit.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

from app.infra.http.middleware.security_headers import POLICY, page_policy

__all__ = ["FILES", "router"]

router = APIRouter(include_in_schema=False)

_CACHED = {"Cache-Control": "max-age=3600"}
_HEADERS = {
    # The style sheet holds pictures; the page requests the document here, and the tried operations.
    POLICY: page_policy(
        script_src="'self'", style_src="'self'", img_src="'self' data:", connect_src="'self'"
    )
}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>API · modelkin</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="stylesheet" href="/docs/page.css">
</head>
<body>
<header><h1>modelkin API</h1><nav aria-label="Explorer"><a href="/">Explorer</a>
<a href="/jobs">Jobs</a> <a href="/keys">Keys</a> <a href="/openapi.json">OpenAPI</a></nav></header>
<div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
_STYLE = """body { margin: 0; }
header { display: flex; flex-wrap: wrap; gap: .3rem 1.5rem; align-items: baseline;
  padding: .7rem 1.5rem; border-bottom: 1px solid #8a93a8; font: 15px/1.5 system-ui, sans-serif; }
header h1 { font-size: 1.06rem; margin: 0; } header a { color: #2750c8; margin-right: .9rem; }
.swagger-ui .info { margin: 1.5rem 0; } .swagger-ui .scheme-container { padding: 1rem 0; }
/* One server is no choice, and Swagger UI's list of it has no name for a screen reader. */
.swagger-ui .servers-title, .swagger-ui .servers { display: none; }
html.dark-mode { color-scheme: dark; } html:not(.dark-mode) { color-scheme: light; }
html.dark-mode body { background: #1c2022; color: #e4e6e6; }
html.dark-mode header a { color: #93b3ff; }
"""
_START = """const dark = matchMedia("(prefers-color-scheme: dark)");
function follow() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("modelkin-theme");
  } catch {
    // Without storage the system's theme is used.
  }
  const isDark = chosen ? chosen === "dark" : dark.matches;
  document.documentElement.classList.toggle("dark-mode", isDark);
}
dark.addEventListener("change", follow);
follow();
SwaggerUIBundle({
  url: "./openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
  filter: true,
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
    """The script that starts Swagger UI; within the page the policy would not let it run."""
    return Response(_START, headers=_CACHED, media_type="text/javascript")


@router.get("/docs/page.css")
async def own_style() -> Response:
    """The style of the page around Swagger UI."""
    return Response(_STYLE, headers=_CACHED, media_type="text/css")


@router.get("/docs/swagger-ui.css")
async def style() -> FileResponse:
    """Swagger UI's style sheet."""
    return FileResponse(FILES / "swagger-ui.css", headers=_CACHED)


@router.get("/docs/swagger-ui-bundle.js")
async def script() -> FileResponse:
    """Swagger UI itself."""
    return FileResponse(FILES / "swagger-ui-bundle.js", headers=_CACHED)
