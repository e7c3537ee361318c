"""``doctor``: what it finds wrong, with real services and with answers made up for it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import modelkin
from modelkin._version import __version__
from tests.sdk.cli.conftest import Run
from tests.support.http_space import random_support
from tests.support.servers import forkserver
from tests.support.servers.server_process import Server

M = 4_000
CLOSED = "http://127.0.0.1:9"

Diagnosis = dict[str, dict[str, str]]


class Answers(BaseHTTPRequestHandler):
    """A server of made-up answers: a status and an object by path, 404 for others."""

    paths: ClassVar[dict[str, tuple[int, Any]]] = {}
    version = __version__

    def do_GET(self) -> None:
        status, answer = self.paths.get(self.path.partition("?")[0], (404, {}))
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.version:
            self.send_header("Modelkin-Version", self.version)
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Writes nothing."""


@pytest.fixture
def stub() -> Iterator[tuple[type[Answers], str]]:
    """A server whose answers a test sets, and its address."""

    class Mine(Answers):
        paths: ClassVar[dict[str, tuple[int, Any]]] = {
            "/livez": (200, {"version": __version__}),
            "/readyz": (200, {"version": __version__}),
            "/v1/spaces": (200, {"items": []}),
            "/v1/jobs": (200, {"items": []}),
        }

    server = ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Mine, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def diagnose(run_here: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Diagnosis]:
    """Runs ``doctor --json``; its lines by their names, after a check of the exit code."""
    monkeypatch.delenv("MODELKIN_SPACE", raising=False)

    def diagnose(*arguments: str) -> Diagnosis:
        done = run_here("doctor", "--json", *arguments)
        found = json.loads(done.stdout)
        checks: Diagnosis = {each["check"]: each for each in found["checks"]}
        failed = any(each["state"] == "fail" for each in checks.values())
        assert (not failed, int(failed)) == (found["ok"], done.returncode)
        for each in checks.values():  # whatever is wrong comes with what to do
            assert (each["state"] == "ok") == (each["remedy"] == "")
        return checks

    return diagnose


@pytest.fixture
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a service of its own, whose settings a process would check."""
    monkeypatch.setattr("modelkin.cli.commands.doctor.local_checks", lambda _: iter(()))


@pytest.fixture
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service of this machine is asked in a process with what it would import; how that starts
    is asked by the last tests here.
    """

    def run(
        command: Sequence[str], *, env: Mapping[str, str], **_: Any
    ) -> subprocess.CompletedProcess[str]:
        *interpreter, module, subcommand, form = command
        assert [sys.executable, "-P", "-m"] == interpreter
        return forkserver.run(module, subcommand, form, folder=Path.cwd(), env=env)

    monkeypatch.setattr("modelkin.cli.local_service.subprocess.run", run)


@pytest.mark.usefixtures("_forked")
def test_all_is_well(server: Server, diagnose: Callable[..., Diagnosis], run_here: Run) -> None:
    """A service with a space as it should be has no line with something to do."""
    rng = np.random.default_rng(1)
    with modelkin.Client(server.url) as client:
        client.ensure_space("well", layout=modelkin.Layout.of([("a", (M,))]), importance="weight")
        for name in "ab":
            client.put_support("well", name, random_support(rng, M, 100))
    found = diagnose("--url", server.url, "--space", "well")
    assert {"ok"} == {each["state"] for each in found.values()}
    assert {"disk", "address", "service", "version", "ready", "key", "workers"} <= found.keys()
    assert "well: 2 models, 4,000 parameters" == found["space"]["detail"]
    text = run_here("doctor", "--url", server.url, "--space", "well").stdout
    assert text.endswith("\nall is well\n")


@pytest.mark.usefixtures("_elsewhere")
def test_a_poor_space(server: Server, diagnose: Callable[..., Diagnosis], run_here: Run) -> None:
    """Warnings say what is missing and let the command succeed; no space is a failure."""
    with modelkin.Client(server.url) as client:
        client.ensure_space("poor", num_parameters=M)
    found = diagnose("--url", server.url, "--space", "poor")
    states = [found[name]["state"] for name in ("space", "layout", "importance")]
    assert ["warn", "warn", "warn"] == states
    text = run_here("doctor", "--url", server.url, "--space", "poor").stdout
    assert text.endswith("\n0 failures, 3 warnings\n")
    found = diagnose("--url", server.url, "--space", "pour")
    assert "fail" == found["space"]["state"]
    assert "did you mean 'poor'?" in found["space"]["detail"]


