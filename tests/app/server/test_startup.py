"""Starting and stopping: what cannot be is said in one line, with an exit code, no traceback."""

from __future__ import annotations

import io
import logging
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from sqlalchemy import make_url, text

import modelkin
from app.infra.db.database import Database
from app.infra.db.engines import redact_url
from app.infra.db.migrations import migrate
from app.operations.cli import COMMANDS
from app.removed import SETTINGS as REMOVED
from app.server.announcement import announce, lines
from app.setting_messages import unknown_variables, validation_messages
from app.settings import Settings
from tests.support.app.harness import settings_of
from tests.support.backends import Backend, EmptyBackend
from tests.support.blob_files import blob_files
from tests.support.fixtures import Start
from tests.support.servers import forkserver
from tests.support.servers.postgres import Postgres, postgres_server
from tests.support.servers.server_process import ROOT, Server, environment


def run(*flags: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """The service where it is expected not to start."""
    return forkserver.run("app", *flags, env=environment(**settings))


def assert_refused(ended: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    """It ended with ``code`` and one line of its own that says why."""
    lines = [line for line in ended.stderr.splitlines() if line.startswith("modelkin: ")]
    assert (code, 1) == (ended.returncode, len(lines)), ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    for word in said:
        assert word in lines[0]


@pytest.fixture
def occupied(tmp_path: Path) -> Path:
    """A regular file, below which not even root can make a folder."""
    file = tmp_path / "file"
    file.write_text("occupied")
    return file


def test_a_data_folder_that_cannot_be_made_is_named(occupied: Path) -> None:
    """A path below a regular file cannot hold a database."""
    ended = run(f"--database-url=sqlite:///{occupied}/data/m.db", "--port=0")
    assert_refused(ended, 1, str(occupied), "data folder")


def test_a_data_folder_that_cannot_be_written_is_named() -> None:
    """/proc takes no files from anyone, as a read-only file system does not."""
    ended = run("--database-url=sqlite:////proc/m.db", "--port=0")
    assert_refused(ended, 1, "/proc", "database")


def test_a_blob_folder_that_cannot_be_made_is_named(tmp_path: Path, occupied: Path) -> None:
    """Supports need a place that can be written before the first one comes."""
    flags = f"--database-url=sqlite:///{tmp_path}/m.db", f"--blob-url=file://{occupied}/blobs"
    assert_refused(run(*flags, "--port=0"), 1, f"{occupied}/blobs")


def test_a_file_that_is_no_database_is_named(occupied: Path) -> None:
    """A file of something else is refused, and left as it is."""
    occupied.write_bytes(b"this is a diary, not a database" * 100)
    before = occupied.read_bytes()
    ended = run(f"--database-url=sqlite:///{occupied}", "--port=0")
    assert_refused(ended, 1, "database")
    assert before == occupied.read_bytes()


def test_a_database_of_a_newer_version_is_refused(database: Database) -> None:
    """A revision this version does not know is left alone, with or without migrations."""
    migrate(database)
    with database.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    url = database.url.render_as_string()
    for flag in ("--migrate", "--no-migrate"):
        ended = run(f"--database-url={url}", "--port=0", flag)
        assert_refused(ended, 1, "newer", "9999", url)


def test_no_migrate_refuses_an_empty_database(backend: Backend, tmp_path: Path) -> None:
    """Without leave to migrate, a database without tables is an older version."""
    ended = run(f"--database-url={backend.url(tmp_path)}", "--port=0", "--no-migrate")
    assert_refused(ended, 1, "older", "--no-migrate")


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Postgres]:
    """A Postgres server to be set up wrongly."""
    with postgres_server() as server:
        yield server


@pytest.mark.postgres
@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit", "full_page_writes"])
def test_a_forgetful_Postgres_is_refused(forgetful: Postgres, setting: str) -> None:
    """A server that would lose what was acknowledged is named with the setting to change."""
    forgetful.execute("ALTER SYSTEM RESET ALL")
    forgetful.execute(f"ALTER SYSTEM SET {setting} = off")
    forgetful.execute("SELECT pg_reload_conf()")
    ended = run(f"--database-url={forgetful.url()}", "--port=0")
    assert_refused(ended, 1, f"{setting} = off", "set it to on")


def test_a_Postgres_that_is_down_is_named(tmp_path: Path) -> None:
    """If no server listens, one line gives the address and the reason, but not the password."""
    url = f"postgresql+psycopg://postgres:swordfish@/none?host={tmp_path}"
    ended = run(f"--database-url={url}", "--port=0")
    assert_refused(ended, 1, "cannot connect", str(tmp_path))
    assert "swordfish" not in ended.stderr


def test_a_Postgres_database_that_is_not_there_is_named(postgres: Postgres) -> None:
    """A name that the server does not know is in the line."""
    ended = run(f"--database-url={postgres.url('nowhere')}", "--port=0")
    assert_refused(ended, 1, "nowhere", "does not exist")


@pytest.mark.slow
def test_no_migrate_serves_what_is_up_to_date(tmp_path: Path, start: Start) -> None:
    """Once migrated, a database is served without leave to migrate."""
    start().stop()
    assert 200 == httpx.get(f"{start('--no-migrate').url}/readyz").status_code


def test_a_port_that_is_taken_is_an_exit_of_1(tmp_path: Path) -> None:
    """One line names the address and the flag that helps, before anything is opened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(f"--database-url=sqlite:///{tmp_path}/m.db", f"--port={port}")
    assert 1 == ended.returncode
    (line,) = ended.stderr.splitlines()
    assert f"port {port} of 127.0.0.1 is in use" in line
    assert "--port" in line
    assert [] == list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_operator_first_sees_two_lines(tmp_path: Path) -> None:
    """Address, explorer, keys; store, data folder, workers: each is said, and is true."""
    server = Server(tmp_path).start()
    server.kill()
    said = server.log.read_text()
    first, second = said[said.index("\nmodelkin ") + 1 :].splitlines()[:2]
    assert f" on {server.url}: the explorer is {server.url}/" in first
    assert "no keys needed" in first
    assert f"store: SQLite {tmp_path}/" in second
    assert f"data in {tmp_path}" in second
    assert "workers: one, 6 jobs at a time" in second


def test_what_is_said_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No browser opens 0.0.0.0, and a relative path does not say which folder it is in."""
    monkeypatch.chdir(tmp_path)
    for host in ("0.0.0.0", "::", ""):
        first, second = lines(Settings(host=host, database_url="sqlite:///./data/m.db"), 8000)
        assert "on http://localhost:8000 and all addresses of this machine: " in first
        assert "explorer is http://localhost:8000/," in first
        assert f"store: SQLite {tmp_path}/data/m.db, " in second
    assert "on http://[::1]:8000: " in lines(Settings(host="::1"), 8000)[0]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["modelkin serve", "python -m app"])
