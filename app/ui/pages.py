"""The pages of the explorer, rendered on the server, without scripts and external resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup

from app.auth.dependencies import ReadingTenant
from app.catalog.reader import ModelReader
from app.errors import NotFound
from app.infra.http.dependencies import Cursor, Reading
from app.infra.http.endpoint_threads import ThreadRoute
from app.infra.http.routing import MODEL
from app.infra.http.security_headers import POLICY, page_policy, sha256_source
from app.infra.http.services import Service
from app.kinship.donors.request import DonorRequest
from app.kinship.donors.service import DonorService
from app.search.service import SearchService
from app.spaces.service import SpaceService
from modelkin._validation import check_model_name, check_space_name, quote_model
from modelkin._version import __version__
from modelkin.errors import InvalidInput

__all__ = ["router"]

router = APIRouter(
    include_in_schema=False, default_response_class=HTMLResponse, route_class=ThreadRoute
)

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=select_autoescape()
)
_environment.filters["path"] = quote_model
_STYLE = (Path(__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
_environment.globals["style"] = Markup(_STYLE)  # noqa: S704 - a file of ours
_templates = Jinja2Templates(env=_environment)
_HEADERS = {POLICY: page_policy(style_src=sha256_source(_STYLE), img_src="data:")}

_PAGE_SIZE = 50
_MAX_NEIGHBORS = 12


@router.get("/")
def spaces(
    request: Request,
    spaces: Service[SpaceService],
    tenant: ReadingTenant,
    session: Reading,
    cursor: Cursor = None,
) -> HTMLResponse:
    """Every space."""
    page = spaces.list(session, tenant, limit=_PAGE_SIZE, cursor=cursor)
    return _render(request, "spaces.html", page=page, version=__version__)


@router.get("/spaces/{space}")
def space(
    request: Request,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    tenant: ReadingTenant,
    session: Reading,
    space: str,
    cursor: Cursor = None,
) -> HTMLResponse:
    """One space and its models."""
    try:
        record = spaces.get(session, tenant, check_space_name(space))
    except (NotFound, InvalidInput) as error:
        return _missing(request, error)
    page = reader.models(session, record, limit=_PAGE_SIZE, cursor=cursor, tags=())
    layout = spaces.layout(session, record)
    return _render(request, "space.html", space=record, layout=layout, page=page)


@router.get("/spaces/{space}/models" + MODEL)
def model(
    request: Request,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    search: Service[SearchService],
    donors: Service[DonorService],
    tenant: ReadingTenant,
    session: Reading,
    space: str,
    model: str,
) -> HTMLResponse:
    """One model and its kin."""
    try:
        record = spaces.get(session, tenant, check_space_name(space))
        name = check_model_name(model)
        shown = reader.model(session, record, name)
        subject = reader.stored_subject(session, record, name)
    except (NotFound, InvalidInput) as error:
        return _missing(request, error)
    return _render(
        request,
        "model.html",
        space=record,
        model=shown,
        neighbors=search.neighbors(session, record, subject, k=_MAX_NEIGHBORS),
        donors=donors.donors(session, record, subject, DonorRequest(k=_MAX_NEIGHBORS)),
    )


def _render(request: Request, template: str, **context: Any) -> HTMLResponse:
    return _templates.TemplateResponse(request, template, context, headers=_HEADERS)


def _missing(request: Request, error: Exception) -> HTMLResponse:
    context = {"reason": str(error)}
    return _templates.TemplateResponse(
        request, "missing.html", context, status_code=404, headers=_HEADERS
    )
