"""``/``, ``/new``, ``/findings``, ``/samples``, ``/words``: what asks for a look, or how to begin.

With a text to search, ``/`` is the list of spaces and models with it in their name.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse

from app.fingerprints.service import FingerprintService
from app.infra.http.dependencies import Cursor
from app.infra.http.routes import Routes
from app.infra.http.services import Service
from app.kinship.inbox.families import FamilyList
from app.kinship.inbox.service import InboxService
from app.kinship.samples.service import SampleService
from app.models.spaces.service import SpaceService
from app.tenancy.auth.dependencies import ReadingContext, WritingContext
from app.ui import programs
from app.ui.inbox_sections import CONTRADICTED, DOUBTED, UNDECLARED, read_part, sections_of
from app.ui.pages.spaces import space_list
from app.ui.rendering import PageRoutes, render
from app.ui.words import VERDICTS, WORDS

__all__ = ["data", "routes"]

routes = PageRoutes()
data = Routes(include_in_schema=False)
"""What the buttons of the page do."""

_SPACES: Final = 12
"""Spaces that the page lists."""
_FAMILIES: Final = 10
_NEW: Final = 200


@routes.get("/")
def inbox(
    context: ReadingContext,
    spaces: Service[SpaceService],
    fingerprints: Service[FingerprintService],
    inbox: Service[InboxService],
    families: Service[FamilyList],
    samples: Service[SampleService],
    request: Request,
    cursor: Cursor = None,
    q: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """What asks for a look, the largest families, and the first spaces."""
    if q.strip() or cursor:
        return space_list(context, spaces, request, cursor, q)
    tenant = context.tenant
    with context.reading() as session:
        page = spaces.list(session, tenant, limit=_SPACES, cursor=None)
        count = len(page.items)
        if page.next_cursor:
            count = spaces.count(session, tenant)
        stored = fingerprints.feed(session, tenant.id).fingerprints
        sampled = samples.find(session, tenant) is not None
    sections = list(sections_of(context, inbox))
    return render(
        request,
        "inbox.html",
        is_empty=not page.items and not stored,
        first=programs.first_steps(request),
        sections=sections,
        is_open=read_part(context, "work", lambda session: inbox.is_open(session, tenant)),
        families=read_part(
            context,
            "families",
            lambda session: families.largest(session, tenant, limit=_FAMILIES),
        ),
        spaces=page.items,
        count=count,
        sampled=sampled,
    )


@routes.get("/new")
def new(context: ReadingContext, inbox: Service[InboxService], request: Request) -> HTMLResponse:
    """The models that were first stored since yesterday, the newest first."""
    with context.reading() as session:
        found = inbox.new(session, context.tenant, datetime.now(UTC), limit=_NEW)
    return render(request, "new.html", found=found)


@routes.get("/findings")
def findings(
    context: ReadingContext,
    inbox: Service[InboxService],
    request: Request,
    show: Literal["contradicted", "doubted", "undeclared"] = "contradicted",
) -> HTMLResponse:
    """What is found of declared bases in all spaces and not acknowledged, the newest first."""
    verdicts = {"contradicted": CONTRADICTED, "doubted": DOUBTED, "undeclared": UNDECLARED}
    with context.reading() as session:
        found = inbox.findings(session, context.tenant, verdicts[show], limit=_NEW)
    return render(request, "findings.html", found=found, show=show)


@routes.get("/words")
def words(context: ReadingContext, request: Request) -> HTMLResponse:
    """What the words of the pages mean, and each verdict."""
    del context  # whoever may read the pages
    return render(request, "words.html", words=WORDS, verdicts=VERDICTS)


@data.post("/samples", turn="heavy")
def make_samples(context: WritingContext, samples: Service[SampleService]) -> Response:
    """Make models to try the pages with, and store them all, or none."""
    samples.store(context.tenant, samples.prepare())
    return Response(status_code=201)


@data.delete("/samples")
def delete_samples(context: WritingContext, samples: Service[SampleService]) -> Response:
    """Delete them, with their space and their fingerprints."""
    with context.writing() as session:
        samples.remove(session, context.tenant)
    return Response(status_code=204)
