"""The first page: how to begin with an empty service, and what asks for a look in any other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from app.infra.errors import Unavailable
from app.kinship.findings.service import FindingService
from app.kinship.inbox.service import InboxService
from tests.app.tenancy.auth.test_keys import new_key
from tests.support.app.harness import AppHarness, open_app
from tests.support.explorer.pages import HOSTILE_NAMES
from tests.support.http_space import random_support
from tests.support.models.checkpoints import random_tensors, safetensors
from tests.support.servers.server_process import Server

BROWSER = {"Accept": "text/html"}
LONG = f"org/{'long-' * 38}name"
SUPPORT = random_support(np.random.default_rng(0), 10_000, 100)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[AppHarness]:
    """An empty service."""
    with open_app(tmp_path) as app:
        yield app


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An empty service that asks for keys, and goes to no hub."""
    running = Server(
        tmp_path_factory.mktemp("locked"),
        "--auth=required",
        module="tests.support.explorer.no_hub",
        MODELKIN_EGRESS_ALLOW="127.0.0.1",
    )
    yield running.start()
    assert running.stop() == 0


def code_of(page: str) -> dict[str, str]:
    """The code of a page by its label."""
    found = re.findall(r'<pre[^>]* aria-label="([^"]*)"><code>(.*?)</code>', page, re.DOTALL)
    return {label: unescape(code) for label, code in found}


def shown_to(locked: Server, *scopes: str) -> tuple[str, str]:
    """The first page as the holder of a key sees it, and the key."""
    key = new_key(locked, *(f"--scope={each}" for each in scopes))
    headers = {**BROWSER, "Authorization": f"Bearer {key}"}
    return httpx.get(locked.url, headers=headers, trust_env=False).text, key


def test_every_line_of_code_runs_as_it_is_shown(locked: Server, tmp_path: Path) -> None:
    """In a shell or in Python, beside checkpoints, and against this very service."""
    shown, key = shown_to(locked)
    (tmp_path / "models").mkdir()
    for number, name in enumerate(("base.safetensors", "models/first.safetensors")):
        (tmp_path / name).write_bytes(safetensors(random_tensors(number)))
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "MODELKIN_API_KEY": key, "PATH": programs}
    code = code_of(shown)
    assert len(code) == shown.count("<pre") >= 5
    said = {}
    for label, lines in code.items():
        assert locked.url in lines
        language = [sys.executable, "-c"] if label.startswith("program") else ["sh", "-c"]
        done = subprocess.run([*language, lines], env=env, cwd=tmp_path, capture_output=True)
        assert 0 == done.returncode, f"{lines}: {done.stderr.decode()}"
        said[label] = done.stdout.decode()
    assert '"items"' in said["request for all spaces"]
    with httpx.Client(base_url=locked.url, headers={"Authorization": f"Bearer {key}"}) as http:
        assert ["acme"] == [each["space"] for each in http.get("/v1/sources").json()["items"]]
        found = http.get("/", headers=BROWSER, params={"q": "acme/"}).text
    for name in ("acme/base", "acme/first"):
        assert f'href="/spaces/acme/models/{name}"' in found


def test_a_key_that_may_not_write_makes_no_samples(locked: Server) -> None:
    """The page says so, and the service refuses."""
    shown, key = shown_to(locked, "read")
    assert "/samples" not in shown
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{locked.url}/samples", headers=headers, trust_env=False)
    assert 403 == answer.status_code


def test_samples_fill_the_inbox_and_go(app: AppHarness) -> None:
    """By one request each; the page is that of an empty service before and after."""
    assert "Make the samples" in app.http.get("/").text
    assert 201 == app.http.post("/samples").status_code
    for _ in range(3):
        app.worker.make_due()
        app.worker.tick()
    shown = app.http.get("/").text
    assert "Contradicted declarations: all 1" in shown
    assert "samples/claims-stranger" in app.http.get("/findings").text
    undeclared = app.http.get("/findings?show=undeclared").text
    assert "samples/silent" in undeclared
    _, _, row = undeclared.partition(">samples/silent</a>")
    row = row.partition("</tbody>")[0]
    near = row.partition("models/samples/")[2].partition('"')[0]
    assert f"pairs?a=samples/silent&amp;b=samples/{near}" in row.replace("%2F", "/")
    assert 'aria-label="Acknowledge samples/silent"' in row
    for found in ("samples-mirror/base", "samples/average", "samples/mixed", "samples/silent"):
        assert found in shown
    assert "Nothing in doubt, no job failed" in shown
    assert 'href="/family?of=samples%2Fbase"' in shown
    assert "3 of them came as a fingerprint alone" in shown
    assert "; 3 came as a fingerprint alone." in app.http.get("/new").text
    assert 204 == app.http.delete("/samples").status_code
    assert "Make the samples" in app.http.get("/").text


