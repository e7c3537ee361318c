"""What the operator's commands print: lines for people, one JSON object for programs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.infra.db.database import Database
from app.infra.db.migrations import require_current
from app.infra.errors import Unavailable
from app.operations.cli import COMMANDS, find_command, running
from app.operations.cli.output import Output
from modelkin import Support
from tests.support.app.backups import Copies
from tests.support.app.harness import AppHarness, open_app
from tests.support.backends import SQLITE
from tests.support.servers.server_process import ROOT, environment

READING = {
    "keys list": {"items"},
    "tenants list": {"items"},
    "keys generate": {"key"},
    "check": {"checks"},
    "migrate": {"before", "after"},
    "verify": {"findings", "models", "seconds"},
    "verify --deep --repair": {"findings", "models", "seconds"},
    "rebuild-buckets": {"spaces"},
    "renew-secrets": {"renewed"},
    "backup {}": {"path", "supports", "copied", "copied_bytes", "missing"},
    "verify --backup {}": {"findings", "backups", "supports", "seconds"},
}
"""Commands that succeed, and the fields of their objects, in an order in which they can."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service is."""
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def app(folder: Path) -> Iterator[AppHarness]:
    """A service with a space of two models, and one of none."""
    with open_app(folder, SQLITE) as app:
        for space in ("full", "empty"):
            app.create_space(space, 1000)
        for model in "ab":
            app.put_support("full", model, Support.from_indices(range(50), 1000))
        yield app


@pytest.fixture
def copies(app: AppHarness, folder: Path) -> Copies:
    """The commands on that service."""
    del app
    return Copies(SQLITE, folder)


def said(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one object on standard output, of a command that has nothing on standard error."""
    assert "" == done.stderr
    (line,) = done.stdout.splitlines()
    answer: dict[str, Any] = json.loads(line)
    return answer


def refused(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one object on standard error, of a command that answers nothing."""
    assert "" == done.stdout
    (line,) = done.stderr.splitlines()
    problem: dict[str, Any] = json.loads(line)
    return problem


@pytest.mark.slow
def test_every_command_answers_one_object(copies: Copies, tmp_path: Path) -> None:
    """With ``--json`` each prints its fields and its notes, and nothing else anywhere."""
    for line, fields in READING.items():
        words = line.format(tmp_path / "copies").split()
        done = copies.run(*words, "--json")
        assert (0, fields | {"notes"}) == (done.returncode, set(said(done))), line
    assert set(COMMANDS) == {line.split()[0] for line in READING} | {"restore"}


def test_migrate_makes_the_tables_once(tmp_path: Path) -> None:
    """An empty database gets them, which --no-migrate requires; another run changes nothing."""
    with closing(Database(SQLITE.url(tmp_path), timeout=10)) as database:
        with pytest.raises(Unavailable, match="run `python -m app migrate`"):
            require_current(database)
        fresh = Copies(SQLITE, tmp_path)
        first, second = (said(fresh.run("migrate", "--json")) for _ in range(2))
        require_current(database)
    assert None is first["before"]
    assert {"before": first["after"], "after": first["after"], "notes": []} == second


def test_a_restoration_answers_one_object(copies: Copies, tmp_path: Path) -> None:
    """What was restored, and the supports that were missing when it was made."""
    copies.back_up(tmp_path / "copies")
    restored = Copies(SQLITE, tmp_path / "new").run("restore", tmp_path / "copies", "--json")
    answer = said(restored)
    assert ({"made_at", "supports", "missing", "notes"}, 2) == (set(answer), answer["supports"])


def test_a_key_from_its_making_to_its_end(copies: Copies) -> None:
    """The fields are those of the HTTP API, and the tenant; the key itself is shown once."""
    flags = "--tenant=labs", "--label=night", "--scope=read", "--valid-for=90d", "--json"
    made = said(copies.run("keys", "create", *flags))
    assert made["key"].startswith(made["prefix"])
    assert ["Keep it: it is not stored, and not shown again."] == made.pop("notes")
    del made["key"]
    listed = {each["prefix"]: each for each in said(copies.run("keys", "list", "--json"))["items"]}
    assert made == listed[made["prefix"]]
    assert ("labs", "night", ["read"], "valid", None) == tuple(
        made[name] for name in ("tenant", "label", "scopes", "state", "last_used_at")
    )
    revoked = said(copies.run("keys", "revoke", made["prefix"], "--json"))
    assert {"key": made["prefix"], "notes": []} == revoked
    again = copies.run("keys", "revoke", made["prefix"], "--json")
    assert (1, "key_not_found") == (again.returncode, refused(again)["code"])


def test_quotas_are_numbers(copies: Copies) -> None:
    """What is used, what is allowed and whether that is the tenant's own; null is unlimited."""
    changed = copies.run("tenants", "set", "default", "--models=none", "--spaces=9", "--json")
    quotas = said(changed)["quotas"]
    assert {"used": 2, "limit": None, "own": True} == quotas["models"]
    assert {"used": 2, "limit": 9, "own": True} == quotas["spaces"]
    (listed,) = said(copies.run("tenants", "list", "--tenant=default", "--json"))["items"]
    assert ("default", quotas) == (listed["tenant"], listed["quotas"])
    back = said(copies.run("tenants", "set", "default", "--models=default", "--json"))
    assert {"used": 2, "limit": 10_000_000, "own": False} == back["quotas"]["models"]


def test_each_space_has_its_result(copies: Copies) -> None:
    """Its models and its banding, by the name of the space."""
    rebuilt = said(copies.run("rebuild-buckets", "--json"))["spaces"]
    spaces = {each["space"]: each for each in rebuilt}
    assert {"full": 2, "empty": 0} == {name: each["models"] for name, each in spaces.items()}
    [alone] = said(copies.run("rebuild-buckets", "--space=full", "--json"))["spaces"]
    assert spaces["full"] == alone


def test_findings_are_an_answer(app: AppHarness, tmp_path: Path, folder: Path) -> None:
    """A file that is gone is a finding with exit code 1, and no error."""
    del app
    copies = Copies(SQLITE, folder)
    copies.back_up(tmp_path / "copies")
    other = Copies(SQLITE, tmp_path / "new")
    other.put_back(tmp_path / "copies")
    gone = next(path for path in (tmp_path / "new" / "blobs").rglob("*/1/*/*") if path.is_file())
    gone.unlink()
    done = other.run("verify", "--json")
    finding = said(done)["findings"][0]
    assert (1, {"subject", "problem", "repaired"}) == (done.returncode, finding.keys())
    assert (True, False) == ("model" in finding["subject"], finding["repaired"])


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("tenants set nemo --models 2", "not_found"),
        ("tenants list --tenant nemo", "not_found"),
        ("keys create --valid-for 1y", "invalid_parameter"),
        ("rebuild-buckets --space nowhere", "space_not_found"),
        ("restore nowhere", "not_found"),
    ],
)
def test_an_error_is_one_object(copies: Copies, words: str, code: str) -> None:
    """It has the title, code and detail of a problem document; the exit code is 1."""
    done = copies.run(*words.split(), "--json")
    problem = refused(done)
    assert (1, code) == (done.returncode, problem["code"])
    plain = copies.run(*words.split())
    assert f"modelkin: {problem['detail']}\n" == plain.stderr
    assert {"title", "code", "detail"} == problem.keys()


