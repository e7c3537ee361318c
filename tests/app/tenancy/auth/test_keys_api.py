"""/v1/keys: a tenant's own keys, made, listed with their last use, and revoked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.infra.db.tables.tenants import ApiKeyRow
from app.tenancy.auth import service as auth
from app.tenancy.auth.service import Authenticator, KeyService
from tests.support.app.harness import AppHarness, open_app, open_keyed_app
from tests.support.backends import Backend


@pytest.fixture(scope="module")
def app(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppHarness]:
    """A service that requires keys; its own requests carry one with all scopes."""
    with open_keyed_app(tmp_path_factory.mktemp("keys"), backend) as opened:
        yield opened


def key_of(app: AppHarness, tenant: str, *scopes: str) -> str:
    with app.database.writing() as session:
        return app.services[KeyService].create(session, tenant, scopes=scopes)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def listed(app: AppHarness, key: str) -> dict[str, dict[str, Any]]:
    """The keys that the holder of a key sees, by their prefixes."""
    answer = app.http.get("/v1/keys", headers=bearer(key))
    assert 200 == answer.status_code, answer.text
    return {item["prefix"]: item for item in answer.json()["items"]}


def test_a_key_is_made_once_and_then_only_listed(app: AppHarness) -> None:
    """The answer that makes a key has it, and it opens the API; no later answer has it."""
    admin = key_of(app, "maker", "admin", "read")
    body = {"label": "ci", "scopes": ["read"], "valid_for_seconds": 3600}
    made = app.http.post("/v1/keys", json=body, headers=bearer(admin))
    assert 201 == made.status_code, made.text
    key, prefix = made.json()["key"], made.json()["prefix"]
    assert (f"/v1/keys/{prefix}", "no-store") == (
        made.headers["Location"],
        made.headers["Cache-Control"],
    )
    assert 200 == app.http.get("/v1/spaces", headers=bearer(key)).status_code
    shown = app.http.get(made.headers["Location"], headers=bearer(admin))
    assert ("ci", ["read"], "valid", False) == tuple(
        shown.json()[field] for field in ("label", "scopes", "state", "current")
    )
    expires = datetime.fromisoformat(shown.json()["expires_at"])
    assert timedelta(minutes=59) < expires - datetime.now(UTC) <= timedelta(hours=1)
    assert key not in shown.text + str(listed(app, admin))


def test_a_key_gives_away_no_scope_that_it_lacks(app: AppHarness) -> None:
    """An administrator of a tenant cannot make itself an operator, or a reader."""
    admin = key_of(app, "climber", "admin", "write")
    for scope in ("read", "metrics", "values"):
        refused = app.http.post("/v1/keys", json={"scopes": [scope]}, headers=bearer(admin))
        assert (403, True) == (refused.status_code, scope in refused.json()["detail"])
    assert [admin[:11]] == list(listed(app, admin))


@pytest.mark.parametrize("scopes", [("read", "write"), ("metrics",), ("values",)])
def test_only_administrators_see_keys(app: AppHarness, scopes: tuple[str, ...]) -> None:
    """Without the scope ``admin`` nothing about keys is read or changed."""
    key = key_of(app, "plain", *scopes)
    for method, path in [("GET", ""), ("POST", ""), ("GET", f"/{key[:11]}"), ("DELETE", "/x")]:
        body: dict[str, str] | None = {} if method == "POST" else None
        refused = app.http.request(method, f"/v1/keys{path}", headers=bearer(key), json=body)
        assert 403 == refused.status_code
        assert "scope admin" in refused.json()["detail"]


def test_keys_of_other_tenants_do_not_exist(app: AppHarness) -> None:
    """Another tenant's key is neither listed, nor read, nor revoked: it is a 404."""
    other, admin = key_of(app, "theirs", "read"), key_of(app, "ours", "admin")
    assert [admin[:11]] == list(listed(app, admin))
    for method in ("GET", "DELETE"):
        path = f"/v1/keys/{other[:11]}"
        refused = app.http.request(method, path, headers=bearer(admin))
        assert (404, "key_not_found") == (refused.status_code, refused.json()["code"])
    assert 200 == app.http.get("/v1/spaces", headers=bearer(other)).status_code


def test_a_revoked_key_stays_listed(app: AppHarness) -> None:
    """It opens nothing from the answer on, and revoking it again changes nothing."""
    admin, key = key_of(app, "revoker", "admin"), key_of(app, "revoker", "read")
    path = f"/v1/keys/{key[:11]}"
    assert 204 == app.http.delete(path, headers=bearer(admin)).status_code
    assert 401 == app.http.get("/v1/spaces", headers=bearer(key)).status_code
    first = listed(app, admin)[key[:11]]
    assert 204 == app.http.delete(path, headers=bearer(admin)).status_code
    assert ("revoked", first) == (first["state"], listed(app, admin)[key[:11]])


