"""/livez and /readyz: whether the process runs, and whether it serves as well as it can."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.index.warmup import WarmupProgress
from app.infra.http.dependencies import Handle
from app.infra.http.problems import not_ready

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str


class IndexesOut(BaseModel):
    """What is loaded at start: not empty spaces, nor those for which there is no memory."""

    spaces: int
    spaces_loaded: int
    models: int
    models_loaded: int


class Readiness(Health):
    indexes: Annotated[IndexesOut, Field(description="what was loaded at start")]


@router.get("/livez", operation_id="livez")
async def livez(resources: Handle) -> Health:
    """The process runs."""
    return Health(version=resources.version)


@router.get("/readyz", operation_id="readyz", response_model=Readiness)
def readyz(request: Request, resources: Handle) -> Any:
    """The database answers and the indexes are loaded; 503 while it is not so.

    While they load, queries are answered all the same; those that need what is not loaded yet wait
    for it. The problem document says how far it is, in `indexes`.
    """
    resources.database.check()
    progress = resources.housekeeping.loading.progress
    indexes = _indexes(progress)
    if progress.done:
        return Readiness(version=resources.version, indexes=indexes)
    detail = (
        f"{progress.models_loaded} of {progress.models} signatures are loaded; until all are, "
        f"queries may be slow"
    )
    told = {"version": resources.version, "indexes": indexes.model_dump()}
    return not_ready(request, detail, told)


def _indexes(progress: WarmupProgress) -> IndexesOut:
    return IndexesOut(
        spaces=progress.spaces,
        spaces_loaded=progress.spaces_loaded,
        models=progress.models,
        models_loaded=progress.models_loaded,
    )
