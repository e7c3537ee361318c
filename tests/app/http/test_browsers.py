"""What pages elsewhere cannot do through a visitor's browser, and what answers say to browsers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from app.infra.http.middleware.browser import BrowserMiddleware
from app.ui import api_docs
from app.ui.assets import PREFIX
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.declared_problems import checked
from tests.support.http_space import Space
from tests.support.provocations import SUBSCRIPTION
from tests.support.servers.server_process import Server, raw_exchange

NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PLACES = ("/", "/docs", "/v1/spaces", "/livez", "/openapi.json", "/nowhere", "/spaces/nowhere")


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service without keys."""
    running = Server(tmp_path_factory.mktemp("open"), "--egress-allow=127.0.0.1").start()
    with checked(httpx.Client(base_url=running.url, timeout=60, trust_env=False)) as client:
        yield client
    assert running.stop() == 0


@pytest.fixture
def path(http: httpx.Client) -> str:
    """The path of a space."""
    return f"/v1/spaces/{Space(http).name}"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys and limits rates."""
    running = Server(
        tmp_path_factory.mktemp("locked"), "--auth=required", "--rate-limit=1000"
    ).start()
    yield running
    assert running.stop() == 0


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["rebound.example", "rebound.example:{port}", "localhost.rebound.example", "127.0.0.1.nip.io",
     "192.168.0.1", "[::2]:{port}", "[::1", "-",
     "localhost/@evil", "localhost:65536", "evil@localhost"],
)  # fmt: skip
def test_without_keys_another_name_is_refused(http: httpx.Client, path: str, host: str) -> None:
    """A page that rebinds its own name to this address reads nothing and deletes nothing."""
    named = host.format(port=http.base_url.port)
    for method, place in (
        ("GET", "/v1/spaces"),
        ("GET", "/"),
        ("DELETE", path),
    ):
        answer = http.request(method, place, headers={"Host": named})
        assert (421, "misdirected") == (answer.status_code, answer.json()["code"]), answer.text
        assert "localhost" in answer.json()["detail"]
    assert http.get(path).is_success


def test_a_request_without_a_name_is_refused(http: httpx.Client) -> None:
    """HTTP/1.0 may leave the Host out; no browser and no client of today does."""
    answer = raw_exchange(str(http.base_url), b"GET /v1/spaces HTTP/1.0\r\n\r\n", close=True)
    assert answer.startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:{port}", "127.0.0.1:{port}", "127.8.9.1", "[::1]:{port}"]
)
def test_without_keys_this_machine_is_answered(http: httpx.Client, host: str) -> None:
    """Names that only this machine can resolve to itself, with and without a port."""
    named = host.format(port=http.base_url.port)
    assert http.get("/v1/spaces", headers={"Host": named}).is_success


@pytest.mark.parametrize("listening", ["2001:DB8:0:0::1", "2001:db8::1"])
def test_an_address_is_one_however_it_is_written(listening: str) -> None:
    """A service without keys answers to the address that it was set to listen on."""
    app = BrowserMiddleware(PlainTextResponse("an answer"), host=listening)
    for host in ("[2001:db8::1]:8000", "[2001:DB8:0:0::1]"):
        assert "an answer" == TestClient(app).get("/", headers={"Host": host}).text


@pytest.mark.parametrize("host", ["localhost/@evil", "", "evil@localhost", "localhost:65536"])
def test_with_keys_a_name_is_a_name(locked: Server, host: str) -> None:
    """What is no name and port is refused: addresses that pages show would lead elsewhere."""
    answer = httpx.get(f"{locked.url}/v1/spaces", headers={"Host": host}, trust_env=False)
    assert (421, "misdirected") == (answer.status_code, answer.json()["code"])


def test_with_keys_any_name_is_answered(locked: Server) -> None:
    """A page that rebinds its name has no key; a service behind a proxy has many names."""
    headers = {"Authorization": f"Bearer {new_key(locked)}", "Host": "models.example.com"}
    assert httpx.get(f"{locked.url}/v1/spaces", headers=headers, trust_env=False).is_success


# --- other origins ------------------------------------------------------------------------------

ELSEWHERE = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},  # another port of localhost, a sibling of the domain
    {"Sec-Fetch-Site": "cross-site", "Origin": "{own}"},
    {"Sec-Fetch-Site": "unheard-of"},
    {"Origin": "https://elsewhere.example"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "null"},
]
HERE = [
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "{own}"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "{own}"},
]


def sent(http: httpx.Client, headers: dict[str, str]) -> dict[str, str]:
    """Headers with this service's own origin filled in."""
    own = f"http://127.0.0.1:{http.base_url.port}"
    return {name: value.format(own=own) for name, value in headers.items()}


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_another_origin_changes_nothing(
    http: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    """A page elsewhere rotates no secret and deletes no space; what it reads, it cannot see."""
    subscription = http.post("/v1/subscriptions", json=SUBSCRIPTION).json()
    rotate = f"/v1/subscriptions/{subscription['id']}/rotate-secret"
    try:
        for method, place in (
            ("POST", rotate),
            ("DELETE", path),
            ("OPTIONS", rotate),
        ):
            answer = http.request(method, place, headers=sent(http, headers))
            assert (403, "cross_site") == (answer.status_code, answer.json()["code"]), answer.text
        unchanged = http.get(f"/v1/subscriptions/{subscription['id']}").json()
        assert unchanged["updated_at"] == subscription["updated_at"]
        assert http.get(path, headers=sent(http, headers)).is_success
    finally:
        http.delete(f"/v1/subscriptions/{subscription['id']}")


@pytest.mark.parametrize("headers", HERE, ids=str)
def test_its_own_pages_and_programs_change_things(
    http: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    """The same origin, the visitor's own hand, and what is no browser."""
    answer = http.delete(path, headers=sent(http, headers))
    assert answer.is_success, answer.text


def test_a_page_without_an_origin_is_no_namesake(locked: Server) -> None:
    """A sandboxed page, whose Origin is null, passes for none of the service's own."""
    headers = {"Origin": "null", "Host": "null"}
    answer = httpx.post(f"{locked.url}/v1/spaces", json={}, headers=headers)
    assert (403, "cross_site") == (answer.status_code, answer.json()["code"])


def test_a_key_that_a_browser_adds_is_of_no_use_elsewhere(locked: Server) -> None:
    """Basic credentials come along by themselves: what comes cross-site is refused before them."""
    auth = httpx.BasicAuth("anyone", new_key(locked))
    for headers in ELSEWHERE[:2]:
        answer = httpx.post(
            f"{locked.url}/v1/spaces",
            json={"name": "a", "num_parameters": 10},
            auth=auth,
            headers=headers,
            trust_env=False,
        )
        assert (403, "cross_site") == (answer.status_code, answer.json()["code"])


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", PLACES)
def test_every_answer_closes_what_it_does_not_need(http: httpx.Client, path: str) -> None:
    """Pages name what they are made of; everything else loads, frames and runs nothing."""
    headers = http.get(path).headers
    assert "nosniff" == headers["X-Content-Type-Options"]
    assert "no-referrer" == headers["Referrer-Policy"]
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?:|\*", policy)
    if headers["Content-Type"] != "text/html; charset=utf-8":
        assert policy == NOTHING


@pytest.mark.parametrize("path", ["/", "/spaces/nowhere"])
def test_a_page_runs_what_carries_its_nonce(http: httpx.Client, path: str) -> None:
    """The nonce is another one each time, and no script, style or handler stands in the page."""
    answers = [http.get(path) for _ in range(2)]
    nonces = [
        set(re.findall("'nonce-([^']{20,})'", answer.headers["Content-Security-Policy"]))
        for answer in answers
    ]
    assert [1, 1] == [len(each) for each in nonces]
    assert nonces[0].isdisjoint(nonces[1])
    for answer, (nonce,) in zip(answers, nonces, strict=True):
        loaded = re.findall(r"<(?:script|link)\b[^>]*>", answer.text)
        assert all(f'nonce="{nonce}"' in tag or 'rel="icon"' in tag for tag in loaded)
        assert not re.findall(r"<script\b[^>]*>[^<]", answer.text)
        assert not re.search(r"<style|style=|\son[a-z]+=|javascript:", answer.text)


def test_what_a_key_opened_is_stored_nowhere(locked: Server) -> None:
    """Neither a browser nor a proxy keeps what the next one at this machine must not see."""
    headers = {"Authorization": f"Bearer {new_key(locked)}"}
    with httpx.Client(base_url=locked.url, trust_env=False) as http:
        for path in ("/", "/v1/spaces", "/v1/spaces/nowhere", "/spaces/nowhere"):
            answer = http.get(path, headers=headers)
            assert "no-store" == answer.headers.get("Cache-Control"), (path, answer, answer.text)
        for path in ("/docs/swagger-ui.css", f"{PREFIX}/page.js", "/livez", "/v1/spaces"):
            assert "no-store" != http.get(path).headers.get("Cache-Control"), path


# --- the API's page -----------------------------------------------------------------------------

# Of `swagger-ui-dist` 5.34.0, as its authors publish it.
SWAGGER_UI = {
    "swagger-ui-bundle.js": "3f6abf70480db7e07914df4c98a77385f22ea585eaf457a3e6415ba0eae2d167",
    "swagger-ui.css": "c3cfe8248c4b0b89673600fb829924eafbac6de4bc4b2b06f5f5243483074d0a",
}


@pytest.mark.parametrize("name", SWAGGER_UI)
def test_the_package_has_the_files_of_swagger_ui(name: str) -> None:
    """What runs on the page is what the authors of Swagger UI published, byte for byte."""
    assert SWAGGER_UI[name] == hashlib.sha256((api_docs.FILES / name).read_bytes()).hexdigest()


def test_there_is_one_page_of_the_api(http: httpx.Client) -> None:
    """``/docs`` and its own files are there, each of its type; ``/redoc`` is not."""
    types = {}
    for path in ["/docs", *re.findall(r'(?:src|href)="(/docs/[^"]*)"', http.get("/docs").text)]:
        answer = http.get(path)
        types[path] = answer.status_code, answer.headers["Content-Type"].partition(";")[0]
    assert types == {
        "/docs": (200, "text/html"),
        "/docs/swagger-ui.css": (200, "text/css"),
        "/docs/page.css": (200, "text/css"),
        "/docs/swagger-ui-bundle.js": (200, "text/javascript"),
        "/docs/start.js": (200, "text/javascript"),
    }
    for gone in ("/redoc", "/docs/oauth2-redirect", "/docs/__init__.py"):
        assert 404 == http.get(gone).status_code


def test_the_apis_page_needs_no_key(locked: Server) -> None:
    """It says what the service can do, and holds nothing that is in it; it is not counted."""
    for path in ("/docs", "/docs/start.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"):
        answer = httpx.get(locked.url + path, trust_env=False)
        assert (200, False) == (answer.status_code, "RateLimit" in answer.headers)