@pytest.mark.usefixtures("_elsewhere")
def test_no_service(diagnose: Callable[..., Diagnosis], run_here: Run) -> None:
    """It says so in the client's words, and asks no further."""
    found = diagnose("--url", CLOSED)
    assert "fail" == found["service"]["state"]
    assert f"no modelkin service answers at {CLOSED}" in found["service"]["detail"]
    assert "key" not in found
    text = run_here("doctor", "--url", CLOSED).stdout
    assert "fail  service" in text
    assert "to do: start one with" in text
    assert "fail" == diagnose("--url", "ftp://x")["address"]["state"]


@pytest.mark.usefixtures("_elsewhere")
def test_something_else_answers(
    stub: tuple[type[Answers], str], diagnose: Callable[..., Diagnosis]
) -> None:
    """Another program is not taken for a service, and what was tried is named."""
    answers, url = stub
    answers.version, answers.paths = "", {}
    found = f"something answers at {url}/livez, with status 404, but no modelkin service"
    assert found == diagnose("--url", url)["service"]["detail"]
    assert "one answers" not in diagnose("--url", f"{url}/api")["service"]["remedy"]


@pytest.mark.usefixtures("_elsewhere")
def test_a_path_that_is_not_the_services(
    server: Server, diagnose: Callable[..., Diagnosis]
) -> None:
    """The service answers there as well, so the address without the path is tried, and named."""
    found = diagnose("--url", f"{server.url}/api")
    assert ("fail", False) == (found["service"]["state"], "key" in found)
    assert f"something answers at {server.url}/api/livez" in found["service"]["detail"]
    assert found["service"]["remedy"].endswith(f"one answers at {server.url}")


@pytest.mark.usefixtures("_elsewhere")
def test_versions_and_readiness(
    stub: tuple[type[Answers], str], diagnose: Callable[..., Diagnosis]
) -> None:
    """Another release and an index that loads are warnings."""
    answers, url = stub
    assert "ok" == diagnose("--url", url)["version"]["state"]
    answers.version = "7.3.1"
    answers.paths["/readyz"] = (503, {"detail": "40% of the signatures are loaded"})
    found = diagnose("--url", url)
    assert ("warn", "warn") == (found["version"]["state"], found["ready"]["state"])
    assert "pip install 'modelkin==7.3.*'" in found["version"]["remedy"]
    assert "40% of the signatures are loaded" == found["ready"]["detail"]


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(
    ("reading", "writing", "state", "detail"),
    [
        (200, 404, "ok", "a key to read and write"),
        (200, 403, "warn", "a key to read"),
        (403, 404, "warn", "a key to write"),
        (403, 403, "fail", "a key that neither reads nor writes"),
        (401, 401, "fail", "this key is unknown"),
    ],
)
def test_keys(
    stub: tuple[type[Answers], str],
    diagnose: Callable[..., Diagnosis],
    reading: int,
    writing: int,
    state: str,
    detail: str,
) -> None:
    """What a key may do is found without writing anything."""
    answers, url = stub
    problem = {"code": "x", "detail": "this key is unknown", "items": []}
    job = "/v1/jobs/00000000-0000-7000-8000-000000000000/cancel"
    answers.paths |= {"/v1/spaces": (reading, problem), job: (writing, problem)}
    found = diagnose("--url", url, "--api-key", "mk_key")
    assert (state, detail) == (found["key"]["state"], found["key"]["detail"])


