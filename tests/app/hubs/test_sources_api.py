"""/v1/sources: made, shown, changed and deleted; what is secret only comes in."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import LargeBinary

from app.hubs.service import SourceService
from app.infra.db.secret_rotation import COLUMNS
from app.infra.db.tables.all_tables import Base
from app.infra.errors import SourceNotFound
from app.operations.cli import secrets
from app.tenancy.auth.tenants import ensure_tenant
from tests.support.app.harness import AppHarness, open_app
from tests.support.app.hubs import SECRET
from tests.support.backends import SQLITE, PostgresBackend
from tests.support.hub_payloads import hf_payload
from tests.support.servers.postgres import Postgres

TOKEN = "hf_do_not_tell"
PLAIN = {"kind": "huggingface", "space": "kin", "secret": SECRET}


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer."""
    problem: dict[str, Any] = answer.json()
    assert (status, code) == (answer.status_code, problem["code"]), answer.text
    return problem


@pytest.mark.slow
def test_a_source_is_made_shown_and_deleted(service: AppHarness) -> None:
    """What was asked comes back, with what was left out as it is by itself."""
    made = service.hubs.create(
        **PLAIN,
        url=None,
        filters={"owners": ["org"]},
        base_model="org/base",
        exclude=["*.running_*"],
    )
    shown = service.hubs.show(made)
    assert made == shown
    expected = {
        "kind": "huggingface",
        "space": "kin",
        "url": None,
        "has_token": False,
        "importance": None,
        "base_model": "org/base",
        "exclude": ["*.running_*"],
        "filters": {"owners": ["org"]},
        "on_delete": "keep",
        "poll_seconds": None,
        "hook": f"/v1/hooks/{made['id']}",
        "last_delivery_at": None,
        "last_error": None,
        "next_poll_at": None,
    }
    assert expected == {name: shown[name] for name in expected}
    service.hubs.push(made, "org/a")
    path = f"/v1/sources/{made['id']}"
    assert 204 == service.http.delete(path).status_code
    refused(service.http.get(path), 404, "source_not_found")
    refused(service.http.delete(path), 404, "source_not_found")
    assert 401 == service.hubs.send(made, hf_payload("org/a")).status_code