def test_the_last_use_is_known_to_the_hour(app: AppHarness) -> None:
    """A use is in the list once the clean-up has run, and a later hour takes its place."""
    admin, key = key_of(app, "user", "admin"), key_of(app, "user", "read")
    assert listed(app, admin)[key[:11]]["last_used_at"] is None
    app.http.get("/v1/spaces", headers=bearer(key))
    app.services[Authenticator].write_uses()
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    with app.database.writing() as session:
        made, used = ApiKeyRow.created_at, ApiKeyRow.last_used_at
        earlier = {made: hour - timedelta(days=2), used: hour - timedelta(days=1)}
        session.execute(update(ApiKeyRow).values(earlier))
    app.http.get("/v1/spaces", headers=bearer(key))
    app.services[Authenticator].write_uses()
    assert hour == datetime.fromisoformat(listed(app, admin)[key[:11]]["last_used_at"])


def test_no_key_is_used_before_it_was_made(app: AppHarness) -> None:
    """In the hour of its creation its last use is that, since the beginning of the hour is not."""
    admin, key = key_of(app, "early", "admin"), key_of(app, "early", "read")
    app.http.get("/v1/spaces", headers=bearer(key))
    app.services[Authenticator].write_uses()
    shown = listed(app, admin)[key[:11]]
    made, used = (datetime.fromisoformat(shown[each]) for each in ("created_at", "last_used_at"))
    assert made <= used


def test_a_prefix_that_is_too_short(app: AppHarness) -> None:
    """It says how long one is and which of the tenant's valid keys it fits, at most five."""
    admin, others = key_of(app, "brief", "admin"), key_of(app, "brief-not", "read")
    more = [key_of(app, "brief", "read")[:11] for _ in range(6)]

    def refusal(prefix: str) -> str:
        answer = app.http.delete(f"/v1/keys/{prefix}", headers=bearer(admin))
        assert 404 == answer.status_code
        return str(answer.json()["detail"])

    assert f"first 11 characters; it may be {more[0]}" in refusal(more[0][:10])
    assert refusal("mk_").endswith(" and others")
    assert 5 == refusal("mk_").count("mk_") - 1
    assert refusal(others[:9]).endswith("its first 11 characters")
    assert refusal(others[:11]) == f"there is no key '{others[:11]}'"


def test_a_use_that_cannot_be_written_is_written_later(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failing database does not take is kept until it does."""
    admin = key_of(app, "patient", "admin")
    listed(app, admin)
    uses = app.services[Authenticator]

    def fail(*_: object) -> None:
        raise OSError("gone")

    with monkeypatch.context() as broken:
        broken.setattr("app.tenancy.auth.repository.note_uses", fail)
        with pytest.raises(OSError, match="gone"):
            uses.write_uses()
    uses.write_uses()
    assert listed(app, admin)[admin[:11]]["last_used_at"] is not None


def test_keys_are_listed_by_pages(app: AppHarness) -> None:
    """The newest first, each once, and a foreign cursor is refused."""
    admin = key_of(app, "many", "admin")
    expected = [*(key_of(app, "many", "read")[:11] for _ in range(4)), admin[:11]]
    expected[:4] = expected[3::-1]
    found: list[str] = []
    cursor = None
    while len(found) < 5:
        params = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        page = app.http.get("/v1/keys", params=params, headers=bearer(admin)).json()
        found += [item["prefix"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert (expected, None) == (found, cursor)
    refused = app.http.get("/v1/keys?cursor=YQ", headers=bearer(admin))
    assert (422, "cursor") == (refused.status_code, refused.json()["errors"][0]["field"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes[0]"),
        ({"label": "x" * 201}, "label"),
        ({"label": "a\nb"}, "label"),
        ({"valid_for_seconds": 0}, "valid_for_seconds"),
        ({"tenant": "theirs"}, "tenant"),
    ],
)
def test_a_wrong_field_is_named(app: AppHarness, body: dict[str, Any], field: str) -> None:
    """An unknown scope, a label that cannot be printed, a tenant: each is a 422."""
    refused = app.http.post("/v1/keys", json=body)
    assert (422, field) == (refused.status_code, refused.json()["errors"][0]["field"])


def test_a_tenant_has_so_many_keys_and_no_more(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit a key is refused, until another one is revoked."""
    admin, key = key_of(app, "full", "admin", "read"), key_of(app, "full", "read")
    monkeypatch.setattr(auth, "MAX_KEYS", 2)
    refused = app.http.post("/v1/keys", json={"scopes": ["read"]}, headers=bearer(admin))
    assert (507, "quota_exceeded") == (refused.status_code, refused.json()["code"])
    app.http.delete(f"/v1/keys/{key[:11]}", headers=bearer(admin))
    made = app.http.post("/v1/keys", json={"scopes": ["read"]}, headers=bearer(admin))
    assert 201 == made.status_code


def test_without_keys_everybody_administers(tmp_path: Path) -> None:
    """Where keys are not required, every caller of the service makes them."""
    with open_app(tmp_path) as unlocked:
        made = unlocked.http.post("/v1/keys", json={"scopes": ["read", "admin"]}).json()
        [only] = unlocked.http.get("/v1/keys").json()["items"]
    assert (made["prefix"], False) == (only["prefix"], only["current"])
