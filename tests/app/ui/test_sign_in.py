"""Sign-in: a key becomes a cookie that opens pages and the API, for this service's pages alone."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from app.ui.sign_in_cookie import COOKIE, own_path
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.servers.server_process import Server

OWN = {"Sec-Fetch-Site": "same-origin"}
BROWSER = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys."""
    running = Server(tmp_path_factory.mktemp("locked"), "--auth=required", "--rate-limit=60")
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
    assert "max-age" not in cookie
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
        client.cookies.set(COOKIE, new_key(locked))
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
    """The cookie is gone, and pages ask for a key again."""
    visitor.cookies.set(COOKIE, new_key(locked))
    answer = visitor.post("/sign-out")
    assert (303, "/sign-in") == (answer.status_code, answer.headers["Location"])
    assert "max-age=0" in answer.headers["Set-Cookie"].lower()


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