def test_hints_go_on_with_the_command_that_began(program: str, tmp_path: Path) -> None:
    """``modelkin serve`` says so to the service, whose help and messages then name it."""
    url = f"--database-url=sqlite:///{tmp_path}/m.db"
    known = {"MODELKIN_PROGRAM": program} if program.startswith("modelkin") else {}
    assert f"`{program} keys create`" in run(url, "--host=0.0.0.0", **known).stderr
    assert f"usage: {program} [FLAGS]" in run("--help", **known).stdout
    assert f"(see {program} --help)" in run("--nonsense", **known).stderr


def test_in_a_log_of_json_the_two_lines_are_records(tmp_path: Path) -> None:
    """A machine that reads the log meets nothing but JSON."""
    settings = settings_of(tmp_path, log_format="json", auth="required", embedded_worker="off")
    with pytest.MonkeyPatch.context() as patch:
        written = io.StringIO()
        patch.setattr(sys, "stderr", written)
        patch.setattr(logging.getLogger("app"), "handlers", [])
        announce(settings, 8000)
        assert "" == written.getvalue()
    assert "requests need a key" in lines(settings, 8000)[0]
    assert "`python -m workers`" in lines(settings, 8000)[1]


@pytest.mark.parametrize(
    ("url", "redis", "said"),
    [
        ("postgresql+psycopg://me:secret@db:5433/kin", None, "Postgres db:5433/kin,"),
        ("postgresql+psycopg://db/kin", "redis://cache:6379", "Postgres db/kin and Redis,"),
    ],
)
def test_the_two_lines_show_no_password(url: str, redis: str | None, said: str) -> None:
    """Of a database on a server host, port and name are shown."""
    second = lines(Settings(database_url=url, redis_url=redis), 8000)[1]
    assert said in second
    assert "secret" not in second


