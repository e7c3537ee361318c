"""``/assets/{digest}/...``: the scripts, styles and pictures of pages, from memory.

The digest covers all files together. So the content at an address never changes, browsers keep the
files for a year, and modules that import each other are always of one version.
"""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Final

from fastapi import APIRouter, HTTPException, Request, Response

from app.infra.http.requests.preconditions import entity_tag, is_known

__all__ = ["PREFIX", "router"]

router = APIRouter(include_in_schema=False)

_FOLDER: Final = Path(__file__).parent / "static"
_FILES: Final = {
    path.relative_to(_FOLDER).as_posix(): path.read_bytes()
    for path in sorted(_FOLDER.rglob("*"))
    if path.is_file() and not path.name.startswith(".")
}
_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def _digest() -> str:
    whole = hashlib.sha256()
    for name, content in _FILES.items():
        whole.update(f"{name} {len(content)} ".encode() + content)
    return whole.hexdigest()[:16]


DIGEST: Final = _digest()
PREFIX: Final = f"/assets/{DIGEST}"
"""The beginning of each file's address."""


@router.get("/assets/{digest}/{name:path}")
async def asset(request: Request, digest: str, name: str) -> Response:
    """A file. The digest of an earlier version gets the present file, uncached."""
    content = _FILES.get(name)
    if content is None:
        raise HTTPException(404)
    version = hashlib.sha256(content).hexdigest()[:32]
    lasting = digest == DIGEST
    headers = {
        "ETag": entity_tag(version),
        "Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache",
    }
    if is_known(request, version):
        return Response(status_code=304, headers=headers)
    suffix = Path(name).suffix
    media_type = _TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, headers=headers, media_type=media_type)