def test_wrong_settings_are_one_object(folder: Path) -> None:
    """All of them are in its detail, and the exit code is 2."""
    done = Copies(SQLITE, folder, port="many", processes="few").run("keys", "list", "--json")
    problem = refused(done)
    assert (2, "invalid_settings") == (done.returncode, problem["code"])
    assert all(name in problem["detail"] for name in ("MODELKIN_PORT", "MODELKIN_PROCESSES"))


def test_a_new_database_is_noted(tmp_path: Path) -> None:
    """A command that lacks the settings of the service makes another database, and says so.

    Where nothing can be to copy, to verify or to list, it makes none.
    """
    copies = Copies(SQLITE, tmp_path, database_url=f"sqlite:///{tmp_path}/new/m.db")
    for words in (["verify"], ["backup", "copies"], ["keys", "list"], ["tenants", "list"]):
        done = copies.run(*words)
        assert (1, True) == (done.returncode, "there is no database at" in done.stderr)
    assert not (tmp_path / "new").exists()
    first, second = (copies.run("keys", words) for words in ("create", "list"))
    assert f"modelkin: this made a new database, {tmp_path}/new/m.db: for" in first.stderr
    assert "MODELKIN_DATABASE_URL" in first.stderr
    assert (0, 0, "") == (first.returncode, second.returncode, second.stderr)


def test_a_variable_that_is_no_setting_is_a_note(app: AppHarness, folder: Path) -> None:
    """Beside an answer it is in the notes, and without ``--json`` on standard error."""
    del app
    copies = Copies(SQLITE, folder, prot="1")
    (note,) = said(copies.run("keys", "list", "--json"))["notes"]
    assert "did you mean MODELKIN_PORT?" in note
    assert f"modelkin: {note}\n" == copies.run("keys", "list").stderr


@pytest.mark.parametrize("words", ["keys create --scope all", "keys", "keys list --tenants x"])
def test_a_wrong_command_line_is_one_line_or_one_object(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the help that says more; the exit code is 2, and nothing is done."""
    name, *rest = words.split()
    command = find_command(name)
    assert command is not None
    ends: list[str] = []
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            command([*rest, *more])
        assert 2 == ended.value.code
        ends.append(capsys.readouterr().err)
    (line,), problem = ends[0].splitlines(), json.loads(ends[1])
    assert "usage" == problem["code"]
    assert problem["detail"].removesuffix(" --json") in line
    assert line.endswith(f"({problem['help']})")


def interrupted(_: argparse.Namespace, __: Output) -> int:
    """A command that Ctrl-C ends."""
    raise KeyboardInterrupt


def unreadable(_: argparse.Namespace, __: Output) -> int:
    """A command that meets a disk that fails."""
    raise OSError(5, "Input/output error", "/srv/file")


@pytest.mark.parametrize(
    ("command", "code", "detail"),
    [(interrupted, 130, "interrupted"), (unreadable, 1, "/srv/file: Input/output error")],
)
def test_an_end_from_outside_is_one_line(
    command: Any, code: int, detail: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither Ctrl-C nor an error of the system leaves a traceback."""
    assert code == running.run_command(argparse.Namespace(run=command, json=False))
    assert f"modelkin: {detail}\n" == capsys.readouterr().err


@pytest.mark.slow
def test_a_reader_may_leave(folder: Path, copies: Copies) -> None:
    """Where the pipe is closed, as by ``head``, the command ends without a traceback."""
    del copies
    code = "import sys; from app.operations.cli import keys; sys.exit(keys.run(['list']))"
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment(MODELKIN_DATABASE_URL=SQLITE.url(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    started.stdout.close()
    assert started.stderr is not None
    assert (1, "") == (started.wait(60), started.stderr.read())
    started.stderr.close()