WRONG = {
    "MODELKIN_PORT": ["x", "-1", "65536", "1.5"],
    "MODELKIN_DATABASE_URL": ["", "nonsense", "mysql://a/b", "sqlite://", "sqlite:///:memory:"],
    "MODELKIN_BLOB_URL": [
        "ftp://host/folder",
        "s3:bucket",
        "blobs",
        "file:relative",
        "file://",
        "file://data/blobs",
    ],
    "MODELKIN_PROCESSES": ["0", "-1", "many"],
    "MODELKIN_MIGRATE": ["maybe"],
    "MODELKIN_MAX_JSON_BYTES": ["0", "1.5", "1 MiB"],
    "MODELKIN_MAX_BODY_BYTES": ["-1", "x"],
    "MODELKIN_BLOB_CACHE_BYTES": ["0", "67108863", "-1", "x"],
    "MODELKIN_BODY_TIMEOUT_SECONDS": ["0", "-1", "nan", "soon"],
    "MODELKIN_DATABASE_TIMEOUT_SECONDS": ["0", "nan", "x"],
    "MODELKIN_RATE_LIMIT": ["0", "-1", "1.5", "60/minute"],
    "MODELKIN_WRITE_RATE_LIMIT": ["0", "many"],
    "MODELKIN_TRUSTED_PROXIES": ["proxy.example", "10.0.0.7/8", "10.0.0.7;10.0.0.8"],
    "MODELKIN_LOG_LEVEL": ["loud", ""],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is wrong with a variable, its name is in one line, and the exit code is 2."""
    from app import __main__ as program

    monkeypatch.setattr("sys.argv", ["app", "--port=0"] if name != "MODELKIN_PORT" else ["app"])
    for value in WRONG[name]:
        monkeypatch.setenv(name, value)
        assert 2 == program.main(), value
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"modelkin: {name}: ")


@pytest.mark.parametrize(
    "url",
    [
        "hunter2",
        "postgresql+psycopg:u:hunter2@h/db",
        "postgresql+psycopg://u:x@h:hunter2/db",
        "postgresql+psycopg://u:x@hunter2@h/db",
        "mysql://u:hunter2@h/db",
    ],
)
def test_a_database_URL_that_is_refused_is_not_shown(url: str) -> None:
    """Its text may hold a password, wherever a typing error has put it."""
    with pytest.raises(ValidationError) as raised:
        Settings(database_url=url)
    (line,) = validation_messages(raised.value)
    assert line.startswith("MODELKIN_DATABASE_URL: ")
    assert "hunter2" not in line


def test_a_database_is_named_without_its_password() -> None:
    """Whether that stands before the host or among the parameters."""
    url = make_url("postgresql+psycopg://u:hunter2@h:5/db?password=hunter2&sslmode=require")
    assert "postgresql+psycopg://u:***@h:5/db?sslmode=require" == redact_url(url)


def test_a_wrong_setting_ends_the_process_with_2() -> None:
    """The same as a process: exit code 2 and nothing but the line."""
    ended = run(MODELKIN_PORT="x")
    assert_refused(ended, 2, "MODELKIN_PORT")
    assert 1 == len(ended.stderr.splitlines())


def test_a_wrong_flag_is_named() -> None:
    """The flag where it came from the flag, and the variable where it did not."""
    for flags in (["--max-json-bytes=few"], ["--max-json-bytes", "few"]):
        assert_refused(
            run(*flags, MODELKIN_MAX_JSON_BYTES="9999"), 2, "modelkin: --max-json-bytes: "
        )
    ended = run("--port=0", "--no-migrate", MODELKIN_MAX_JSON_BYTES="few")
    assert_refused(ended, 2, "modelkin: MODELKIN_MAX_JSON_BYTES: ")


def test_unknown_variables_are_named() -> None:
    """Each is named with the setting that it may stand for; what others read is left alone."""
    given = {
        *("MODELKIN_RATE_LIMITS", "MODELKIN_DATABASE", "modelkin_poort", "MODELKIN_COLOUR"),
        *("MODELKIN_URL", "MODELKIN_API_KEY", "MODELKIN_KERNELS", "MODELKIN_PORT", "PATH"),
        *("modelkin_host", "MODELKINS"),
    }
    assert unknown_variables(given) == [
        "MODELKIN_COLOUR is not a setting, and is ignored",
        "MODELKIN_DATABASE is not a setting, and is ignored; did you mean MODELKIN_DATABASE_URL?",
        "MODELKIN_RATE_LIMITS is not a setting, and is ignored; did you mean MODELKIN_RATE_LIMIT?",
        "modelkin_poort is not a setting, and is ignored; did you mean MODELKIN_PORT?",
    ]


def test_a_removed_setting_is_named_with_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its prefix and its case: one line says what it was, and that it can go."""
    removed = {"MODELKIN_PORTER": "the port of a door", "DOOR_SIZE": "the size of it"}
    monkeypatch.setattr("app.setting_messages.REMOVED", removed)
    assert unknown_variables(["DOOR_SIZE", "modelkin_porter", "DOOR"]) == [
        "DOOR_SIZE was the size of it; it is ignored, and can go",
        "modelkin_porter was the port of a door; it is ignored, and can go",
    ]


def test_no_removed_setting_is_one() -> None:
    """What the service reads is not named as removed."""
    assert not set(REMOVED) & {f"MODELKIN_{name.upper()}" for name in Settings.model_fields}


NOT_SETTINGS = ("Dockerfile", "compose.yaml")


@pytest.mark.parametrize("file", NOT_SETTINGS)
def test_the_image_sets_known_variables_alone(file: str) -> None:
    """No variable of the image and of the compose file warns."""
    named = re.findall(r"\bMODELKIN_\w+", (ROOT / file).read_text())
    assert named
    assert not unknown_variables(named)


@pytest.mark.slow
def test_an_unknown_variable_is_a_warning_at_start(tmp_path: Path) -> None:
    """The service starts, and its log names the variable, not its value."""
    secret = "mk_secret"
    service = Server(tmp_path, MODELKIN_INITIAL_KEYS=secret).start()
    assert 0 == service.stop()
    (line,) = [line for line in service.log.read_text().splitlines() if "WARNING" in line]
    assert line.endswith("is ignored; did you mean MODELKIN_INITIAL_KEY?")
    assert secret not in service.log.read_text()


def test_an_unknown_flag_is_an_exit_of_2() -> None:
    """An unknown flag or command is one line, with the one that may be meant."""
    for flag, said in (
        ("--nonsense", "unknown flag '--nonsense' (see"),
        ("--prot=1", "unknown flag '--prot'; did you mean --port?"),
        ("kyes", "unknown command 'kyes'; did you mean keys?"),
    ):
        ended = run(flag)
        (line,) = ended.stderr.splitlines()
        assert (2, "") == (ended.returncode, ended.stdout)
        assert line.startswith(f"python -m app: {said}"), line
        assert line.endswith("(see python -m app --help)")


def test_the_service_says_its_version() -> None:
    """``--version`` prints it and starts nothing."""
    ended = run("--version")
    assert (0, f"modelkin {modelkin.__version__}\n") == (ended.returncode, ended.stdout)


def test_help_lists_every_setting() -> None:
    """``--help`` names each flag, and ends well."""
    ended = run("--help")
    assert 0 == ended.returncode
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')}" in ended.stdout
    assert "null" not in ended.stdout


def test_help_lists_every_command() -> None:
    """Each has a line in ``--help``, and each of these lines names a command."""
    said = run("--help").stdout.partition("commands:")[2]
    listed = [line.split()[0] for line in said.splitlines() if line]
    assert sorted(COMMANDS) == sorted(listed)


def test_variables_set_what_flags_do_not(tmp_path: Path) -> None:
    """``MODELKIN_*`` variables are read, a flag goes before them, defaults come last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELKIN_PORT", "1234")
        patch.setenv("MODELKIN_BODY_TIMEOUT_SECONDS", "2.5")
        patch.setenv("MODELKIN_DATABASE_URL", f"sqlite:///{tmp_path}/other.db")
        patch.setenv("MODELKIN_MIGRATE", "false")
        settings = Settings.from_command_line(["--port", "99"])
    assert (99, 2.5, False, tmp_path / "blobs", "127.0.0.1") == (
        settings.port,
        settings.body_timeout_seconds,
        settings.migrate,
        settings.blob_dir,
        settings.host,
    )


@pytest.mark.slow
def test_supports_lie_where_the_blob_url_says(tmp_path: Path, start: Start) -> None:
    """``--blob-url`` moves the supports away from the database."""
    elsewhere = tmp_path / "elsewhere"
    server = start(f"--blob-url=file://{elsewhere}")
    httpx.post(f"{server.url}/v1/spaces", json={"name": "s", "num_parameters": 9})
    answer = httpx.put(f"{server.url}/v1/spaces/s/supports/a", json={"indices": [1, 5]})
    assert 201 == answer.status_code
    assert 1 == len(blob_files(elsewhere))


@pytest.mark.slow
@pytest.mark.parametrize("signal", [2, 15])
def test_a_service_that_is_told_to_stop_ends_with_0(start: Start, signal: int) -> None:
    """SIGINT and SIGTERM end it cleanly, and leave a SQLite database in one file."""
    server = start()
    server.process.send_signal(signal)
    assert 0 == server.wait()
    assert "Traceback" not in server.log.read_text()
    files = sorted(path.name for path in server.folder.glob("m.db*"))
    assert files == (["m.db"] if server.database_url.startswith("sqlite") else [])


@pytest.mark.slow
def test_two_services_may_start_on_one_database_at_once(backend: Backend, tmp_path: Path) -> None:
    """One migrates, the other waits; both serve, and each sees what the other has stored."""
    servers = [Server(tmp_path, backend=EmptyBackend(backend)) for _ in range(2)]
    for server, name in zip(servers, "ab", strict=True):
        server.log = tmp_path / f"{name}.log"
    try:
        for server in servers:
            server.launch()
        first, second = (server.wait_until_ready().url for server in servers)
        httpx.post(f"{first}/v1/spaces", json={"name": "s", "num_parameters": 9})
        httpx.put(f"{second}/v1/spaces/s/supports/a", json={"indices": [1, 5]})
        httpx.put(f"{first}/v1/spaces/s/supports/b", json={"indices": [1, 7]})
        for url in (first, second):
            found = httpx.get(f"{url}/v1/spaces/s/neighbors", params={"model": "a"}).json()
            assert [("b", 0.5)] == [(i["model"], i["similarity"]) for i in found["items"]]
    finally:
        for server in servers:
            server.kill()
