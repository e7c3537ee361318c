"""Reports on the wire: what both clients send and read, and what they refuse to send."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from app.kinship.reports.schemas import EXAMPLE
from modelkin.errors import ApiError, InvalidParameter

ID = EXAMPLE["id"]
JOB = {
    "id": ID,
    "kind": "report",
    "state": "succeeded",
    "space": None,
    "parameters": {},
    "progress": None,
    "result": {"report": ID},
    "error": None,
    "attempts": 1,
    "cancelling": False,
    "created_at": "2026-11-29T21:50:00Z",
    "not_before": None,
    "started_at": None,
    "finished_at": None,
}
POLICY = {
    "every_seconds": 604_800,
    "keep": 12,
    "last_at": None,
    "next_at": "2026-11-29T21:50:00Z",
}
FORMS = {
    "html": "text/html",
    "csv": "text/csv",
    "json": "application/json",
    "cyclonedx": "application/vnd.cyclonedx+json",
}


def test_a_report_is_made_and_read(wire: Any) -> None:
    """The job is awaited, and the report has the values of the service's example."""
    answers = (httpx.Response(202, json=JOB), httpx.Response(200, json=JOB))
    client = wire.client(*answers, httpx.Response(200, json=EXAMPLE))
    report = client.reports.create()
    assert ["POST", "GET", "GET"] == [request.method for request in wire.requests]
    assert {"since": "last"} == json.loads(wire.requests[0].content)
    assert f"/v1/reports/{ID}" == wire.requests[2].url.path
    assert (ID, 163, 4_060_000_000) == (report.id, report.size.fingerprints, report.size.saved)
    assert datetime(2026, 11, 29, 21, 50, tzinfo=UTC) == report.until
    assert "org/base" == report.models[0].bases[0].model
    assert report.headlines[0] in repr(report).replace("\n", " ")


@pytest.mark.parametrize(
    ("since", "sent"),
    [
        (None, None),
        ("last", "last"),
        (datetime(2026, 11, 1, tzinfo=UTC), "2026-11-01T00:00:00+00:00"),
        (
            datetime(2026, 11, 1, tzinfo=timezone(timedelta(hours=1))),
            "2026-11-01T00:00:00+01:00",
        ),
    ],
)
def test_a_report_begins_where_it_is_said(wire: Any, since: Any, sent: str | None) -> None:
    """A moment is sent with its zone; the job alone is returned without a wait."""
    client = wire.client(httpx.Response(202, json=JOB))
    assert ID == client.reports.create(since=since, wait=False).id
    assert {"since": sent} == json.loads(wire.requests[0].content)


@pytest.mark.parametrize("form", FORMS)
def test_a_report_is_downloaded_in_a_form(wire: Any, form: str) -> None:
    """`Accept` asks for it, and an answer of another type is none of a modelkin service."""
    headers = {"Content-Type": f"{FORMS[form]}; charset=utf-8"}
    client = wire.client(httpx.Response(200, headers=headers, content=b"x"))
    assert b"x" == client.reports.download(ID, form)
    assert FORMS[form] == wire.requests[0].headers["accept"]
    other = wire.client(httpx.Response(200, headers={"Content-Type": "text/plain"}, content=b"x"))
    with pytest.raises(ApiError):
        other.reports.download(form=form)


def test_reports_are_listed_read_and_deleted(wire: Any) -> None:
    """A listed report stands for its id; the newest one is read where none is named."""
    info = {name: EXAMPLE[name] for name in ("id", "since", "until", "size")}
    page = {"items": [{**info, "made_by": "policy"}], "next_cursor": None}
    client = wire.client(httpx.Response(200, json=page))
    [listed] = list(client.reports.list())
    assert ("policy", 1) == (listed.made_by, listed.size.models)
    client = wire.client(httpx.Response(200, json=EXAMPLE))
    assert client.reports.get() == client.reports.get(listed)
    assert ["latest", ID] == [r.url.path.rpartition("/")[2] for r in wire.requests[-2:]]
    client = wire.client(httpx.Response(204))
    client.reports.delete(listed)
    assert "DELETE" == wire.requests[-1].method


def test_a_policy_is_set_read_and_deleted(wire: Any) -> None:
    """What is left out takes the service's default."""
    client = wire.client(httpx.Response(200, json=POLICY))
    assert client.reports.policy.set(keep=12) == client.reports.policy.get()
    assert {"keep": 12} == json.loads(wire.requests[0].content)
    client = wire.client(httpx.Response(204))
    client.reports.policy.delete()
    assert ("DELETE", "/v1/report-policy") == (
        *(wire.requests[-1].method, wire.requests[-1].url.path),
    )


def test_a_badge_is_bytes(wire: Any) -> None:
    """Of a model whose name is quoted segment by segment."""
    headers = {"Content-Type": "image/svg+xml"}
    client = wire.client(httpx.Response(200, headers=headers, content=b"<svg/>"))
    assert b"<svg/>" == client.reports.badge("org/a b")
    assert "/v1/fingerprints/org/a%20b/badge.svg" == wire.target


@pytest.mark.parametrize(
    "wrong",
    [
        lambda client: client.reports.create(since=datetime(2026, 11, 1)),
        lambda client: client.reports.create(since="yesterday"),
        lambda client: client.reports.download(ID, "pdf"),
        lambda client: client.reports.get("a/b"),
    ],
)
def test_a_mistake_is_not_sent(wire: Any, wrong: Callable[[Any], object]) -> None:
    """A time without a zone, another text, another form and another id."""
    client = wire.client(httpx.Response(500))
    with pytest.raises(InvalidParameter):
        wrong(client)
    assert [] == wire.requests