def test_sources_are_listed_newest_first(service: AppHarness) -> None:
    """Page by page, each once."""
    made = [service.hubs.create()["id"] for _ in range(5)]
    found: list[str] = []
    cursor = None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = service.http.get("/v1/sources", params=query).json()
        found += [item["id"] for item in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert made[::-1] == found[:5]
    assert len(set(found)) == len(found)


def test_changes_are_of_what_was_sent(service: AppHarness) -> None:
    """Other fields stay, null clears, and the next delivery must have the new secret."""
    made = service.hubs.create(
        base_model="org/base", importance="delta", filters={"owners": ["org"]}
    )
    path = f"/v1/sources/{made['id']}"
    changed = service.http.patch(path, json={"space": "other", "base_model": None}).json()
    assert ("other", None, "delta") == tuple(
        changed[name] for name in ("space", "base_model", "importance")
    )
    assert changed == service.hubs.show(made)
    assert changed["updated_at"] > made["updated_at"]
    service.http.patch(path, json={"filters": {"repos": ["org/a*"]}, "on_delete": "remove"})
    assert {"repos": ["org/a*"]} == service.hubs.show(made)["filters"]
    assert [] == service.hubs.show(made)["exclude"]
    patterns = ["*.stft.*", "head.*"]
    assert patterns == service.http.patch(path, json={"exclude": patterns}).json()["exclude"]
    assert [] == service.http.patch(path, json={"exclude": None}).json()["exclude"]
    service.http.patch(path, json={"secret": "another"})
    assert 401 == service.hubs.send(made, hf_payload("org/a")).status_code


def test_a_token_may_be_long(service: AppHarness) -> None:
    """Signed ones have thousands of characters."""
    given = {**PLAIN, "url": "http://127.0.0.1:9", "token": "x" * (16 << 10), "poll_seconds": None}
    made = service.http.post("/v1/sources", json=given)
    assert (201, True) == (made.status_code, made.json()["has_token"])


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"kind": "github"}, "kind"),
        ({"kind": "mlflow", "filters": {"owners": ["org"]}}, "filters.owners"),
        ({"space": "No Space"}, "space"),
        ({"secret": ""}, "secret"),
        ({"secret": 7}, "secret"),
        ({"secret": None}, "secret"),
        ({"token": TOKEN}, "token"),
        ({"token": "", "url": "http://127.0.0.1:9"}, "token"),
        ({"token": "é" * 8193, "url": "http://127.0.0.1:9"}, "token"),
        ({"url": "ftp://hub"}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "http://169.254.169.254/latest"}, "url"),
        ({"importance": "fisher"}, "importance"),
        ({"exclude": "*.running_*"}, "exclude"),
        ({"exclude": [""]}, "exclude[0]"),
        ({"exclude": ["*.bias", "*"]}, "exclude"),
        ({"exclude": ["**"]}, "exclude"),
        ({"exclude": ["?*"]}, "exclude"),
        ({"exclude": ["x"] * 101}, "exclude"),
        ({"base_model": "a//b"}, "base_model"),
        ({"filters": {"models": ["a"]}}, "filters.models"),
        ({"filters": {"repos": "org/*"}}, "filters.repos"),
        ({"filters": {"tags": [""]}}, "filters.tags"),
        ({"on_delete": "archive"}, "on_delete"),
        ({"poll_seconds": 9, "url": "http://127.0.0.1:9"}, "poll_seconds"),
        ({"poll_seconds": 60}, "poll_seconds"),
        ({"other": 1}, "other"),
    ],
)
def test_what_makes_no_source_is_refused(
    service: AppHarness, asked: dict[str, Any], field: str
) -> None:
    """A 422 that names the field, and shows no secret."""
    answer = service.http.post("/v1/sources", json={**PLAIN, **asked})
    code = "invalid_name" if field in {"space", "base_model"} else "invalid_parameter"
    problem = refused(answer, 422, code)
    assert field in [error["field"] for error in problem["errors"]]
    assert SECRET not in answer.text
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    "changes", [{"secret": None}, {"space": None}, {"kind": "mlflow"}, {"id": "x"}]
)
def test_what_every_source_has_stays(service: AppHarness, changes: dict[str, Any]) -> None:
    """A kind cannot be changed, and what must be there cannot be cleared."""
    made = service.hubs.create()
    answer = service.http.patch(f"/v1/sources/{made['id']}", json=changes)
    refused(answer, 422, "invalid_parameter")
    assert made == service.hubs.show(made)


def test_a_token_is_never_sent_elsewhere(service: AppHarness) -> None:
    """A client that may change the url cannot obtain the token: a new host needs it sent again."""
    made = service.hubs.create(token=TOKEN)
    path = f"/v1/sources/{made['id']}"
    problem = refused(
        service.http.patch(path, json={"url": "http://127.0.0.1:10"}), 422, "invalid_parameter"
    )
    assert "token" == problem["errors"][0]["field"]
    refused(service.http.patch(path, json={"url": "http://127.0.0.1.:9"}), 422, "invalid_parameter")
    for same in ("http://127.0.0.1:9/deeper", "HTTP://127.0.0.1:9"):
        assert service.http.patch(path, json={"url": same}).json()["has_token"], same
    assert not service.http.patch(path, json={"url": None}).json()["has_token"]
    back = service.http.patch(path, json={"url": "http://127.0.0.1:10"}).json()
    assert not back["has_token"]
    both = {"url": "http://127.0.0.1:11", "token": "another"}
    assert service.http.patch(path, json=both).json()["has_token"]


def test_other_tenants_see_no_source(service: AppHarness) -> None:
    """Another tenant's source does not exist: to show, to change, to poll or to delete."""
    made = service.hubs.create()
    sources = service.services[SourceService]
    with service.database.writing() as session:
        other = ensure_tenant(session, "another tenant")
        with pytest.raises(SourceNotFound):
            sources.get(session, other, made["id"])
        with pytest.raises(SourceNotFound):
            sources.open(session, other, made["id"])
        with pytest.raises(SourceNotFound):
            sources.update(session, other, made["id"], {"space": "theirs"})
        with pytest.raises(SourceNotFound):
            sources.delete(session, other, made["id"])
        assert () == sources.list(session, other, limit=10, cursor=None).items
    assert made == service.hubs.show(made)


