"""``/spaces`` and ``/spaces/{space}``: all spaces; a space's models, searched; what it is."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.infra.db.database import Reader
from app.infra.http.dependencies import Cursor
from app.infra.http.services import Service, services_of
from app.merges.service import MergeService
from app.models.catalog.completions import find_names_anywhere
from app.models.catalog.reader import ModelReader
from app.models.catalog.records import ModelOrder
from app.models.learngenes.service import LearngeneService
from app.models.spaces.dependencies import SpaceName
from app.models.spaces.records import SpaceRecord
from app.models.spaces.service import SpaceService
from app.models.weights.service import WeightsService
from app.search.public.records import STEPS
from app.search.public.service import PublicSpaceService
from app.tenancy.auth.dependencies import CallerContext, ReadingContext
from app.tenancy.auth.service import Authenticator
from app.ui.queries import Term, filter_of, terms_of
from app.ui.rendering import PageRoutes, render, space_path

__all__ = ["routes", "space_list"]

routes = PageRoutes()

_PAGE_SIZE: Final = 50
_MAX_FOUND: Final = 50
"""Models of all spaces that a search finds."""
_MAX_COMPARED: Final = 5_000
"""The most tensors of a layout that the upload page compares with a file's; beyond it, none."""
_MAX_TENSORS: Final = 500
"""Tensors of a layout that a page lists."""


@routes.get("/spaces")
def spaces(
    context: ReadingContext,
    spaces: Service[SpaceService],
    request: Request,
    cursor: Cursor = None,
    q: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Every space, or the spaces and the models with a text in their name."""
    return space_list(context, spaces, request, cursor, q)


def space_list(
    context: CallerContext,
    spaces: SpaceService,
    request: Request,
    cursor: str | None,
    q: str,
) -> HTMLResponse:
    """The page of spaces, of all or of those that a search finds; of the latter with models."""
    with context.reading() as session:
        text = q.replace("\0", "").strip()
        page = spaces.list(session, context.tenant, limit=_PAGE_SIZE, cursor=cursor, text=text)
        models = (
            find_names_anywhere(session, context.tenant, text, _MAX_FOUND + 1)
            if text and not cursor
            else []
        )
    return render(
        request,
        "spaces.html",
        page=page,
        q=text,
        cursor=cursor,
        models=models[:_MAX_FOUND],
        more_models=len(models) > _MAX_FOUND,
    )


@routes.get("/spaces/{space}")
def space(
    context: ReadingContext,
    spaces: Service[SpaceService],
    reader: Service[ModelReader],
    learngenes: Service[LearngeneService],
    merges: Service[MergeService],
    weights: Service[WeightsService],
    space_name: SpaceName,
    request: Request,
    q: Annotated[str, Query(max_length=400)] = "",
    order: ModelOrder = "name",
    cursor: Cursor = None,
) -> HTMLResponse:
    """The models of a space that a query finds."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        terms = terms_of(q)
        page = reader.models(
            session, space, limit=_PAGE_SIZE, cursor=cursor, wanted=filter_of(terms), order=order
        )
        return render(
            request,
            "space.html",
            space=space,
            page=page,
            q=q,
            terms=[(str(term), _without(terms, term)) for term in terms],
            order=order,
            cursor=cursor,
            copied=weights.copied(session, space, [model.name for model in page.items]),
            more=_more(session, space, learngenes, merges),
            one_page=cursor is None and page.next_cursor is None,
        )


@routes.get("/spaces/{space}/about")
def about(
    context: ReadingContext,
    spaces: Service[SpaceService],
    publications: Service[PublicSpaceService],
    learngenes: Service[LearngeneService],
    merges: Service[MergeService],
    space_name: SpaceName,
    request: Request,
) -> HTMLResponse:
    """The page about a space: its signatures, policy of sizes and layout, and who may query it."""
    with context.reading() as session:
        space = spaces.get(session, context.tenant, space_name)
        layout = spaces.layout(session, space)
        tensors = () if layout is None else layout.tensors
        return render(
            request,
            "about.html",
            space=space,
            public=publications.find_own(session, space),
            steps=list(STEPS),
            tensors=tensors[:_MAX_TENSORS],
            count=len(tensors),
            more=_more(session, space, learngenes, merges),
        )


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
        if len(tensors) > _MAX_COMPARED:
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


def _more(
    session: Reader, space: SpaceRecord, learngenes: LearngeneService, merges: MergeService
) -> list[tuple[str, str]]:
    """The pages that only few spaces have, as text and path, if this space has them."""
    found = []
    if learngenes.list(session, space, limit=1, cursor=None).items:
        found.append(("Learngenes", space_path(space, "learngenes")))
    if merges.list(session, space, limit=1, cursor=None).items:
        found.append(("Merges", space_path(space, "merges")))
    return found


def _without(terms: list[Term], left_out: Term) -> str:
    """The query without one of its terms."""
    return " ".join(str(term) for term in terms if term is not left_out)
