"""The pages of the explorer, rendered on the server: no script, nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, select_autoescape

from app.auth.dependencies import Handle, ReadingTenant
from app.errors import NotFound
from app.infra.http.dependencies import Cursor, Reading
from app.infra.http.routing import MODEL
from app.kinship.donors.request import DonorRequest
from modelkin._validation import check_model_name, check_space_name, quote_model
from modelkin.errors import InvalidInput

__all__ = ["router"]

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape()
)
_environment.filters["path"] = quote_model
_templates = Jinja2Templates(env=_environment)

_PAGE = 50
_KIN = 12


@router.get("/")
def spaces(
    request: Request,
    resources: Handle,
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
) -> HTMLResponse:
    """Every space."""
    page = resources.spaces.list(session, tenant, limit=_PAGE, cursor=cursor)
    return _render(request, "spaces.html", page=page, version=resources.version)


@router.get("/spaces/{space}")
def space(
    request: Request,
    resources: Handle,
    tenant: ReadingTenant,
    session: Reading,
    space: str,
    cursor: Cursor = None,
) -> HTMLResponse:
    """One space and its models."""
    try:
        record = resources.spaces.get(session, tenant, check_space_name(space))
    except (NotFound, InvalidInput) as error:
        return _missing(request, error)
    page = resources.library.models(session, record, limit=_PAGE, cursor=cursor, tags=())
    return _render(request, "space.html", space=record, page=page)


@router.get("/spaces/{space}/models" + MODEL)
def model(
    request: Request,
    resources: Handle,
    tenant: ReadingTenant,
    session: Reading,
    space: str,
    model: str,
) -> HTMLResponse:
    """One model and its kin."""
    try:
        record = resources.spaces.get(session, tenant, check_space_name(space))
        name = check_model_name(model)
        shown = resources.library.model(session, record, name)
        subject = resources.library.stored_subject(session, record, name)
    except (NotFound, InvalidInput) as error:
        return _missing(request, error)
    return _render(
        request,
        "model.html",
        space=record,
        model=shown,
        neighbors=resources.search.neighbors(session, record, subject, k=_KIN),
        donors=resources.donors.donors(session, record, subject, DonorRequest(k=_KIN)),
    )


def _render(request: Request, template: str, **context: Any) -> HTMLResponse:
    return _templates.TemplateResponse(request, template, context)


def _missing(request: Request, error: Exception) -> HTMLResponse:
    context = {"reason": str(error)}
    return _templates.TemplateResponse(request, "missing.html", context, status_code=404)
