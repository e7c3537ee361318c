"""Jobs through either client: what is sent, what is read, and how long it waits."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import modelkin
from modelkin.errors import InvalidParameter, JobCancelled, JobFailed
from tests.sdk.client.conftest import Wire

ID = "0198c7a2-5b7e-7cc3-98c4-dc0c0c07398f"
JOB = {
    "id": ID,
    "kind": "stop_list",
    "state": "queued",
    "space": "digits",
    "parameters": {"share": 0.5},
    "progress": None,
    "result": None,
    "error": None,
    "attempts": 0,
    "cancelling": False,
    "created_at": "2026-01-02T03:04:05Z",
    "not_before": None,
    "started_at": None,
    "finished_at": None,
}


def job(state: str, **more: Any) -> httpx.Response:
    """The answer about a job in this state."""
    return httpx.Response(200, json=JOB | {"state": state} | more)


def running(done: int) -> httpx.Response:
    """The answer about a job that is so far."""
    return job("running", progress={"done": done, "total": 9, "stage": "counting"})


def test_a_job_is_started(wire: Wire) -> None:
    """Its kind and parameters go to its space, and the job is answered."""
    client = wire.client(httpx.Response(202, json=JOB))
    started = client.jobs.create("digits", "stop_list", share=0.5)
    (request,) = wire.requests
    assert ("POST", "/v1/spaces/digits/jobs") == (request.method, wire.target)
    assert b'{"kind":"stop_list","parameters":{"share":0.5}}' == request.content
    assert (ID, "queued", False) == (started.id, started.state, started.finished)


def test_jobs_are_listed_by_pages(wire: Wire) -> None:
    """Filters are sent with every page, and no page is asked for before it is read."""
    pages = [{"items": [JOB], "next_cursor": "c"}, {"items": [JOB], "next_cursor": None}]
    client = wire.client(*(httpx.Response(200, json=page) for page in pages))
    listed = client.jobs.list(state="failed", kind="stop_list", space="digits")
    assert [] == wire.requests
    assert [ID, ID] == [each.id for each in listed]
    wanted = {"limit": "100", "state": "failed", "kind": "stop_list", "space": "digits"}
    assert [wanted, wanted | {"cursor": "c"}] == [dict(r.url.params) for r in wire.requests]


def test_a_job_is_cancelled_by_its_id_or_itself(wire: Wire) -> None:
    """Cancelling may be sent again when the service is busy."""
    busy = httpx.Response(503, json={"code": "unavailable", "detail": "later"})
    client = wire.client(job("running"), busy, job("running", cancelling=True))
    assert client.jobs.cancel(client.jobs.get(ID)).cancelling
    paths = [(request.method, request.url.path) for request in wire.requests]
    cancel = ("POST", f"/v1/jobs/{ID}/cancel")
    assert [("GET", f"/v1/jobs/{ID}"), cancel, cancel] == paths


def test_waiting_looks_less_and_less_often(wire: Wire) -> None:
    """Pauses grow to two seconds, and every change is reported once."""
    client = wire.client(
        job("queued"), *[running(1)] * 9, running(2), job("succeeded", result={"size": 3})
    )
    reports: list[modelkin.JobInfo] = []
    done = client.jobs.wait(ID, on_progress=reports.append)
    assert ("succeeded", {"size": 3}) == (done.state, done.result)
    assert ["queued", "running", "running", "succeeded"] == [now.state for now in reports]
    assert [1, 2] == [now.progress.done for now in reports if now.progress]
    assert wire.pauses == sorted(wire.pauses)
    assert (11, 0.1, 2.0) == (len(wire.pauses), wire.pauses[0], wire.pauses[-1])


@pytest.mark.parametrize(("state", "error"), [("failed", JobFailed), ("cancelled", JobCancelled)])
def test_a_job_that_does_not_succeed_is_an_error(
    wire: Wire, state: str, error: type[JobFailed]
) -> None:
    """It says which job, and why, and carries it."""
    why = {"code": "space_not_found", "detail": "space 'digits' was deleted"}
    client = wire.client(job(state, error=why))
    words = f"{ID} .stop_list. {state}: space_not_found: space 'digits' was deleted"
    with pytest.raises(error, match=words) as caught:
        client.jobs.wait(ID)
    assert why == caught.value.job.error


def test_waiting_ends_in_time(wire: Wire) -> None:
    """After ``timeout`` it says what the job was doing."""
    client = wire.client(running(1))
    with pytest.raises(TimeoutError, match=f"{ID} is running after 0 s; it goes on"):
        client.jobs.wait(ID, timeout=0.0)
    assert 1 == len(wire.requests)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.jobs.get("../spaces"),
        lambda client: client.jobs.get(""),
        lambda client: client.jobs.cancel(7),
        lambda client: client.jobs.wait(ID, timeout=-1),
        lambda client: list(client.jobs.list(state="done")),
        lambda client: list(client.jobs.list(space="No Such")),
        lambda client: client.jobs.create("digits", "stop_list", share=float("nan")),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_sent(wire: Wire, ask: Any) -> None:
    """No request is made of an id, state, name or number that no service would take."""
    with pytest.raises(modelkin.InvalidInput):
        ask(wire.client(job("queued")))
    assert [] == wire.requests


def test_the_errors_are_of_one_tree() -> None:
    """``except modelkin.ModelkinError`` catches them, and a cancelled job is one that failed."""
    assert issubclass(JobCancelled, JobFailed)
    assert issubclass(JobFailed, modelkin.ModelkinError)
    assert issubclass(InvalidParameter, modelkin.InvalidInput)
