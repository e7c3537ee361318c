"""Calls about reports, their policies, and badges."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from modelkin._validation import quote_model
from modelkin.client._protocol.calls import requests
from modelkin.client._protocol.calls.call import Call, content_of, read_nothing
from modelkin.client._protocol.calls.decoding import reader
from modelkin.client._protocol.jobs import read_job
from modelkin.errors import InvalidParameter
from modelkin.types.jobs import JobInfo
from modelkin.types.paging import Page
from modelkin.types.reports import Report, ReportInfo, ReportPolicy
from modelkin.wire import JSON

__all__ = [
    "FORMATS",
    "LATEST",
    "badge",
    "create",
    "delete",
    "delete_policy",
    "download",
    "get",
    "get_policy",
    "list_all",
    "set_policy",
]

LATEST: Final = "latest"
LAST: Final = "last"
_REPORTS, _POLICY = "/v1/reports", "/v1/report-policy"
_SVG: Final = "image/svg+xml"

FORMATS: Final = {
    "html": "text/html",
    "csv": "text/csv",
    "json": JSON,
    "cyclonedx": "application/vnd.cyclonedx+json",
}
"""The media types of a report by the names that callers use."""


def create(since: datetime | str | None) -> Call[JobInfo]:
    """Starts a job that makes a report."""
    return Call(requests.post_once(_REPORTS, {"since": _since(since)}), read_job)


def list_all() -> Call[Page[ReportInfo]]:
    """Lists the reports."""
    return Call(requests.get(_REPORTS, requests.PAGE_SIZE), reader(Page[ReportInfo]))


def get(report: str | ReportInfo) -> Call[Report]:
    """Reads a report."""
    return Call(requests.get(_path(report)), reader(Report))


def download(report: str | ReportInfo, form: str) -> Call[bytes]:
    """Reads a report in a form for others."""
    if form not in FORMATS:
        raise InvalidParameter(f"form is one of {', '.join(FORMATS)}", field="form")
    accept = FORMATS[form]
    request = requests.get(_path(report), accept=accept)
    return Call(request, lambda response: content_of(response, accept))


def delete(report: str | ReportInfo) -> Call[None]:
    """Deletes a report."""
    return Call(requests.write("DELETE", _path(report)), read_nothing)


def get_policy() -> Call[ReportPolicy]:
    """Reads the policy."""
    return Call(requests.get(_POLICY), reader(ReportPolicy))


def set_policy(every_seconds: int | None, keep: int | None) -> Call[ReportPolicy]:
    """Sets the policy."""
    given: dict[str, Any] = {"every_seconds": every_seconds, "keep": keep}
    body = {name: value for name, value in given.items() if value is not None}
    content = requests.json_bytes(body)
    return Call(requests.write("PUT", _POLICY, content, JSON), reader(ReportPolicy))


def delete_policy() -> Call[None]:
    """Deletes the policy."""
    return Call(requests.write("DELETE", _POLICY), read_nothing)


def badge(model: str) -> Call[bytes]:
    """Reads the badge of a model."""
    request = requests.get(f"/v1/fingerprints/{quote_model(model)}/badge.svg", accept=_SVG)
    return Call(request, lambda response: content_of(response, _SVG))


def _since(since: datetime | str | None) -> str | None:
    if since is None or since == LAST:
        return None if since is None else LAST
    if not isinstance(since, datetime):
        raise InvalidParameter('since must be a datetime, "last" or None', field="since")
    if since.tzinfo is None:
        raise InvalidParameter(
            "since has no time zone: give one, such as tzinfo=UTC", field="since"
        )
    return since.isoformat()


def _path(report: str | ReportInfo) -> str:
    known = report.id if isinstance(report, ReportInfo) else report
    return f"{_REPORTS}/{requests.check_id(known, 'report')}"
