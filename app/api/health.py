"""/livez and /readyz: whether the process runs, and whether it can serve."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.api.deps import Handle

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str


@router.get("/livez", operation_id="livez")
async def livez(resources: Handle) -> Health:
    """The process runs."""
    return Health(version=resources.version)


@router.get("/readyz", operation_id="readyz")
def readyz(resources: Handle) -> Health:
    """The database answers; 503 while it does not."""
    resources.database.check()
    return Health(version=resources.version)
