"""Subscriptions: created, shown, changed and refused."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select

from app.infra.db.database import Database
from app.infra.db.tables.webhooks import SubscriptionRow
from app.infra.storage.encryption import Secrets
from app.tenancy.auth.service import KeyService
from tests.support.app.harness import AppHarness, open_keyed_app
from tests.support.backends import SQLITE

URL = "http://127.0.0.1:9/events"
GOOD = {"url": URL, "events": ["support.stored"]}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """The service of this file."""
    with open_keyed_app(tmp_path_factory.mktemp("app"), SQLITE) as made:
        yield made


def test_a_subscription_is_made_and_shown(app: AppHarness) -> None:
    """201 with its id, its location and its secret, which no other answer contains."""
    app.create_space("shown")
    asked = {
        "url": URL,
        "events": ["neighbors.changed", "support.stored", "support.stored"],
        "space": "shown",
        "model": "org/a",
        "tag": "red",
        "threshold": 0.7,
        "description": "of the tests",
    }
    answer = app.http.post("/v1/subscriptions", json=asked)
    made = answer.json()
    assert (201, f"/v1/subscriptions/{made['id']}") == (
        answer.status_code,
        answer.headers["Location"],
    )
    secret = made.pop("secret")
    assert 32 == len(base64.b64decode(secret.removeprefix("whsec_")))
    assert made == app.webhooks.show(made)
    assert {**asked, "events": ["neighbors.changed", "support.stored"]} == {
        name: made[name] for name in asked
    }
    with app.services[Database].reading() as session:
        row = session.scalars(select(SubscriptionRow).where(SubscriptionRow.id == made["id"])).one()
        assert secret == app.services[Secrets].decrypt(row.secret)
        assert secret.encode() not in row.secret


def test_a_list_goes_on_where_it_ended(app: AppHarness) -> None:
    """The newest first, a page at a time."""
    made = [app.webhooks.subscribe(URL)["id"] for _ in range(5)]
    ids: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = app.http.get("/v1/subscriptions", params={"limit": 2, **cursor}).json()
        ids += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert made[::-1] == ids[:5]
    assert len(ids) == len(set(ids))


def test_a_change_replaces_what_it_says(app: AppHarness) -> None:
    """Absent fields stay, null clears, and a threshold goes with its event type."""
    made = app.webhooks.subscribe(URL, "neighbors.changed", description="first", tag="red")
    path = f"/v1/subscriptions/{made['id']}"
    assert 0.5 == made["threshold"]
    kept = app.http.patch(path, json={}).json()
    assert made["updated_at"] == kept["updated_at"]
    changed = app.http.patch(path, json={"description": None, "threshold": 0.9}).json()
    assert (None, 0.9, "red", URL) == tuple(
        changed[k] for k in ("description", "threshold", "tag", "url")
    )
    changed = app.http.patch(path, json={"events": ["support.stored"]}).json()
    assert (["support.stored"], None) == (changed["events"], changed["threshold"])
    off = app.http.patch(path, json={"enabled": False}).json()
    assert (False, None) == (off["enabled"], off["disabled_reason"])
    assert 204 == app.http.delete(path).status_code
    assert 404 == app.http.get(path).status_code


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "receiver.example"}, "url"),
        ({"url": "ftp://receiver.example/"}, "url"),
        ({"url": "http://user:word@127.0.0.1/"}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, "url"),
        ({"url": "http://[::ffff:192.168.0.1]/"}, "url"),
        ({"url": "http://0xA000001/"}, "url"),
        ({"url": "http://127.0.0.1/\0"}, "url"),
        ({"url": "http://127.0.0.1/" + "a" * 2000}, "url"),
        ({"url": 7}, "url"),
        ({"events": []}, "events"),
        ({"events": ["ping"]}, "events"),
        ({"events": "support.stored"}, "events"),
        ({"events": ["support.stored"] * 17}, "events"),
        ({"threshold": 0.5}, "threshold"),
        ({"events": ["neighbors.changed"], "threshold": 0}, "threshold"),
        ({"events": ["neighbors.changed"], "threshold": 1.1}, "threshold"),
        ({"events": ["neighbors.changed"], "threshold": True}, "threshold"),
        ({"space": "No Space"}, "space"),
        ({"model": "a/../b"}, "model"),
        ({"tag": ""}, "tag"),
        ({"description": "a" * 2001}, "description"),
        ({"description": "\0"}, "description"),
        ({"secret": "whsec_mine"}, "secret"),
    ],
)
def test_what_makes_no_sense_is_refused(
    app: AppHarness, changes: dict[str, Any], field: str
) -> None:
    """On creation and on change, with the name of the field."""
    made = app.webhooks.subscribe(URL)
    for answer in (
        app.http.post("/v1/subscriptions", json={**GOOD, **changes}),
        app.http.patch(f"/v1/subscriptions/{made['id']}", json=changes),
    ):
        assert 422 == answer.status_code, answer.text
        assert field == answer.json()["errors"][0]["field"].partition("[")[0]
    assert made["updated_at"] == app.webhooks.show(made)["updated_at"]


def test_a_space_may_come_later(app: AppHarness) -> None:
    """As the space of a source, which its first model creates."""
    made = app.webhooks.subscribe(URL, space="still-nowhere")
    assert "still-nowhere" == app.webhooks.show(made)["space"]
    path = f"/v1/subscriptions/{made['id']}"
    changed = app.http.patch(path, json={"space": "nor-there"})
    assert (200, "nor-there") == (changed.status_code, changed.json()["space"])


def test_what_is_not_there_is_not_found(app: AppHarness) -> None:
    """Subscriptions and deliveries, with any text in place of their ids."""
    made = app.webhooks.subscribe(URL)
    path = f"/v1/subscriptions/{made['id']}"
    for name in ("x", "%00", "é", made["id"][:-1], made["id"].replace("-", "0"), "0" * 36):
        answer = app.http.get(f"/v1/subscriptions/{name}")
        assert (404, "subscription_not_found") == (answer.status_code, answer.json()["code"])
        answer = app.http.get(f"{path}/deliveries/{name}")
        assert (404, "delivery_not_found") == (answer.status_code, answer.json()["code"])


def test_a_key_that_may_only_read(app: AppHarness) -> None:
    """It shows subscriptions, without secrets, and changes none."""
    made = app.webhooks.subscribe(URL)
    with app.services[Database].writing() as session:
        key = app.services[KeyService].create(session, "default", scopes=["read"])
    reader = {"Authorization": f"Bearer {key}"}
    path = f"/v1/subscriptions/{made['id']}"
    seen = app.http.get(path, headers=reader)
    assert 200 == seen.status_code
    assert "whsec_" not in seen.text
    for method, tail in (("POST", "/ping"), ("POST", "/rotate-secret"), ("DELETE", "")):
        assert 403 == app.http.request(method, path + tail, headers=reader).status_code
