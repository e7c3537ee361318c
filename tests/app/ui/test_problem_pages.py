"""Errors as pages, for people; as problem documents, for programs."""

from __future__ import annotations

import httpx
import pytest
from fastapi.testclient import TestClient

from app.container import Container
from app.main import create_app
from tests.support.fixtures import on_one_database

pytestmark = on_one_database


@pytest.mark.parametrize(
    ("path", "accept", "is_page"),
    [
        ("/nowhere", "text/html,application/xhtml+xml;q=0.9", True),
        ("/nowhere", "*/*", False),
        ("/v1/spaces/nowhere", "text/html", False),
        ("/spaces/nowhere", "*/*", True),
        ("/spaces/nowhere/completions", "application/json", False),
        ("/assets/0/nothing.js", "text/html", False),
    ],
)
def test_errors_are_pages_for_those_who_asked_for_one(
    http: httpx.Client, path: str, accept: str, is_page: bool
) -> None:
    """And problem documents for programs."""
    answer = http.get(path, headers={"Accept": accept})
    assert 404 == answer.status_code
    kind = "text/html; charset=utf-8" if is_page else "application/problem+json"
    assert kind == answer.headers["Content-Type"]


def broken() -> None:
    """An endpoint with a bug."""
    raise ZeroDivisionError


def test_a_bug_is_a_page_that_works(services: Container) -> None:
    """It names the request, and may load its own styles; what went wrong is not shown."""
    app = create_app(services)
    app.add_api_route("/broken", broken)
    with TestClient(app, "http://localhost", raise_server_exceptions=False) as client:
        answer = client.get("/broken", headers={"Accept": "text/html"})
        assert "application/problem+json" == client.get("/broken").headers["Content-Type"]
    assert 500 == answer.status_code
    assert answer.headers["X-Request-Id"] in answer.text
    assert "style-src 'nonce-" in answer.headers["Content-Security-Policy"]
    assert "ZeroDivision" not in answer.text
