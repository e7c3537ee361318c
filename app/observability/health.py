"""Health endpoints: /livez for the process, /readyz for its database and indexes.

They ignore query parameters: a probe or a proxy may append its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.errors import Unavailable
from app.index.warmup import IndexWarmup, WarmupProgress
from app.infra.db.database import Database
from app.infra.http.openapi import problems
from app.infra.http.problems import LOADING, not_ready
from app.infra.http.services import Service
from modelkin._version import __version__

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    version: str


class IndexesOut(BaseModel):
    """The indexes to load at start, without empty spaces and those beyond the memory bound."""

    spaces: int
    spaces_loaded: int
    models: int
    models_loaded: int


class Readiness(Health):
    indexes: Annotated[IndexesOut, Field(description="what was loaded at start")]


@router.get("/livez", operation_id="livez")
async def livez() -> Health:
    """The process runs."""
    return Health(version=__version__)


@router.get(
    "/readyz",
    operation_id="readyz",
    responses=problems(Unavailable, LOADING),
    response_model=Readiness,
)
def readyz(request: Request, database: Service[Database], warmup: Service[IndexWarmup]) -> Any:
    """The database answers and the indexes are loaded; 503 otherwise.

    Queries are answered while indexes load; a query waits for the index that it needs. The problem
    document has the progress in `indexes`.
    """
    database.check()
    progress = warmup.progress
    indexes = _indexes(progress)
    if progress.done:
        return Readiness(version=__version__, indexes=indexes)
    detail = (
        f"{progress.models_loaded} of {progress.models} signatures are loaded; until all are, "
        f"queries may be slow"
    )
    members = {"version": __version__, "indexes": indexes.model_dump()}
    return not_ready(request, detail, members)


def _indexes(progress: WarmupProgress) -> IndexesOut:
    return IndexesOut(
        spaces=progress.spaces,
        spaces_loaded=progress.spaces_loaded,
        models=progress.models,
        models_loaded=progress.models_loaded,
    )
