"""Requests at random of any caller: no foreign data, and no 5xx but the 507 of a quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from modelkin import Support
from tests.app.auth.test_keys import new_key
from tests.faults.requests import Generator
from tests.support.fixtures import Figure
from tests.support.http_space import SUPPORT, ok
from tests.support.repetitions import repetitions
from tests.support.servers.server_process import Server

SEED = 1906
MARK = "quagga"
"""Is in all texts of the victim, and in no request of others."""
M = 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service of two tenants."""
    running = Server(tmp_path, "--auth=required", "--embedded-worker=off").start()
    yield running
    running.kill()


def client(server: Server, tenant: str) -> httpx.Client:
    """HTTP with a key of a tenant, of all scopes but the operator's."""
    scopes = [f"--scope={scope}" for scope in ("read", "write", "values", "admin")]
    key = new_key(server, f"--tenant={tenant}", *scopes)
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False)


def put_models(http: httpx.Client, own: str, mark: str) -> None:
    """Models in two spaces, with a mark in their texts; the name of one space is not its own."""
    for space in (own, "shared"):
        body = {"name": space, "layout": [{"name": f"{mark}.w", "shape": [10, 100]}]}
        http.post("/v1/spaces", json=body)
        for number in range(4):
            support = Support.from_indices(range(number, M, 7), M)
            path = f"/v1/spaces/{space}/supports/{mark}-m{number}"
            content, headers = support.to_bytes(), {"Content-Type": SUPPORT}
            http.put(path, content=content, headers=headers, params={"tag": [mark]})
            update = {"attributes": {mark: [mark]}, "source": f"hf://{mark}"}
            http.patch(path.replace("/supports/", "/models/"), json=update)


def fill(http: httpx.Client, own: str, mark: str) -> dict[str, list[str]]:
    """Data of other kinds, too; the names and ids that paths take."""
    put_models(http, own, mark)
    job = ok_id(http.post(f"/v1/spaces/{own}/jobs", json={"kind": "rebuild_buckets"}))
    clustering = http.post(f"/v1/spaces/{own}/clusterings", json={}).json().get("id", "gone")
    source: dict[str, Any] = {"kind": "huggingface", "space": own, "secret": "a long secret"}
    source["exclude"] = [f"{mark}/*"]
    subscription = {"url": "http://93.184.216.34/", "events": ["support.stored"]}
    subscription |= {"description": mark}
    http.put(f"/v1/spaces/{own}/merges/{mark}", json={"members": [f"{mark}-m0"], "min_members": 1})
    return {
        "space": [own, "shared"],
        "job": [job],
        "clustering": [clustering, "latest"],
        "source": [ok_id(http.post("/v1/sources", json=source))],
        "subscription": [ok_id(http.post("/v1/subscriptions", json=subscription))],
        "prefix": [http.get("/v1/keys").json()["items"][0]["prefix"]],
    }


def ok_id(answer: httpx.Response) -> str:
    """The id of what was made."""
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def all_of(http: httpx.Client, names: dict[str, list[str]]) -> list[Any]:
    """All that a tenant can read of its data, but for the last event with a wrong secret."""
    paths = ["/v1/sources", "/v1/spaces", "/v1/subscriptions", "/v1/jobs"]
    for space in names["space"]:
        paths += [f"/v1/spaces/{space}", f"/v1/spaces/{space}/models", f"/v1/spaces/{space}/merges"]
    found = [ok(http.get(path)) for path in paths]
    for source in found[0]["items"]:
        source.pop("last_refusal")  # a hook is open to all who know its address
    return found


def test_requests_of_any_caller_at_random(server: Server, figure: Figure) -> None:
    """None is answered with a 5xx but the 507 of a quota, none but the victim's own shows a text of
    the victim, and what it has is afterwards what it was.
    """
    count = repetitions(100_000, few=250)
    answered: Counter[int] = Counter()
    operations: set[str] = set()
    with (
        client(server, "victim") as victim,
        client(server, "asker") as asker,
        httpx.Client(base_url=server.url, timeout=60, trust_env=False) as keyless,
    ):
        foreign = fill(victim, "victims", MARK)
        before = all_of(victim, foreign)
        own = fill(asker, "mine", "own")
        own["prefix"] = []  # the asker goes on with its key
        known = {name: own[name] + foreign[name] for name in own}
        models = {"model": ["own-m0", "own-m1", "own-m9"], "members": ["own-m0"]}
        names = {**known, **models, "target": models["model"], "a": ["own-m0"], "b": ["own-m1"]}
        generator = Generator(SEED, names)
        for number in range(count):
            if number % 500 == 499:
                put_models(asker, "mine", "own")
            caller = keyless if number % 4 == 0 else asker
            operation, request = generator.request()
            answer = caller.request(**request)
            shown = f"seed {SEED}, request {number}: {operation} {request}: {answer.text[:500]}"
            answered[answer.status_code] += 1
            operations.add(operation)
            if answer.status_code >= 500:
                refused = answer.status_code, answer.json().get("code")
                assert (507, "quota_exceeded") == refused, shown
            assert MARK not in answer.text + str(answer.headers), shown
            if caller is keyless and operation not in {"livez", "readyz"}:
                assert not answer.is_success, shown
        assert before == all_of(victim, foreign)
    most = ", ".join(f"{many:,} {status}" for status, many in answered.most_common(6))
    figure(
        f"{count:,} requests to {len(operations)} operations: {most}, {answered[507]:,} a 507 of a "
        f"quota, no other 5xx, seed {SEED}"
    )