def test_names_are_text(app: AppHarness) -> None:
    """Bases that look like addresses of scripts, or are long, are shown and lead nowhere else."""
    space = app.create_space("zoo")
    for number, base in enumerate((*HOSTILE_NAMES, LONG)):
        app.put_support(space, f"org/m{number}", SUPPORT)
        changed = {"base_model": base}
        answer = app.http.patch(f"/v1/spaces/{space}/models/org/m{number}", json=changed)
        assert answer.status_code == 200, answer.text
    shown = app.http.get("/").text
    for base in (*HOSTILE_NAMES, LONG):
        assert f">{base}</a>" in shown
    assert not re.search(r'(?:href|action)="(?!/|#)', shown)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("webhook_deliveries", "Events not delivered cannot be read now"),
        ("anatomies", "Averages cannot be read now"),
    ],
)
def test_a_part_that_fails_leaves_the_others(app: AppHarness, table: str, said: str) -> None:
    """It is named, and the rest of the page is there."""
    space = app.create_space("zoo")
    with app.database.writing() as session:
        session.execute(text(f"ALTER TABLE {table} RENAME TO away"))
    answer = app.http.get("/")
    assert 200 == answer.status_code
    assert said in answer.text
    assert f"/spaces/{space}" in answer.text


def test_what_is_acknowledged_is_not_shown(app: AppHarness) -> None:
    """Neither counted nor listed; where nothing is left, a line says so, once all is judged."""
    app.http.post("/samples")
    shown = app.http.get("/").text
    assert "Models are still being judged" in shown
    assert 'id="inbox" data-live=' in shown
    assert "Nothing contradicted" not in shown
    for _ in range(3):
        app.worker.make_due()
        app.worker.tick()
    assert "declares samples/stranger, and is near samples/base" in app.http.get("/").text
    path, model = "/v1/spaces/samples/lineage/acknowledgement", "samples/claims-stranger"
    assert 200 == app.http.put(path, params={"model": model}, json={}).status_code
    shown = app.http.get("/").text
    assert "Nothing contradicted" in shown
    assert "data-live" not in shown
    with app.database.reading() as session:
        found = [
            app.services[FindingService].inbox(session, app.tenant, newest=1, most=most)
            for most in (1, 100)
        ]
    few, all_of_them = (next(x for x in each if x.verdict == "undeclared") for each in found)
    assert 1 == few.count < all_of_them.count
    assert f"Undeclared kin: all {all_of_them.count}" in shown
    assert "Nothing is contradicted" in app.http.get("/findings").text


def test_new_models_are_listed(app: AppHarness) -> None:
    """With their spaces; on an empty service none are."""
    assert "No model is new" in app.http.get("/new").text
    space = app.create_space("zoo")
    app.put_support(space, "org/fresh", SUPPORT)
    shown = app.http.get("/new").text
    assert f'href="/spaces/{space}/models/org/fresh"' in shown


def test_a_database_that_is_away_has_a_page(
    app: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, offers to try again, and tells where the reason is."""

    def away(*_: object, **__: object) -> None:
        raise Unavailable("the database cannot serve this now", reason="it was stopped")

    monkeypatch.setattr(InboxService, "findings", away)
    answer = app.http.get("/findings?show=doubted", headers={"Accept": "text/html"})
    assert 503 == answer.status_code
    shown = unescape(answer.text)
    assert "The database cannot serve this now" in shown
    assert '<a class="button" href="">Try again</a>' in shown
    number = answer.headers["X-Request-ID"]
    assert f"Request {number}: the log of the service says under this number" in shown
    assert "it was stopped" not in shown
