"""URLs of requests: resolving their hosts delays no other request."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.infra.db.database import Database
from app.infra.egress.client import Egress
from app.tenancy.auth.service import KeyService
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import SQLITE

SUBSCRIPTION = {"url": "http://slow.example/", "events": ["support.stored"]}
SOURCE = {"kind": "mlflow", "space": "s", "secret": "s", "url": "http://slow.example/"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that may hold a few connections at a time."""
    with open_keyed_app(tmp_path_factory.mktemp("reach"), SQLITE, database_pool_size=16) as made:
        yield made


@pytest.fixture
def silence(app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A resolver that says nothing until the test is over; set once it was asked."""
    asked, over = threading.Event(), threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        asked.set()
        over.wait(10)
        return []

    monkeypatch.setattr(app.services[Egress], "resolve", resolve)
    yield asked
    over.set()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "body"), [("subscriptions", SUBSCRIPTION), ("sources", SOURCE)])
def test_a_host_that_nobody_finds_is_in_no_other_tenants_way(
    app: AppHarness, silence: threading.Event, path: str, body: dict[str, Any]
) -> None:
    """While more hosts wait for turns than there are, other requests are answered at once.

    The waiting clients receive an error after some seconds.
    """
    other = app.headers_of("another-tenant")
    with ThreadPoolExecutor(24) as pool:
        waiting = [pool.submit(app.http.post, f"/v1/{path}", json=body) for _ in range(24)]
        assert silence.wait(5)
        time.sleep(0.2)
        began = time.monotonic()
        for _ in range(5):
            assert 200 == app.http.get("/v1/spaces", headers=other).status_code
        assert time.monotonic() - began < 1
        answers = [answer.result() for answer in waiting]
    assert {422} == {answer.status_code for answer in answers}, answers[0].text
    assert "cannot be found" in answers[0].json()["detail"]
    assert time.monotonic() - began < 6


@pytest.mark.slow
def test_who_may_not_write_has_nothing_looked_up(app: AppHarness, silence: threading.Event) -> None:
    """Without a key that may write there is no way to have names resolved."""
    with app.services[Database].writing() as session:
        key = app.services[KeyService].create(session, "default", scopes=["read"])
    for headers, status in (
        ({"Authorization": f"Bearer {key}"}, 403),
        ({"Authorization": ""}, 401),
    ):
        for path, body in (("subscriptions", SUBSCRIPTION), ("sources", SOURCE)):
            answer = app.http.post(f"/v1/{path}", json=body, headers=headers)
            assert status == answer.status_code
    assert not silence.is_set()
