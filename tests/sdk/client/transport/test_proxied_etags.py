"""Conditions on versions, behind proxies that change ETags when they compress."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from modelkin import Client, Subspace, SubspaceSpec, Support
from modelkin.errors import PreconditionError
from tests.support.servers.server_process import Server

SUPPORTS = [Support.from_indices(range(at, at + 300), 1000) for at in range(3)]
Renaming = Callable[[str], str]
PROXIES: dict[str, Renaming] = {
    "nginx": lambda tag: f"W/{tag}",
    "Apache": lambda tag: f'{tag[:-1]}-gzip"',
    "Apache, brotli, and a CDN": lambda tag: f'W/{tag[:-1]}-br"',
}


class Proxy(httpx.BaseTransport):
    """Carries requests to the service, and renames the ETags of its answers."""

    def __init__(self, rename: Renaming) -> None:
        self.sent: list[str] = []
        self._rename = rename
        self._network = httpx.HTTPTransport(trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent += request.headers.get_list("if-match")
        answer = self._network.handle_request(request)
        if "etag" in answer.headers:
            answer.headers["etag"] = self._rename(answer.headers["etag"])
        return answer

    def close(self) -> None:
        self._network.close()


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> Proxy:
    return Proxy(PROXIES[request.param])


@pytest.fixture
def space() -> str:
    return f"tags-{uuid.uuid4().hex[:8]}"


def changes(client: Client, space: str) -> dict[str, Callable[[str | None], Any]]:
    """All changes of a model that has a support."""
    return {
        "a support": lambda tag: client.put_support(space, "m", SUPPORTS[1], if_match=tag),
        "a patch": lambda tag: client.put_support(space, "m", SUPPORTS[2], if_match=tag),
        "attributes": lambda tag: client.models.update(
            space, "m", attributes={"seen": 1}, if_match=tag
        ),
        "a deletion": lambda tag: client.models.delete(space, "m", if_match=tag),
    }


def test_every_change_of_a_version_is_made(sqlite_server: Server, proxy: Proxy, space: str) -> None:
    """if_match with the etag of an answer replaces that version; and is the service's own tag."""
    with Client(sqlite_server.url, transport=proxy) as client:
        client.ensure_space(space, num_parameters=1000)
        client.put_support(space, "m", SUPPORTS[0])
        for what, change in changes(client, space).items():
            seen = client.models.get(space, "m")
            change(seen.etag)
            assert seen.etag == proxy.sent[-1], what
            assert not seen.etag.startswith("W/"), what
        assert [] == [model.model for model in client.models.list(space)]


def test_changes_of_a_signature(sqlite_server: Server, proxy: Proxy, space: str) -> None:
    """The same of a signature alone, and of its sketch."""
    with Client(sqlite_server.url, transport=proxy) as client:
        client.ensure_space(space, num_parameters=1000)
        seen = client.put_signature(space, "m", SUPPORTS[0].signature())
        client.sketches.put(space, "m", SUPPORTS[0].sketch(), if_match=seen.etag)
        seen = client.models.get(space, "m")
        client.put_signature(space, "m", SUPPORTS[1].signature(), if_match=seen.etag)
        assert seen.etag == proxy.sent[-1]


def test_changes_of_a_subspace(sqlite_server: Server, proxy: Proxy, space: str) -> None:
    """The same of a data subspace."""
    found = Subspace.of_basis(np.eye(4)[:, :2])
    with Client(sqlite_server.url, transport=proxy) as client:
        spec = SubspaceSpec(constant=0.0, weighting="flat", compare="whole")
        client.ensure_space(
            space, kind="subspaces", num_parameters=4, subspaces=spec, features="axes"
        )
        seen = client.subspaces.put(space, "m", found)
        assert seen.etag is not None
        client.subspaces.put(space, "m", found, if_match=seen.etag)
        assert [seen.etag] == proxy.sent


def test_a_tag_of_the_proxy_is_taken_too(sqlite_server: Server, proxy: Proxy, space: str) -> None:
    """A caller that read the header elsewhere gives it as it came."""
    with Client(sqlite_server.url, transport=proxy) as client:
        client.ensure_space(space, num_parameters=1000)
        seen = client.put_support(space, "m", SUPPORTS[0])
        assert seen.etag is not None
        raw = httpx.get(f"{sqlite_server.url}/v1/spaces/{space}/models/m", trust_env=False)
        assert seen.etag == raw.headers["etag"]
        for number, rename in enumerate(PROXIES.values()):
            given = rename(seen.etag or "")
            client.models.update(space, "m", attributes={"n": number}, if_match=given)
            assert seen.etag == proxy.sent[-1]
            seen = client.models.get(space, "m")


def test_a_version_that_has_changed_is_refused(
    sqlite_server: Server, proxy: Proxy, space: str
) -> None:
    """What is no longer the version is a 412 as before."""
    with Client(sqlite_server.url, transport=proxy) as client:
        client.ensure_space(space, num_parameters=1000)
        seen = client.put_support(space, "m", SUPPORTS[0])
        client.put_support(space, "m", SUPPORTS[1])
        with pytest.raises(PreconditionError, match="has changed"):
            client.put_support(space, "m", SUPPORTS[2], if_match=seen.etag)


def test_other_clients_learn_why(sqlite_server: Server, space: str) -> None:
    """The service compares strongly, as RFC 9110 asks, and says that a proxy weakened the tag."""
    with Client(sqlite_server.url) as client:
        client.ensure_space(space, num_parameters=1000)
        seen = client.put_support(space, "m", SUPPORTS[0])
    address = f"{sqlite_server.url}/v1/spaces/{space}/models/m"
    weak = {"If-Match": f"W/{seen.etag}"}
    refused = httpx.delete(address, headers=weak, trust_env=False)
    assert 412 == refused.status_code
    assert "a proxy has made weak: send it without W/" in refused.json()["detail"]
    known = httpx.get(address, headers={"If-None-Match": f"W/{seen.etag}"}, trust_env=False)
    assert 304 == known.status_code


def test_files_of_pages_are_known_by_weak_tags(sqlite_server: Server) -> None:
    """A browser behind such a proxy gets a 304 for what it has."""
    page = httpx.get(f"{sqlite_server.url}/", trust_env=False, follow_redirects=True).text
    asset = sqlite_server.url + page[page.index("/assets/") :].split('"')[0]
    tag = httpx.get(asset, trust_env=False).headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", W/{tag}'):
        again = httpx.get(asset, headers={"If-None-Match": known}, trust_env=False)
        assert 304 == again.status_code