def test_what_cannot_be_looked_through_is_not_polled(service: AppHarness) -> None:
    """A source without a url is a 409 that says so; one with a url gets one job while it waits."""
    nowhere, hub = service.hubs.create(url=None), service.hubs.create()
    answer = service.http.post(f"/v1/sources/{nowhere['id']}/poll")
    assert "without a url" in refused(answer, 409, "conflict")["detail"]
    answers = [service.http.post(f"/v1/sources/{hub['id']}/poll") for _ in range(2)]
    assert [202, 202] == [answer.status_code for answer in answers]
    assert [answers[0].json()["id"]] == [job["id"] for job in service.hubs.jobs(hub, "poll")]
    assert f"/v1/jobs/{answers[1].json()['id']}" == answers[0].headers["location"]


@pytest.mark.parametrize("source", ["x", "0" * 36, "é" * 36, "%00" * 36])
def test_an_unknown_source_is_a_404(service: AppHarness, source: str) -> None:
    """Whatever stands for an id."""
    for path in (f"/v1/sources/{source}", f"/v1/sources/{source}/deliveries"):
        refused(service.http.get(path), 404, "source_not_found")
    refused(service.http.post(f"/v1/sources/{source}/poll"), 404, "source_not_found")


@pytest.mark.slow
def test_secrets_are_nowhere_in_plain(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the database's files nor in the log, in an answer or in a job."""
    with caplog.at_level(logging.DEBUG), open_app(tmp_path, SQLITE) as service:
        made = service.hubs.create(token=TOKEN)
        service.hubs.push(made, "org/a")
        answers = [service.http.get(f"/v1/sources/{made['id']}").text, str(service.hubs.jobs(made))]
        answers.append(repr(service.hubs.source(made["id"])))
        with service.database.reading() as session:
            opened = service.services[SourceService].open(session, service.tenant, made["id"])
        assert TOKEN == opened.token
        answers.append(repr(opened))
    said = caplog.text + "".join(answers)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            said += file.read_bytes().decode("latin-1")
    assert SECRET not in said
    assert TOKEN not in said


def test_secrets_need_a_key(tmp_path: Path, postgres: Postgres) -> None:
    """On Postgres without the setting, a source is a 409 that names it, and deliveries are 503.

    The 503 does not reveal to unauthenticated clients which sources exist.
    """
    backend = PostgresBackend(postgres)
    with open_app(tmp_path, backend) as service:
        made = service.hubs.create()
    with open_app(tmp_path, backend, encryption_keys=None) as service:
        problem = refused(service.http.post("/v1/sources", json=PLAIN), 409, "secret_key_missing")
        assert "MODELKIN_ENCRYPTION_KEYS" in problem["detail"]
        for hook in (made, {"hook": "/v1/hooks/" + "0" * 36}):
            problem = refused(service.hubs.send(hook, hf_payload("org/a")), 503, "unavailable")
            assert "MODELKIN_ENCRYPTION_KEYS" in problem["detail"]


@pytest.mark.slow
def test_keys_of_secrets_are_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a command has renewed what is stored, the new key alone opens everything."""
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    with open_app(tmp_path, SQLITE, encryption_keys=old) as service:
        made = service.hubs.create(token=TOKEN)
    monkeypatch.setenv("MODELKIN_DATABASE_URL", SQLITE.url(tmp_path))
    monkeypatch.setenv("MODELKIN_ENCRYPTION_KEYS", f"{new},{old}")
    assert 0 == secrets.run([])
    with open_app(tmp_path, SQLITE, encryption_keys=new) as service:
        assert "enqueued" == service.hubs.push(made, "org/a")["outcome"]
        with service.database.reading() as session:
            opened = service.services[SourceService].open(session, service.tenant, made["id"])
        assert TOKEN == opened.token
    with open_app(tmp_path, SQLITE, encryption_keys=old) as service:
        answer = service.hubs.send(made, hf_payload("org/a"))
        assert "MODELKIN_ENCRYPTION_KEYS" in refused(answer, 503, "unavailable")["detail"]


def test_every_encrypted_column_is_renewed() -> None:
    """A column of a secret that no command knows would be lost with its key."""
    known = {(table.__tablename__, column) for table, column in COLUMNS}
    found = {
        (table.name, column.name)
        for table in Base.metadata.tables.values()
        for column in table.columns
        if "secret" in column.name or column.name == "token"
        if isinstance(column.type, LargeBinary)
    }
    assert known == found
