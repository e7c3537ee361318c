"""URLs of requests: resolving their hosts delays no other request."""

from __future__ import annotations

import threading
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


class Silence:
    """A resolver that says nothing until it is over, then that no host is known."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._over = threading.Event()

    def resolve(self, host: str, port: int) -> list[str]:
        """Wait until the silence is over; no host has an address."""
        self.asked.set()
        self._over.wait(60)
        return []

    def end(self) -> None:
        """Answer all who wait, and all who ask from now on."""
        self._over.set()


@pytest.fixture
def silence(app: AppHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silence]:
    """A silence that lasts until the test ends it, since who asks waits as long as it takes."""
    made = Silence()
    egress = app.services[Egress]
    addresses = egress.addresses
    monkeypatch.setattr(egress, "resolve", made.resolve)
    monkeypatch.setattr(
        egress, "addresses", lambda host, port, timeout: addresses(host, port, None)
    )
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "body"), [("subscriptions", SUBSCRIPTION), ("sources", SOURCE)])
def test_a_host_that_nobody_finds_is_in_no_other_tenants_way(
    app: AppHarness, silence: Silence, path: str, body: dict[str, Any]
) -> None:
    """While more hosts wait for turns than there are, other requests are answered.

    The waiting clients receive an error once nobody has found their hosts.
    """
    other = app.headers_of("another-tenant")
    with ThreadPoolExecutor(25) as pool:
        waiting = [pool.submit(app.http.post, f"/v1/{path}", json=body) for _ in range(24)]
        assert silence.asked.wait(30)
        for _ in range(5):
            answer = pool.submit(app.http.get, "/v1/spaces", headers=other)
            assert 200 == answer.result(30).status_code
        assert not any(answer.done() for answer in waiting)
        silence.end()
        answers = [answer.result() for answer in waiting]
    assert {422} == {answer.status_code for answer in answers}, answers[0].text
    assert "cannot be found" in answers[0].json()["detail"]


@pytest.mark.slow
def test_who_may_not_write_has_nothing_looked_up(app: AppHarness, silence: Silence) -> None:
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
    assert not silence.asked.is_set()
