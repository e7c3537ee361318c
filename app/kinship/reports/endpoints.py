"""/v1/reports and /v1/report-policy: reports, made by jobs; and the badge of a model."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

from fastapi import Path, Request, Response

from app.infra.errors import (
    FingerprintNotFound,
    NotAcceptable,
    QueueFull,
    RateLimited,
    ReportNotFound,
)
from app.infra.http.answers import (
    Answer,
    AnswerMemory,
    PageLimit,
    binary_answer,
    page_answer,
    streamed_answer,
)
from app.infra.http.dependencies import Accept, Cursor
from app.infra.http.middleware.security_headers import POLICY, page_policy
from app.infra.http.requests.json_bodies import JsonBody
from app.infra.http.requests.negotiation import choose
from app.infra.http.requests.preconditions import NOT_MODIFIED, entity_tag, is_known
from app.infra.http.routes import Routes
from app.infra.http.routing import MODEL, BehindModel
from app.infra.http.services import Service
from app.jobs.endpoints import job_answer
from app.jobs.schemas import JobOut
from app.kinship.reports.badges import BadgeService
from app.kinship.reports.policies import ReportPolicies
from app.kinship.reports.records import ReportRecord
from app.kinship.reports.renderings.kept import beginning, rows_in
from app.kinship.reports.renderings.page import MAX_SHOWN, STYLE_SOURCE, page
from app.kinship.reports.renderings.spreadsheet import spreadsheet
from app.kinship.reports.schemas import (
    ReportIn,
    ReportInfoOut,
    ReportOut,
    ReportPage,
    ReportPolicyIn,
    ReportPolicyOut,
)
from app.kinship.reports.service import ReportService
from app.models.catalog.dependencies import ModelName
from app.tenancy.auth.dependencies import AUTHENTICATED, REFUSALS, ReadingContext, WritingContext
from app.tenancy.idempotency.dependencies import Once
from modelkin.errors import InvalidName, InvalidParameter

__all__ = ["badge_routes", "routes"]

routes = Routes(tags=["reports"], dependencies=AUTHENTICATED, responses=REFUSALS)
badge_routes = Routes(
    prefix="/v1/fingerprints",
    tags=["reports"],
    dependencies=AUTHENTICATED,
    responses=REFUSALS,
    route_class=BehindModel,
)

JSON: Final = "application/json"
HTML: Final = "text/html"
CSV: Final = "text/csv"
CYCLONEDX: Final = "application/vnd.cyclonedx+json"
SVG: Final = "image/svg+xml"
FORMS: Final = (JSON, HTML, CSV, CYCLONEDX)
_TYPES: Final = {
    JSON: JSON,
    HTML: "text/html; charset=utf-8",
    CSV: "text/csv; charset=utf-8; header=present",
    CYCLONEDX: f"{CYCLONEDX}; version=1.6",
}
_ENDINGS: Final = {CSV: "csv", CYCLONEDX: "cdx.json"}
"""Of the forms that a browser keeps as a file."""
_NO_LIBRARY: Final = (
    "this report has no CycloneDX document, since the service that made it lacks the library: "
    "pip install 'modelkin-service[cyclonedx]' where jobs run, and make another report"
)
_PIECES_BYTES: Final = 8 << 20
"""Memory of an answer that is made piece by piece, beside that of what is kept of the report."""
_PAGE_BYTES: Final = 32 << 20
"""Memory of a page, whose tables show few rows; and of a short report less."""
_READ_AND_WRITTEN: Final = 8
"""Memory of a report as values and as a page, beside that of its JSON."""

ReportId = Annotated[str, Path(description="the id of the report, or `latest`", max_length=100)]


@routes.post(
    "/v1/reports",
    operation_id="create_report",
    summary="Start making a report of all models",
    refuses=(QueueFull, RateLimited, InvalidParameter),
    status_code=202,
)
def create(
    context: WritingContext,
    service: Service[ReportService],
    once: Once,
    received: JsonBody[ReportIn],
) -> Answer[JobOut] | Response:
    """Make a report of what is new since a moment, or since the last report.

    It has what was found beside what is declared: contradicted and undeclared bases, copies,
    merges, licences, and what storing differences would save. It has the id of the job. A repeated
    request gets the same job, until that has ended.
    """
    body = received.read()
    with context.writing() as session:
        if (kept := once.find_answer(session)) is not None:
            return kept
        job = service.create(session, context.tenant, body.to_since())
        return once.keep(session, job_answer(job))


@routes.get(
    "/v1/reports",
    operation_id="list_reports",
    summary="List the reports, newest first",
    refuses=(InvalidParameter,),
    response_model=ReportPage,
)
def list_reports(
    context: ReadingContext,
    service: Service[ReportService],
    limit: PageLimit,
    cursor: Cursor = None,
) -> Response:
    """The reports without their tables. The last 100 are kept, or as many as the policy says."""
    with context.reading() as session:
        found = service.list(session, context.tenant, limit=limit, cursor=cursor)
    return page_answer(map(ReportInfoOut.of, found.items), found.next_cursor)


@routes.get(
    "/v1/reports/{report}",
    operation_id="get_report",
    summary="Show a report in one of four forms",
    refuses=(ReportNotFound, NotAcceptable, InvalidParameter),
    response_model=ReportOut,
    responses={
        200: {
            "content": {
                HTML: {"schema": {"type": "string"}},
                CSV: {"schema": {"type": "string"}},
                CYCLONEDX: {"schema": {"type": "object"}},
            }
        }
    },
    turn="heavy",
)
def show(
    context: ReadingContext,
    service: Service[ReportService],
    memory: AnswerMemory,
    report: ReportId,
    accept: Accept = None,
) -> Response:
    """One report, as `Accept` says.

    JSON has all of it, HTML is a page to read and print, CSV a table of its findings, and CycloneDX
    a bill of materials with the pedigree of each model.
    """
    form = choose(accept, FORMS)
    with context.reading() as session:
        found = service.get(session, context.tenant, report)
        packed = service.packed_bytes(session, found)
        session.release()  # nothing is held while it waits for memory
        memory.take(packed + min(_READ_AND_WRITTEN * found.content_bytes, _needed(form)))
        read = service.bill if form == CYCLONEDX else service.content
        kept = read(session, found)
    if kept is None:
        raise NotAcceptable(_NO_LIBRARY)
    headers = _headers(found, form)
    if form == HTML:
        return binary_answer(page(*beginning(kept.lines(), MAX_SHOWN)), _TYPES[form], headers)
    if form == CSV:
        return streamed_answer(spreadsheet(rows_in(kept.lines())), _TYPES[form], headers)
    sized = {**headers, "Content-Length": str(kept.size)}
    return streamed_answer(kept.pieces(), _TYPES[form], sized)


def _needed(form: str) -> int:
    return _PAGE_BYTES if form == HTML else _PIECES_BYTES


def _headers(report: ReportRecord, form: str) -> dict[str, str]:
    headers = {"Vary": "Accept"}
    if form == HTML:
        headers[POLICY] = page_policy(style_src=STYLE_SOURCE)
    if form in _ENDINGS:
        name = f"report-{report.until:%Y-%m-%d}.{_ENDINGS[form]}"
        headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return headers


@routes.delete(
    "/v1/reports/{report}",
    operation_id="delete_report",
    summary="Delete a report and keep the others",
    refuses=(ReportNotFound, InvalidParameter),
    status_code=204,
)
def delete(context: WritingContext, service: Service[ReportService], report: ReportId) -> None:
    """Delete a report. The next one that begins at the last begins at the one before."""
    with context.writing() as session:
        service.delete(session, context.tenant, report)


@routes.put(
    "/v1/report-policy",
    operation_id="put_report_policy",
    summary="Set how often reports are made",
)
def put_policy(
    context: WritingContext, policies: Service[ReportPolicies], received: JsonBody[ReportPolicyIn]
) -> ReportPolicyOut:
    """Make reports by themselves, each about what came since the last one, and keep so many.

    The first one is made at once, and is about all models.
    """
    body = received.read()
    with context.writing() as session:
        policy = policies.put(
            session, context.tenant, every_seconds=body.every_seconds, keep=body.keep
        )
    return ReportPolicyOut.of(policy)


@routes.get(
    "/v1/report-policy",
    operation_id="get_report_policy",
    summary="Show how often reports are made",
    refuses=(ReportNotFound, InvalidParameter),
)
def show_policy(context: ReadingContext, policies: Service[ReportPolicies]) -> ReportPolicyOut:
    """The policy, and when the next report is due."""
    with context.reading() as session:
        return ReportPolicyOut.of(policies.get(session, context.tenant))


@routes.delete(
    "/v1/report-policy",
    operation_id="delete_report_policy",
    summary="Stop making reports by themselves",
    refuses=(ReportNotFound, InvalidParameter),
    status_code=204,
)
def delete_policy(context: WritingContext, policies: Service[ReportPolicies]) -> None:
    """Stop making reports by themselves; those that there are stay."""
    with context.writing() as session:
        policies.delete(session, context.tenant)


@badge_routes.get(
    f"{MODEL}/badge.svg",
    operation_id="get_badge",
    summary="Show what a model is as a picture",
    refuses=(FingerprintNotFound, InvalidName, InvalidParameter),
    response_class=Response,
    responses={200: {"content": {SVG: {"schema": {"type": "string"}}}}, **NOT_MODIFIED},
)
def badge(
    context: ReadingContext,
    badges: Service[BadgeService],
    name: ModelName,
    request: Request,
) -> Response:
    """What a model is by its weights and when that was measured, as a picture for a page.

    It needs a key as any answer about a model does: publish a copy where others are to see it.
    """
    with context.reading() as session:
        picture = badges.picture(session, context.tenant, name)
    version = hashlib.sha256(picture).hexdigest()[:32]
    headers = {"ETag": entity_tag(version), "Cache-Control": "private, no-cache"}
    if is_known(request, version):
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type=SVG, headers=headers)
