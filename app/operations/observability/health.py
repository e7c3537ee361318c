"""Health endpoints: /livez for the process, /readyz for its database and indexes.

The endpoints ignore query parameters: a probe or a proxy may append its own. A ``HEAD`` is answered
as a ``GET``; the server leaves out the body.
"""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.infra.db.database import Database
from app.infra.errors import Unavailable
from app.infra.http.problems import LOADING, STOPPING, not_ready
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.models.index.warmup import IndexWarmup, WarmupProgress
from modelkin._version import __version__

__all__ = ["router"]

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = Field("ok", description="always `ok`: anything else is a problem")
    version: str = Field(description="of the service")


@router.head("/livez", include_in_schema=False)
@router.get("/livez", operation_id="livez", summary="Check that the process lives")
async def livez() -> Health:
    """The process runs."""
    return Health(version=__version__)


routes = Routes(tags=["health"])


@routes.head("/readyz", include_in_schema=False, response_model=Health)
@routes.get(
    "/readyz",
    operation_id="readyz",
    summary="Check that the service can answer",
    refuses=(Unavailable, LOADING, STOPPING),
    response_model=Health,
)
def readyz(request: Request, database: Service[Database], warmup: Service[IndexWarmup]) -> Any:
    """The database answers and the indexes are loaded; 503 otherwise.

    A process that drains is a 503 `stopping`: it answers all requests, and wants no new clients.
    Queries are answered while indexes load; a query waits for the index that it needs. The problem
    document has the share that is loaded, from 0 to 1, in `loaded`. Strangers may ask, so no answer
    says how many models there are.
    """
    if getattr(request.app.state, "draining", False):
        detail = "this process is about to end: send new requests to another one"
        return not_ready(request, STOPPING, detail, {"version": __version__})
    database.check()
    progress = warmup.progress
    if progress.done:
        return Health(version=__version__)
    share = _share(progress)
    detail = f"{share:.0%} of the signatures are loaded; until all are, queries may be slow"
    return not_ready(request, LOADING, detail, {"version": __version__, "loaded": share})


def _share(progress: WarmupProgress) -> float:
    """The loaded share in hundredths, from which the number of models does not follow."""
    return int(100 * progress.models_loaded / max(1, progress.models)) / 100