@pytest.mark.usefixtures("_elsewhere")
def test_jobs_that_no_worker_takes(
    server: Server, stub: tuple[type[Answers], str], diagnose: Callable[..., Diagnosis]
) -> None:
    """A job that waits for long while none runs says that no worker is there."""
    answers, url = stub
    job = {
        "id": "j",
        "kind": "clustering",
        "state": "queued",
        "parameters": {},
        "attempts": 0,
        "cancelling": False,
        "created_at": "2026-01-01T00:00:00Z",
    }
    assert "no job was started yet, so none waits" == diagnose("--url", url)["workers"]["detail"]
    answers.paths["/v1/jobs"] = (200, {"items": [job | {"not_before": "2999-01-01T00:00:00Z"}]})
    assert "no job was started yet, so none waits" == diagnose("--url", url)["workers"]["detail"]
    answers.paths["/v1/jobs"] = (200, {"items": [job]})
    assert "fail" != diagnose("--url", url)["workers"]["state"]  # this one is called running, too
    found = _only_queued(answers, job, diagnose, url)
    assert "fail" == found["workers"]["state"]
    assert "`modelkin serve workers`" in found["workers"]["remedy"]
    late = job | {"not_before": "2026-01-01T00:00:01Z"}  # its delay is over
    assert "fail" == _only_queued(answers, late, diagnose, url)["workers"]["state"]
    half_a_minute = datetime.now(UTC) - timedelta(seconds=30)
    recent = job | {"created_at": half_a_minute.isoformat()}
    found = _only_queued(answers, recent, diagnose, url)
    assert "warn" == found["workers"]["state"]
    assert "none runs" in found["workers"]["detail"]


def _only_queued(
    answers: type[Answers], job: dict[str, Any], diagnose: Callable[..., Diagnosis], url: str
) -> Diagnosis:
    plain = answers.do_GET

    def do_get(self: Answers) -> None:
        running = "state=running" in self.path
        self.paths["/v1/jobs"] = (200, {"items": [] if running else [job]})
        plain(self)

    answers.do_GET = do_get  # type: ignore[method-assign]
    try:
        return diagnose("--url", url)
    finally:
        answers.do_GET = plain  # type: ignore[method-assign]


@pytest.mark.usefixtures("_forked")
def test_a_service_on_this_machine(
    diagnose: Callable[..., Diagnosis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret key is for its owner alone, Postgres needs one, and wrong settings are named."""
    monkeypatch.setenv("MODELKIN_DATABASE_URL", f"sqlite:///{tmp_path}/data/modelkin.db")
    found = diagnose("--url", CLOSED)
    assert f"{tmp_path}/data" in found["data folder"]["detail"]
    assert "one that runs may have others" in found["settings"]["detail"]
    assert "ok" == found["secret key"]["state"]
    key = tmp_path / "data" / "secret.key"
    key.parent.mkdir()
    key.write_text("x" * 40)
    key.chmod(0o644)
    assert f"chmod 600 {key}" == diagnose("--url", CLOSED)["secret key"]["remedy"]
    key.chmod(stat.S_IRUSR)
    assert str(key) == diagnose("--url", CLOSED)["secret key"]["detail"]
    monkeypatch.setenv("MODELKIN_DATABASE_URL", "postgresql+psycopg://db/modelkin")
    assert "fail" == diagnose("--url", CLOSED)["secret key"]["state"]
    monkeypatch.setenv("MODELKIN_ENCRYPTION_KEYS", "y" * 40)
    assert "ok" == diagnose("--url", CLOSED)["secret key"]["state"]
    monkeypatch.setenv("MODELKIN_PORT", "many")
    assert "MODELKIN_PORT: " in diagnose("--url", CLOSED)["settings"]["detail"]
    assert "settings" not in diagnose("--url", "http://hub.invalid")


@pytest.mark.slow
def test_a_package_of_yours_called_app_is_not_imported(
    run_anew: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is asked in a process of its own, in which its modules are found first."""
    mine = tmp_path / "mine"
    for folder in (tmp_path / "app", mine / "app"):  # the current folder, and one of the path
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise SystemExit('an app of yours was imported')")
    monkeypatch.setenv("PYTHONPATH", str(mine), prepend=os.pathsep)
    done = run_anew("doctor", "--json", "--url", CLOSED)
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert "ok" == found["data folder"]["state"]
    assert str(tmp_path) in found["data folder"]["detail"]


def test_a_service_that_cannot_be_asked(
    diagnose: Callable[..., Diagnosis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the installed service has no such command, a warning has its last line."""
    for name in ("app", "workers", "migrations"):
        (tmp_path / name).mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    (tmp_path / "app" / "__main__.py").write_text("raise SystemExit('no such command')")
    monkeypatch.setattr("modelkin._server_folder.CLONE", tmp_path)
    found = diagnose("--url", CLOSED)["settings"]
    assert "warn" == found["state"]
    assert found["detail"].endswith("no such command")
