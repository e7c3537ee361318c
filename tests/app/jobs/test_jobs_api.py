"""/v1/jobs over HTTP, in a service that asks for keys and carries jobs out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

import modelkin
from modelkin.errors import JobCancelled, JobFailed
from tests.support.declared_problems import checked
from tests.support.fixtures import on_one_database
from tests.support.http_space import Space, assert_problem, ok
from tests.support.jobs.deployment import Deployment
from tests.support.jobs.fixtures import Shared


@pytest.fixture(scope="session")
def keys(busy: Deployment) -> dict[str, str]:
    """A key of each tenant, and one that may only read."""
    return {
        "default": busy.make_key("default", "read", "write"),
        "strangers": busy.make_key("strangers", "read", "write"),
        "reader": busy.make_key("default", "read"),
    }


@pytest.fixture(scope="session")
def url(shared_deployment: Shared) -> str:
    """Where the service is."""
    return shared_deployment[1].address()


@pytest.fixture
def http(url: str, keys: dict[str, str]) -> Iterator[httpx.Client]:
    """HTTP with a key of the default tenant."""
    with connect(url, keys["default"]) as client:
        yield client


def connect(url: str, key: str) -> httpx.Client:
    """HTTP with a key."""
    headers = {"Authorization": f"Bearer {key}"}
    return checked(httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False))


@pytest.fixture
def space(http: httpx.Client) -> Space:
    """A space with three models, b nearer to a than c is."""
    made = Space(http)
    spans = {name: range(20 * shift, 1000 + 20 * shift) for shift, name in enumerate("abc")}
    made.put_all({n: modelkin.Support.from_indices(span, made.m) for n, span in spans.items()})
    return made


def wait(http: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    """The job once it has ended."""
    end = time.monotonic() + 60
    while (now := ok(http.get(f"/v1/jobs/{job['id']}")))["state"] in {"queued", "running"}:
        assert time.monotonic() < end
        time.sleep(0.1)
    return now


def test_what_is_asked_for_is_a_202_and_a_place_to_look(http: httpx.Client, space: Space) -> None:
    """Rebuilding buckets answers the job at once; it ends with its result."""
    answer = http.post(space.path("jobs"), json={"kind": "rebuild_buckets"})
    assert 202 == answer.status_code
    job = answer.json()
    assert f"/v1/jobs/{job['id']}" == answer.headers["Location"]
    assert ("rebuild_buckets", "queued", space.name) == (job["kind"], job["state"], job["space"])
    done = wait(http, job)
    assert ("succeeded", {"models": 3, "bands": 64, "rows": 4}) == (done["state"], done["result"])
    assert "bucketing" == done["progress"]["stage"]
    found = space.neighbors("a", method="lsh")
    assert ("lsh", ["b", "c"]) == (found["method"], [n["model"] for n in found["items"]])


def test_a_kind_that_is_gone_is_refused_with_what_it_was(http: httpx.Client, space: Space) -> None:
    """No job is made; the jobs of such a kind that there are can still be listed."""
    answer = http.post(space.path("jobs"), json={"kind": "stop_list"})
    assert "stop-lists are gone" in assert_problem(answer, 422, "invalid_parameter")
    assert [] == http.get("/v1/jobs", params={"kind": "stop_list"}).json()["items"]


@pytest.mark.slow
def test_a_job_of_a_space_that_went_fails(
    http: httpx.Client, busy: Deployment, space: Space
) -> None:
    """It says that its space was deleted."""
    full = [busy.enqueue("count", steps=10, pause=0.1) for _ in range(2)]
    for job in full:
        busy.running(job)
    rebuilding = ok_202(http.post(space.path("jobs"), json={"kind": "rebuild_buckets"}))
    assert 204 == http.delete(f"/v1/spaces/{space.name}").status_code
    done = wait(http, rebuilding)
    assert ("failed", "space_not_found") == (done["state"], done["error"]["code"])
    assert (space.name, None) == (done["space"], done["result"])


def test_jobs_are_listed_newest_first(http: httpx.Client, busy: Deployment, space: Space) -> None:
    """By pages, and by state, kind and space."""
    jobs = [busy.enqueue("count", steps=0, pause=0.0) for _ in range(3)]
    wrong = busy.enqueue("wrong")
    mine = wait(http, ok_202(http.post(space.path("jobs"), json={"kind": "rebuild_buckets"})))
    for job in (*jobs, wrong):
        busy.ended(job)
    ids = [mine["id"], wrong.id, *(job.id for job in reversed(jobs))]
    first = ok(http.get("/v1/jobs", params={"limit": 2}))
    second = ok(http.get("/v1/jobs", params={"limit": 3, "cursor": first["next_cursor"]}))
    assert ids == [job["id"] for job in first["items"] + second["items"]]
    filters: list[tuple[dict[str, str | int], str]] = [
        ({"kind": "wrong", "limit": 1}, wrong.id),
        ({"space": space.name}, mine["id"]),
        ({"kind": "count", "state": "succeeded", "limit": 1}, jobs[-1].id),
    ]
    for params, expected in filters:
        assert expected == ok(http.get("/v1/jobs", params=params))["items"][0]["id"]
    none = ok(http.get("/v1/jobs", params={"space": space.name, "state": "failed"}))
    assert {"items": [], "next_cursor": None} == none


@pytest.mark.slow
def test_a_job_is_cancelled(http: httpx.Client, busy: Deployment) -> None:
    """A running job is cancelled and ends; a repetition changes nothing; an ended one is a 409."""
    job = busy.running(busy.enqueue("count", steps=600, pause=0.1))
    url = f"/v1/jobs/{job.id}/cancel"
    answer = http.post(url)
    assert (202, True) == (answer.status_code, answer.json()["cancelling"])
    done = wait(http, answer.json())
    expected = {"code": "job_cancelled", "detail": "the job was cancelled"}
    assert ("cancelled", expected) == (done["state"], done["error"])
    assert done == http.post(url).json()
    ended = busy.ended(busy.enqueue("count", steps=0, pause=0.0))
    detail = assert_problem(http.post(f"/v1/jobs/{ended.id}/cancel"), 409, "job_finished")
    assert "succeeded" in detail


@pytest.mark.parametrize("tail", ["", "/events", "/cancel"])
def test_another_tenants_job_is_a_404(
    http: httpx.Client, busy: Deployment, url: str, keys: dict[str, str], tail: str
) -> None:
    """In every way exactly as one that does not exist, and it is not listed."""
    job = busy.enqueue("count", steps=0, pause=0.0)
    method = "POST" if tail == "/cancel" else "GET"
    with connect(url, keys["strangers"]) as other:
        theirs = other.request(method, f"/v1/jobs/{job.id}{tail}")
        nobodys = other.request(method, f"/v1/jobs/{job.id[:-4]}0000{tail}")
        assert [] == ok(other.get("/v1/jobs"))["items"]
    for answer in (theirs, nobodys):
        assert_problem(answer, 404, "job_not_found")
    assert "succeeded" == busy.ended(job).state


def test_reading_is_not_changing(
    url: str, keys: dict[str, str], space: Space, busy: Deployment
) -> None:
    """A key that may only read makes no job and cancels none."""
    job = busy.enqueue("count", steps=0, pause=0.0)
    with connect(url, keys["reader"]) as reader:
        assert 200 == reader.get(f"/v1/jobs/{job.id}").status_code
        for answer in (
            reader.post(f"/v1/jobs/{job.id}/cancel"),
            reader.post(space.path("jobs"), json={"kind": "rebuild_buckets"}),
        ):
            assert_problem(answer, 403, "forbidden")
    with checked(httpx.Client(base_url=url, trust_env=False)) as nobody:
        for path in ("/v1/jobs", f"/v1/jobs/{job.id}", f"/v1/jobs/{job.id}/events"):
            assert_problem(nobody.get(path), 401, "unauthorized")


@pytest.mark.parametrize("name", ["x", "%00", "..%2Fspaces", "a" * 300, "%F0%9F%90%8D", "-" * 36])
def test_an_id_that_cannot_be_is_a_404(http: httpx.Client, name: str) -> None:
    """No text in the place of an id is more than unknown."""
    assert 404 == http.get(f"/v1/jobs/{name}").status_code
    assert 404 == http.post(f"/v1/jobs/{name}/cancel").status_code
    assert 404 == http.get(f"/v1/jobs/{name}/events").status_code


@on_one_database
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"state": "done"}, "state"),
        ({"kind": "nonsense"}, "kind"),
        ({"kind": "\0"}, "kind"),
        ({"space": "No Such"}, "space"),
        ({"cursor": "!"}, "cursor"),
        ({"limit": 0}, "limit"),
    ],
)
def test_a_bad_filter_is_named(http: httpx.Client, params: dict[str, Any], field: str) -> None:
    """A filter that nothing can match is a 422 that names it."""
    answer = http.get("/v1/jobs", params=params)
    assert 422 == answer.status_code
    assert field in {e["field"] for e in answer.json()["errors"]} | {answer.json()["code"][-4:]}


@on_one_database
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "kind"),
        ({"kind": "count"}, "kind"),
        ({"kind": 1}, "kind"),
        ({"kind": "stop_list", "parameters": {"share": 0}}, "parameters.share"),
        ({"kind": "stop_list", "parameters": {"share": "1"}}, "parameters.share"),
        ({"kind": "stop_list", "parameters": {"shares": 0.5}}, "parameters.shares"),
        ({"kind": "rebuild_buckets", "parameters": {"share": 0.5}}, "body"),
        ({"kind": "rebuild_buckets", "more": 1}, "more"),
        ([], "body"),
    ],
)
def test_a_bad_job_is_named(http: httpx.Client, space: Space, body: Any, field: str) -> None:
    """Only the public kinds are made, with the parameters that they have."""
    answer = http.post(space.path("jobs"), json=body)
    assert 422 == answer.status_code, answer.text
    assert [field] == [e["field"] for e in answer.json()["errors"]]


@pytest.mark.slow
def test_a_tenant_follows_so_many_jobs_at_a_time(
    http: httpx.Client, busy: Deployment, url: str, keys: dict[str, str]
) -> None:
    """The 51st stream is a 429 that says how many; another tenant's opens, and so do later ones."""
    job, theirs = busy.enqueue("watch"), busy.enqueue("watch", tenant=busy.make_tenant("strangers"))
    path = f"/v1/jobs/{job.id}/events"
    with ExitStack() as streams, connect(url, keys["strangers"]) as other:
        opened = [streams.enter_context(http.stream("GET", path)) for _ in range(50)]
        assert {200} == {answer.status_code for answer in opened}
        detail = assert_problem(http.get(path), 429, "quota_exceeded")
        assert "50 event streams" in detail
        with other.stream("GET", f"/v1/jobs/{theirs.id}/events") as answer:
            assert 200 == answer.status_code
    end = time.monotonic() + 30
    while True:  # the service learns of an end with its next event
        with http.stream("GET", path) as answer:
            if answer.status_code == 200:
                break
        assert time.monotonic() < end
        time.sleep(0.1)
    for each in (job, theirs):
        busy.folder.joinpath(each.id).touch()
        assert "succeeded" == busy.ended(each).state


