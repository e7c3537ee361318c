"""A service below a path of a proxy: every address that it answers leads through the proxy."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

import modelkin
from app.settings import Settings
from tests.support.servers.server_process import Server

PREFIX = "/hubs/kin"


class Proxy(BaseHTTPRequestHandler):
    """Answers below the prefix from the service, and 404 elsewhere."""

    service: str
    cuts: bool

    def answer(self) -> None:
        """Pass one request on, and its answer back."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path[len(PREFIX) :] if self.cuts else self.path
        if self.path.startswith(f"{PREFIX}/"):
            found = httpx.request(
                self.command,
                self.service + path,
                content=body,
                headers=dict(self.headers),
                timeout=60,
                trust_env=False,
                verify=False,  # it loads no certificates, which took most of the time
            )
        else:
            found = httpx.Response(404, text="not below the prefix")
        self.send_response(found.status_code)
        for name, value in found.headers.multi_items():
            if name not in {"content-encoding", "transfer-encoding", "content-length", "date"}:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(found.content)))
        self.end_headers()
        self.wfile.write(found.content)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """The log of a test stays empty."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that knows its prefix."""
    server = Server(tmp_path_factory.mktemp("prefixed"), f"--root-path={PREFIX}/").start()
    yield server
    server.kill()


@pytest.fixture(scope="module", params=["cut", "left"])
def url(request: pytest.FixtureRequest, service: Server) -> Iterator[str]:
    """The address behind a proxy that cuts the prefix off, and behind one that leaves it."""
    handler = type("Handler", (Proxy,), {"service": service.url, "cuts": request.param == "cut"})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}{PREFIX}"
        server.shutdown()


@pytest.fixture
def space(url: str, request: pytest.FixtureRequest) -> str:
    """A space with three models, put by the SDK through the proxy."""
    name = "left" if "left" in request.node.name else "cut"
    with modelkin.Client(url) as client:
        client.ensure_space(name, num_parameters=1000)
        for at in range(3):
            support = modelkin.Support.from_indices(range(at, 500 + at), 1000)
            client.put_support(name, f"org/m {at}", support)
    return name


def test_the_sdk_works_through_the_proxy(url: str, space: str) -> None:
    """Storing, asking, and pages by cursor."""
    with modelkin.Client(url) as client:
        found = client.neighbors(space, "org/m 0", k=2)
        assert ["org/m 1", "org/m 2"] == [neighbor.model for neighbor in found]
    pages = [httpx.get(f"{url}/v1/spaces/{space}/models?limit=2", trust_env=False).json()]
    cursor = pages[0]["next_cursor"]
    again = f"{url}/v1/spaces/{space}/models?limit=2&cursor={cursor}"
    pages.append(httpx.get(again, trust_env=False).json())
    assert [2, 1] == [len(page["items"]) for page in pages]


def test_a_location_can_be_followed(url: str, space: str) -> None:
    """What a POST made is where its ``Location`` says, as a client resolves it."""
    body = {"name": f"{space}-made", "num_parameters": 9}
    made = httpx.post(f"{url}/v1/spaces", json=body, trust_env=False)
    target = httpx.URL(url).join(made.headers["Location"])
    assert body["name"] == httpx.get(target, trust_env=False).json()["name"]


@pytest.mark.slow
def test_every_link_of_the_explorer_leads_through_the_proxy(url: str, space: str) -> None:
    """Links, scripts and styles of the pages are all answered."""
    seen: set[str] = set()
    left = [f"{url}/", f"{url}/spaces/{space}", f"{url}/docs"]
    with httpx.Client(trust_env=False) as http:
        while left and len(seen) < 40:
            address = left.pop(0)
            seen.add(address)
            page = http.get(address)
            assert page.is_success, address
            if not page.headers["content-type"].startswith("text/html"):
                continue
            for target in re.findall(r'\s(?:href|src)="([^"#]+)', page.text):
                found = str(httpx.URL(address).join(target.replace("&amp;", "&")))
                if found.startswith("http://127.0.0.1") and found not in seen:
                    left.append(found)
    assert any("/assets/" in address or address.endswith(".css") for address in seen)
    assert any("org/m" in address for address in seen)


@pytest.mark.slow
def test_the_openapi_document_names_the_prefix(url: str) -> None:
    """A generated client sends its requests below the prefix."""
    document = httpx.get(f"{url}/openapi.json", trust_env=False).json()
    assert [{"url": PREFIX}] == document["servers"]
    script = httpx.get(f"{url}/docs/start.js", trust_env=False).text
    assert '"/openapi.json"' not in script


@pytest.mark.parametrize("path", ["modelkin", "/a b", "/a//b", "//evil.example", "/a?b", '/"x'])
def test_what_is_no_path_is_refused(path: str, tmp_path: Path) -> None:
    """It would be part of pages and headers."""
    with pytest.raises(ValueError, match="is not a path"):
        Settings(root_path=path, database_url=f"sqlite:///{tmp_path}/m.db")
