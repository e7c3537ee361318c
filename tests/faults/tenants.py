"""Two tenants of one service: one whose data has a mark, and one that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from modelkin import Support
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.http_space import SUPPORT, ok
from tests.support.servers.server_process import Server

if TYPE_CHECKING:
    from schemathesis import Response

__all__ = ["Tenants", "fill", "put_models", "require_allowed", "two_tenants"]

MARK = "quagga"
"""Is in all texts of the victim but two names that both tenants have; in no request of others."""
M = 1000


class Tenants(NamedTuple):
    """A service of two tenants.

    Attributes:
        server: the service; it asks for keys.
        asker: HTTP with a key of the one who asks.
        foreign: the names and ids of what the other one has, the victim.
    """

    server: Server
    asker: httpx.Client
    foreign: dict[str, list[str]]


@contextmanager
def two_tenants(folder: Path) -> Iterator[Tenants]:
    """Two tenants for the duration of the block, at whose end the victim has what it had."""
    server = Server(folder, "--auth=required", "--embedded-worker=off").start()
    try:
        with _client(server, "victim") as victim, _client(server, "asker") as asker:
            foreign = fill(victim, "victims", MARK)
            before = _all_of(victim, foreign)
            yield Tenants(server, asker, foreign)
            assert before == _all_of(victim, foreign)
    finally:
        server.kill()


def require_allowed(
    operation: str, answer: httpx.Response | Response, *, keyless: bool, shown: str
) -> None:
    """Fail where the asker, or a request without a key, gets what it may not.

    None is a 5xx but the 507 of a quota, none shows a text of the victim, and none without a key is
    a success but those of the probes.

    Args:
        operation: the id of what was asked.
        answer: by either client of HTTP.
        keyless: whether the request had no key.
        shown: what a failure names.
    """
    if answer.status_code >= 500:
        assert (507, "quota_exceeded") == (answer.status_code, answer.json().get("code")), shown
    assert MARK.encode() not in answer.content + str(answer.headers).encode(), shown
    if keyless and operation not in {"livez", "readyz"}:
        assert answer.status_code >= 400, shown


def _client(server: Server, tenant: str) -> httpx.Client:
    """HTTP with a key of a tenant, of all scopes but the operator's."""
    scopes = [f"--scope={scope}" for scope in ("read", "write", "values", "admin")]
    key = new_key(server, f"--tenant={tenant}", *scopes)
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False)


def put_models(http: httpx.Client, own: str, mark: str) -> None:
    """Models in two spaces, with a mark in their texts; one space and one model have
    names that are not its own.
    """
    for space in (own, "shared"):
        body = {"name": space, "layout": [{"name": f"{mark}.w", "shape": [10, 100]}]}
        http.post("/v1/spaces", json=body)
        for number, name in enumerate((f"{mark}-m0", f"{mark}-m1", f"{mark}-m2", "both")):
            support = Support.from_indices(range(number, M, 7), M)
            path = f"/v1/spaces/{space}/supports/{name}"
            content, headers = support.to_bytes(), {"Content-Type": SUPPORT}
            http.put(path, content=content, headers=headers, params={"tag": [mark]})
            update = {"attributes": {mark: [mark]}, "source": f"hf://{mark}"}
            http.patch(path.replace("/supports/", "/models/"), json=update)


def fill(http: httpx.Client, own: str, mark: str) -> dict[str, list[str]]:
    """Data of other kinds, too; the names and ids that paths take."""
    put_models(http, own, mark)
    job = _ok_id(http.post(f"/v1/spaces/{own}/jobs", json={"kind": "rebuild_buckets"}))
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
        "source": [_ok_id(http.post("/v1/sources", json=source))],
        "subscription": [_ok_id(http.post("/v1/subscriptions", json=subscription))],
        "prefix": [http.get("/v1/keys").json()["items"][0]["prefix"]],
    }


def _ok_id(answer: httpx.Response) -> str:
    """The id of what was made."""
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def _all_of(http: httpx.Client, names: dict[str, list[str]]) -> list[Any]:
    """All that a tenant can read of its data, but for the last event with a wrong secret."""
    paths = ["/v1/sources", "/v1/spaces", "/v1/subscriptions", "/v1/jobs"]
    for space in names["space"]:
        paths += [f"/v1/spaces/{space}", f"/v1/spaces/{space}/models", f"/v1/spaces/{space}/merges"]
    found = [ok(http.get(path)) for path in paths]
    for source in found[0]["items"]:
        source.pop("last_refusal")  # a hook is open to all who know its address
    return found