@pytest.mark.slow
def test_a_job_is_followed_to_its_end(http: httpx.Client, busy: Deployment) -> None:
    """The stream sends the job at once, its progress as it grows, and ends with it."""
    job = busy.enqueue("count", steps=25, pause=0.1)
    began = time.monotonic()
    with http.stream("GET", f"/v1/jobs/{job.id}/events") as answer:
        assert (200, "no-store") == (answer.status_code, answer.headers["Cache-Control"])
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        arrived = [(event, time.monotonic() - began) for event in events(answer)]
    told = [event for event, _ in arrived]
    assert {"retry": "2000"} == told.pop(0)
    jobs = [json.loads(event["data"]) for event in told]
    assert {job.id} == {now["id"] for now in jobs}
    done = [now["progress"]["done"] for now in jobs if now["progress"]]
    assert len(set(done)) > 3
    assert sorted(done) == done
    assert ("succeeded", {"counted": 25}) == (jobs[-1]["state"], jobs[-1]["result"])
    revisions = [int(event["id"]) for event in told]
    assert sorted(set(revisions)) == revisions
    assert arrived[1][1] < arrived[-1][1] - 1.5  # as it happens, and not in the end
    again = {"Last-Event-ID": told[-1]["id"]}
    assert 204 == http.get(f"/v1/jobs/{job.id}/events", headers=again).status_code
    older = {"Last-Event-ID": told[-2]["id"]}
    with http.stream("GET", f"/v1/jobs/{job.id}/events", headers=older) as answer:
        assert [{"retry": "2000"}, told[-1]] == list(events(answer))


