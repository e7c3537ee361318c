"""API keys: which requests they admit, and how little a refused client learns."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

import modelkin
from app.infra.db.database import Database
from app.infra.db.tables.tenants import ApiKeyRow
from app.tenancy.auth.service import KeyService, generate
from tests.support.backends import Backend
from tests.support.declared_problems import checked
from tests.support.fixtures import Start, on_one_database
from tests.support.servers import forkserver
from tests.support.servers.server_process import Server, environment

UNKNOWN = "mk_QwAU1Z3XPuPcitSRVm8xln2eMuAwofAs41CNtFDWJ5X2QsJ9Y"
"""Well formed, and never stored."""
MISSPELT = ("secret-prject/models/m", "secret-project/models/hiden")
SPACE = {"name": "a", "num_parameters": 1000}


def keys(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m app keys ...`` on the database at ``url``."""
    return forkserver.run("app", "keys", *arguments, env=environment(MODELKIN_DATABASE_URL=url))


def new_key(server: Server, *arguments: str) -> str:
    """A key as an operator makes it."""
    made = keys(server.database_url, "create", *arguments)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture(scope="module")
def locked(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service that asks for keys."""
    folder = tmp_path_factory.mktemp("locked")
    running = Server(folder, "--auth=required", backend=backend).start()
    yield running
    assert running.stop() == 0


def ask(server: Server, authorization: str | None, path: str = "/v1/spaces") -> httpx.Response:
    """A GET with this Authorization header."""
    headers = {} if authorization is None else {"Authorization": authorization}
    return httpx.get(server.url + path, headers=headers, trust_env=False)


def test_key_opens(locked: Server) -> None:
    """A key that was created opens the API as Bearer, and as the password of Basic."""
    key = new_key(locked)
    basic = base64.b64encode(f"anyone:{key}".encode()).decode()
    assert 200 == ask(locked, f"Bearer {key}").status_code
    assert 200 == ask(locked, f"Basic {basic}", "/").status_code


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer x",
        f"Bearer {UNKNOWN}",
        "Bearer mk_" + "0" * 49,
        "Basic !!!",
        "Basic eDp5",
        "Digest a",
        "Bearer " + "A" * 5000,
        "Bearer mk_\xe9",
    ],
)
@pytest.mark.parametrize("path", ["/v1/spaces", "/v1/spaces/a/models", "/metrics", "/"])
def test_anything_else_is_a_401(locked: Server, authorization: str | None, path: str) -> None:
    """No key, a malformed one and an unknown one get the same problem and a challenge."""
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin1"))]
    answer = httpx.get(locked.url + path, headers=headers, trust_env=False)
    assert (401, "unauthorized") == (answer.status_code, answer.json()["code"])
    assert "Bearer" in answer.headers["WWW-Authenticate"]


def test_without_a_key_no_body_is_read(locked: Server) -> None:
    """A PUT or POST without a key is a 401, whatever is in it."""
    url = f"{locked.url}/v1/spaces"
    for media_type in ("application/octet-stream", "application/json", "text/plain"):
        asked: dict[str, Any] = {
            "content": b"{",
            "headers": {"Content-Type": media_type},
            "trust_env": False,
        }
        assert 401 == httpx.put(f"{url}/a/supports/m", **asked).status_code
        assert 401 == httpx.patch(f"{url}/a/supports/m", **asked).status_code
        assert 401 == httpx.post(url, **asked).status_code


def test_revoked_key_opens_nothing(locked: Server) -> None:
    """From the moment it is revoked a key is a 401, and revoking it again says so."""
    key = new_key(locked)
    assert 200 == ask(locked, f"Bearer {key}").status_code
    assert 0 == keys(locked.database_url, "revoke", key[:11]).returncode
    assert "was revoked" in ask(locked, f"Bearer {key}").json()["detail"]
    assert 1 == keys(locked.database_url, "revoke", key[:11]).returncode


def test_a_short_prefix_revokes_no_key(locked: Server) -> None:
    """The line says how many characters it takes, and names the key that may be meant."""
    key = new_key(locked)
    refused = keys(locked.database_url, "revoke", key[:9])
    assert (1, 1) == (refused.returncode, refused.stderr.count("\n"))
    assert f"by its first 11 characters; it may be {key[:11]}" in refused.stderr
    assert 200 == ask(locked, f"Bearer {key}").status_code


def test_expired_key_opens_nothing(locked: Server) -> None:
    """A key whose time is over is a 401."""
    database = Database(locked.database_url, timeout=5)
    with database.writing() as session:
        key = KeyService().create(session, "default", valid_for=timedelta(seconds=-1))
    database.close()
    assert "has expired" in ask(locked, f"Bearer {key}").json()["detail"]


@pytest.mark.parametrize("scope", ["write", "read"])
def test_near_names_are_for_readers(locked: Server, scope: str) -> None:
    """A 404 offers a near space or model to a key that may read, and to no other."""
    tenant = f"near-{scope}"
    both = new_key(locked, f"--tenant={tenant}", "--scope=read", "--scope=write")
    one = new_key(locked, f"--tenant={tenant}", f"--scope={scope}")
    with httpx.Client(base_url=f"{locked.url}/v1", trust_env=False) as http:
        http.headers["Authorization"] = f"Bearer {both}"
        body = {"name": "secret-project", "num_parameters": 9}
        assert 201 == http.post("/spaces", json=body).status_code
        made = http.put("/spaces/secret-project/supports/hidden", json={"indices": [1]})
        assert made.is_success
        said = [http.delete(f"/spaces/{path}").json() for path in MISSPELT]
        assert ["did you mean" in each["detail"] for each in said] == [True, True]
        http.headers["Authorization"] = f"Bearer {one}"
        ask = http.delete if scope == "write" else http.get
        answers = [ask(f"/spaces/{path}") for path in MISSPELT]
    assert [404, 404] == [answer.status_code for answer in answers]
    for answer, name in zip(answers, ("secret-project'?", "hidden"), strict=True):
        assert (name in answer.text) == (scope == "read")


@pytest.mark.parametrize(
    ("scopes", "reads", "writes", "measures"),
    [
        (["read"], 200, 403, 403),
        (["write"], 403, 201, 403),
        (["metrics"], 403, 403, 200),
        (["read", "write"], 200, 201, 403),
    ],
)
def test_scopes(locked: Server, scopes: list[str], reads: int, writes: int, measures: int) -> None:
    """A key does what its scopes say; the rest is a 403 that names the scope."""
    name = "tenant-" + "-".join(scopes)
    key = new_key(locked, f"--tenant={name}", *(f"--scope={s}" for s in scopes))
    with checked(
        httpx.Client(
            base_url=locked.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        )
    ) as http:
        assert reads == http.get("/v1/spaces").status_code
        assert writes == http.post("/v1/spaces", json=SPACE).status_code
        url, headers = f"/v1/spaces/{SPACE['name']}/supports/a", {"If-Match": "*"}
        delta: dict[str, list[int]] = {"added": [], "removed": []}
        patched = http.patch(url, json=delta, headers=headers).status_code
        assert (403 if writes == 403 else 404) == patched
        assert measures == http.get("/metrics").status_code


def test_key_is_stored_as_a_hash(locked: Server) -> None:
    """Neither database nor log nor listing ever holds a key, only its first characters."""
    key = new_key(locked, "--label=mine")
    ask(locked, f"Bearer {key}")
    listing = keys(locked.database_url, "list").stdout
    assert key[:11] in listing
    assert key not in listing
    written = b"".join(f.read_bytes() for f in locked.folder.glob("*") if f.is_file())
    written += repr(stored(locked)).encode()
    assert key[:11].encode() in written
    assert key[11:].encode() not in written


def test_the_access_log_names_the_caller(locked: Server) -> None:
    """Address, tenant and first characters of the key; of a wrong key the address alone."""
    key = new_key(locked, "--tenant=logged")
    ask(locked, f"Bearer {key}", "/v1/spaces?limit=1")
    ask(locked, f"Bearer {UNKNOWN}", "/v1/spaces/refused")
    deadline = time.monotonic() + 30  # a line is written once its answer is sent
    while "/v1/spaces/refused" not in (log := locked.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert f"address=127.0.0.1 tenant=logged key={key[:11]}\n" in log
    [refused] = [line for line in log.splitlines() if "/v1/spaces/refused" in line]
    assert refused.endswith(" address=127.0.0.1")


def stored(server: Server) -> list[tuple[object, ...]]:
    """The table of keys, every column of it."""
    database = Database(server.database_url, timeout=5)
    with database.reading() as session:
        rows = [tuple(row) for row in session.execute(select(ApiKeyRow.__table__))]
    database.close()
    return rows


def test_sdk_says_what_is_missing(locked: Server) -> None:
    """The SDK's error without a key carries status, code and request id; with one it works."""
    with modelkin.Client(locked.url) as client, pytest.raises(modelkin.ApiError) as caught:
        list(client.spaces.list())
    assert (401, "unauthorized") == (caught.value.status, caught.value.problem_code)
    assert caught.value.request_id
    with modelkin.Client(locked.url, api_key=new_key(locked, "--tenant=sdk")) as client:
        assert [] == list(client.spaces.list())


def refuse(url: str, *flags: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A start that must fail by itself."""
    flags = f"--database-url={url}", "--port=0", *flags
    return forkserver.run("app", *flags, env=environment(**settings))


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> str:
    """A database that is not there yet, or empty."""
    return backend.url(tmp_path)


def test_no_network_without_keys(url: str) -> None:
    """Beyond loopback the service refuses to start without a key, and with --auth=off at all."""
    refused = refuse(url, "--host=0.0.0.0")
    assert (1, True) == (refused.returncode, "keys create" in refused.stderr)
    refused = refuse(url, "--host=0.0.0.0", "--auth=off")
    assert (1, True) == (refused.returncode, "MODELKIN_AUTH=off" in refused.stderr)


def test_wrong_settings_are_one_line(tmp_path: Path) -> None:
    """A setting that cannot be ends ``keys`` as it ends the service: named, exit code 2."""
    url = f"sqlite:///{tmp_path}/m.db"
    env = environment(MODELKIN_DATABASE_URL=url, MODELKIN_PORT="http")
    refused = forkserver.run("app", "keys", "list", env=env)
    assert (2, 1) == (refused.returncode, refused.stderr.count("\n"))
    assert "MODELKIN_PORT" in refused.stderr


@pytest.mark.parametrize("arguments", [["list"], ["revoke", "mk_12345678"]])
def test_a_mistyped_url_makes_no_database(arguments: list[str], tmp_path: Path) -> None:
    """What lists or revokes keys refuses where there is no database, and names the setting."""
    refused = keys(f"sqlite:///{tmp_path}/typo.db", *arguments)
    assert (1, 1) == (refused.returncode, refused.stderr.count("\n"))
    assert f"there is no database at {tmp_path}/typo.db" in refused.stderr
    assert "MODELKIN_DATABASE_URL" in refused.stderr
    assert [] == list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_start_without_a_key_is_a_warning(start: Start) -> None:
    """On loopback, where keys are required and there is none; with one there is no warning."""
    server = start("--auth=required")
    assert 1 == server.log.read_text().count("there is no key")
    assert "keys create" in server.log.read_text()
    assert 0 == server.stop()
    new_key(server)
    server.start()
    assert "there is no key" not in server.log.read_text()


@pytest.mark.slow
def test_initial_key(url: str, start: Start) -> None:
    """The first key may come from the environment; a malformed one ends the start in one line."""
    key = keys(url, "generate").stdout.strip()
    refused = refuse(url, "--auth=required", MODELKIN_INITIAL_KEY="swordfish")
    assert (1, 1) == (refused.returncode, refused.stderr.count("\n"))
    assert "swordfish" not in refused.stderr
    server = start("--auth=required", f"--initial-key={key}")
    assert 200 == ask(server, f"Bearer {key}", "/metrics").status_code
    assert 0 == server.stop()


@on_one_database
@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "--tenant", "No Name"],
        ["create", "--valid-for", "1y"],
        ["create", "--label", "x" * 201],
    ],
)
def test_bad_commands(url: str, arguments: list[str]) -> None:
    """What cannot be a tenant, a time or a label is one line, and nothing is stored."""
    refused = keys(url, *arguments)
    assert (1, 1) == (refused.returncode, refused.stderr.count("\n"))
    assert 1 == keys(url, "list").stdout.count("\n")


def test_two_processes_may_bring_the_same_first_key(migrated: Database) -> None:
    """Of two that store one key at once the second finds it there: neither fails, one is stored."""
    key = generate()

    def store() -> None:
        with migrated.writing() as session:
            KeyService().create(session, "default", key=key)

    with ThreadPoolExecutor() as threads, migrated.writing() as session:
        KeyService().create(session, "default", key=key)
        second = threads.submit(store)
        time.sleep(0.3)  # it waits for this transaction by now
        session.commit()
        second.result(10)
    with migrated.reading() as reader:
        assert [key[:11]] == [record.prefix for record in KeyService().list(reader)]
