"""Sign-in: a key begins a session, whose cookie opens pages and the API, for own pages alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie

import httpx
import pytest
from fastapi import Request, Response
from sqlalchemy import select

from app.infra.db.database import Database
from app.infra.db.tables.tenants import VisitorSessionRow
from app.ui import sign_in_cookie
from app.ui.sign_in_cookie import COOKIE, own_path
from tests.app.tenancy.auth.test_keys import keys, new_key
from tests.support.servers.server_process import Server

OWN = {"Sec-Fetch-Site": "same-origin"}
BROWSER = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys."""
    running = Server(tmp_path_factory.mktemp("locked"), "--auth=required", "--rate-limit=60")
    yield running.start()
    assert running.stop() == 0


@pytest.fixture(scope="module")
def other(locked: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Another service on the same database, with sessions of a minute."""
    running = Server(tmp_path_factory.mktemp("other"), "--auth=required", "--session-seconds=60")
    running.database_url, running.blobs = locked.database_url, locked.blobs
    yield running.start()
    assert running.stop() == 0


@pytest.fixture
def visitor(locked: Server) -> Iterator[httpx.Client]:
    """A browser without a session."""
    with httpx.Client(base_url=locked.url, trust_env=False, headers=OWN) as client:
        yield client


def sign_in(visitor: httpx.Client, key: str, wanted: str = "/") -> httpx.Response:
    """Send the form."""
    return visitor.post("/sign-in", data={"key": key, "next": wanted})


def token(server: Server, key: str | None = None) -> str:
    """The token of a new session."""
    with httpx.Client(base_url=server.url, trust_env=False, headers=OWN) as client:
        assert 303 == sign_in(client, key or new_key(server)).status_code
        return str(client.cookies[COOKIE])


def sent(cookies: Mapping[str, str]) -> dict[str, str]:
    """The headers of a page of this service, with cookies."""
    return {**OWN, "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}


def test_a_page_without_a_key_asks_for_one(visitor: httpx.Client) -> None:
    """It remembers what was wanted, and a browser shows no dialog of its own."""
    answer = visitor.get("/spaces/x?q=a", headers=BROWSER)
    assert 401 == answer.status_code
    assert "WWW-Authenticate" not in answer.headers
    assert 'name="next" value="/spaces/x?q=a"' in answer.text
    assert 'role="alert"' not in answer.text
    assert "<code>python -m app keys create</code>" in answer.text


def test_a_key_opens_pages_and_the_api(locked: Server, visitor: httpx.Client) -> None:
    """The cookie is kept from scripts and other sites, and no address holds the key."""
    key = new_key(locked)
    answer = sign_in(visitor, key, "/spaces/x?q=a")
    assert (303, "/spaces/x?q=a") == (answer.status_code, answer.headers["Location"])
    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "max-age" not in cookie.partition("modelkin_key")[0]
    assert key not in str(answer.headers)
    assert 200 == visitor.get("/").status_code
    assert "Sign out" in visitor.get("/").text
    assert 200 == visitor.get("/v1/spaces").status_code
    made = visitor.post("/v1/spaces", json={"name": "made-here", "num_parameters": 10})
    assert 201 == made.status_code
    assert "no-store" == visitor.get("/").headers["Cache-Control"]


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "none"}, {"Origin": "null"}], ids=str)
def test_a_session_changes_things_from_own_pages_alone(
    locked: Server, headers: dict[str, str]
) -> None:
    """A request that does not say that a page of this service sent it, is one without a key."""
    with httpx.Client(base_url=locked.url, trust_env=False) as client:
        client.cookies.set(COOKIE, token(locked))
        assert 200 == client.get("/v1/spaces").status_code
        body = {"name": "forged", "num_parameters": 10}
        answer = client.post("/v1/spaces", json=body, headers=headers)
        assert answer.status_code in {401, 403}
        assert 404 == client.get("/v1/spaces/forged").status_code


def test_a_wrong_key_is_said(visitor: httpx.Client) -> None:
    """On the page, next to its field, and nothing begins."""
    answer = sign_in(visitor, "mk_wrong")
    assert 401 == answer.status_code
    assert "This is not a modelkin key" in answer.text
    assert "mk_wrong" not in answer.text
    assert "Set-Cookie" not in answer.headers
    assert "No key was entered" in sign_in(visitor, " ").text


def test_signing_out_ends_the_session(locked: Server, visitor: httpx.Client) -> None:
    """The cookie is gone, its token opens nothing any more, and pages ask for a key again."""
    kept = token(locked)
    visitor.cookies.set(COOKIE, kept)
    assert 200 == visitor.get("/").status_code
    answer = visitor.post("/sign-out")
    assert (303, "/sign-in") == (answer.status_code, answer.headers["Location"])
    assert "max-age=0" in answer.headers["Set-Cookie"].lower()
    visitor.cookies.set(COOKIE, kept)
    page = visitor.get("/", headers=BROWSER)
    assert (401, True) == (page.status_code, "This session is over: sign in again." in page.text)
    assert 401 == visitor.get("/v1/spaces").status_code
    assert 303 == visitor.post("/sign-out").status_code


def test_signing_in_again_ends_the_session_before(locked: Server, visitor: httpx.Client) -> None:
    """Its cookie is replaced, so its visitor could not sign out of it any more."""
    sign_in(visitor, new_key(locked))
    before = {COOKIE: visitor.cookies[COOKIE]}
    assert 401 == sign_in(visitor, "mk_wrong").status_code
    assert 200 == httpx.get(f"{locked.url}/v1/spaces", headers=sent(before)).status_code
    sign_in(visitor, new_key(locked))
    assert 401 == httpx.get(f"{locked.url}/v1/spaces", headers=sent(before)).status_code
    assert 200 == visitor.get("/v1/spaces").status_code


def test_signing_out_holds_in_every_process(locked: Server, other: Server) -> None:
    """Two services on one database: a session of one is one of the other, until one ends it."""
    cookies = {COOKIE: token(locked)}
    urls = [f"{each.url}/v1/spaces" for each in (locked, other)]
    assert [200, 200] == [httpx.get(url, headers=sent(cookies)).status_code for url in urls]
    httpx.post(f"{other.url}/sign-out", headers=sent(cookies))
    assert [401, 401] == [httpx.get(url, headers=sent(cookies)).status_code for url in urls]


def test_a_session_lasts_as_long_as_is_set(locked: Server, other: Server) -> None:
    """Twelve hours by default."""
    with closing(Database(locked.database_url, timeout=5)) as database:
        for server, seconds in ((locked, 43_200), (other, 60)):
            before = datetime.now(UTC)
            token(server)
            after = datetime.now(UTC)
            with database.reading() as session:
                newest = select(VisitorSessionRow).order_by(VisitorSessionRow.id.desc()).limit(1)
                ends = session.scalars(newest).one().expires_at - timedelta(seconds=seconds)
            assert before <= ends <= after


def test_a_session_ends_with_its_key(locked: Server) -> None:
    """Revoking the key ends it at once, and no other key's session."""
    key = new_key(locked)
    ended, others = {COOKIE: token(locked, key)}, {COOKIE: token(locked)}
    assert 0 == keys(locked.database_url, "revoke", key[:11]).returncode
    url = f"{locked.url}/v1/spaces"
    assert 401 == httpx.get(url, headers=sent(ended)).status_code
    assert 200 == httpx.get(url, headers=sent(others)).status_code


def test_a_cookie_of_an_old_version_opens_nothing(locked: Server) -> None:
    """It held the key itself: signing in deletes it, and so does signing out."""
    key = new_key(locked)
    for name in ("modelkin_key", COOKIE):
        answer = httpx.get(f"{locked.url}/", headers={**BROWSER, **sent({name: key})})
        assert (401, True) == (answer.status_code, "<h1>Sign in</h1>" in answer.text)
    with httpx.Client(base_url=locked.url, trust_env=False, headers=OWN) as client:
        client.cookies.set("modelkin_key", key, domain="127.0.0.1")
        sign_in(client, key)
        assert [COOKIE] == list(client.cookies)
        client.cookies.set("modelkin_key", key, domain="127.0.0.1")
        client.post("/sign-out")
        assert [] == list(client.cookies)


def test_a_token_is_no_key(locked: Server) -> None:
    """As Bearer or Basic it opens nothing."""
    shown = token(locked)
    for headers in ({"Authorization": f"Bearer {shown}"}, sent({"modelkin_key": shown})):
        assert 401 == httpx.get(f"{locked.url}/v1/spaces", headers=headers).status_code


@pytest.mark.parametrize(
    ("scheme", "prefix", "name", "is_secure"),
    [
        ("http", "", "modelkin_session", False),
        ("http", "/kin", "modelkin_session", False),
        ("https", "", "__Host-modelkin_session", True),
        ("https", "/kin", "modelkin_session", True),
    ],
)
def test_a_cookie_belongs_to_the_service_alone(
    scheme: str, prefix: str, name: str, is_secure: bool
) -> None:
    """Behind TLS no other host can set it; below a path no neighbour gets it."""
    scope = {"type": "http", "scheme": scheme, "app_root_path": prefix, "headers": []}
    begun, ended = Response(), Response()
    sign_in_cookie.begin(Request(scope), begun, "t")
    sign_in_cookie.end(Request(scope), ended)
    for answer in (begun, ended):
        cookie = SimpleCookie(answer.headers.getlist("set-cookie")[0])[name]
        assert (prefix or "/", is_secure) == (cookie["path"], bool(cookie["secure"]))
        assert (True, "strict") == (cookie["httponly"], cookie["samesite"])
    asked = {**scope, "headers": [(b"cookie", f"{COOKIE}=planted; {name}=t".encode())]}
    assert "t" == sign_in_cookie.token(asked)


@pytest.mark.parametrize("neighbour", ['a={"b": 1}', "a[b]=1", "a/b=1", "a=\xe9", "a", "path=/"])
def test_cookies_of_neighbours_hide_no_session(neighbour: str) -> None:
    """Whatever another service of the host has set, as on another port of localhost."""
    cookies = f"{neighbour}; {COOKIE}=t".encode("latin-1")
    scope = {"type": "http", "scheme": "http", "headers": [(b"cookie", cookies)]}
    assert "t" == sign_in_cookie.token(scope)


def test_a_link_of_another_site_opens_again(locked: Server) -> None:
    """A browser holds a strict cookie back there: the page reloads, and then it comes along."""
    with httpx.Client(base_url=locked.url, trust_env=False) as client:
        answer = client.get("/", headers={**BROWSER, "Sec-Fetch-Site": "cross-site"})
        assert 'http-equiv="refresh"' in answer.text
        assert "modelkin" in answer.text


def test_without_keys_nothing_of_it_shows(http: httpx.Client) -> None:
    """No form, and the address of the form leads to the start."""
    assert "Sign" not in http.get("/").text
    answer = http.get("/sign-in")
    assert (303, "/") == (answer.status_code, answer.headers["Location"])


@pytest.mark.parametrize(
    "path",
    ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "x", "", "/a\nb"],
)
def test_a_session_leads_to_own_pages_alone(path: str) -> None:
    """Whatever address the form was opened with."""
    assert "/" == own_path(path)
    assert "/spaces/x?q=a" == own_path("/spaces/x?q=a")


def test_wrong_keys_are_limited(locked: Server) -> None:
    """As many as anywhere else, and then this address tries no other: the last of these tests."""
    with httpx.Client(base_url=locked.url, trust_env=False, headers=OWN) as client:
        statuses = [sign_in(client, f"mk_{number}").status_code for number in range(70)]
        assert 429 == statuses[-1]
        assert 401 == statuses[0]