def events(answer: httpx.Response) -> Iterator[dict[str, str]]:
    """The events of a stream, by their fields."""
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line:
            yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


@pytest.mark.slow
def test_many_who_watch_hold_nobody_up(http: httpx.Client, busy: Deployment) -> None:
    """With more streams open than there are connections, a request is answered at once,
    and each stream receives the end.
    """
    job = busy.running(busy.enqueue("count", steps=40, pause=0.1))
    streams = [http.stream("GET", f"/v1/jobs/{job.id}/events") for _ in range(50)]
    answers = [stream.__enter__() for stream in streams]
    began = time.monotonic()
    assert 200 == http.get("/v1/jobs").status_code
    assert time.monotonic() - began < 5
    last = [list(events(answer))[-1] for answer in answers]
    assert {"succeeded"} == {json.loads(event["data"])["state"] for event in last}
    for stream in streams:
        stream.__exit__(None, None, None)


@on_one_database
@pytest.mark.slow
def test_the_sdk_waits_for_a_job(
    busy: Deployment, url: str, keys: dict[str, str], space: Space
) -> None:
    """It starts, lists, follows and cancels jobs, and raises the errors of failed ones."""
    with modelkin.Client(url, keys["default"]) as client:
        job = client.jobs.create(space.name, "rebuild_buckets")
        done = client.jobs.wait(job, timeout=30)
        assert done.result is not None
        assert ("succeeded", 3, done) == (
            done.state,
            done.result["models"],
            client.jobs.get(job.id),
        )
        assert [done] == list(client.jobs.list(space=space.name, state="succeeded"))
        told: list[modelkin.JobInfo] = []
        counted = busy.enqueue("count", steps=20, pause=0.1)
        client.jobs.wait(counted.id, on_progress=told.append)
        assert len({now.progress for now in told}) > 3
        with pytest.raises(JobFailed, match="there are no such leaves") as failed:
            client.jobs.wait(busy.enqueue("wrong").id)
        assert "invalid_parameter" == failed.value.job.error["code"]
        endless = busy.enqueue("count", steps=600, pause=0.1)
        with pytest.raises(TimeoutError, match="it goes on"):
            client.jobs.wait(endless.id, timeout=0.3)
        client.jobs.cancel(endless.id)
        with pytest.raises(JobCancelled):
            client.jobs.wait(endless.id, timeout=30)


def ok_202(answer: httpx.Response) -> dict[str, Any]:
    """The job that was accepted."""
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job
