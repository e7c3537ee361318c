"""docs/recipes.md: what its files name is there, and systemd and nginx take theirs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from app.operations.cli import COMMANDS
from app.server.server import KEEP_ALIVE_S
from app.setting_messages import unknown_variables
from app.settings import Settings
from modelkin.cli.catalogue import leaves
from tests.docs.recipes import files as recipes
from tests.docs.recipes.files import FOLDER, directives, passes

PAGE = FOLDER.parent / "recipes.md"
FILES = sorted(FOLDER.iterdir())
UNITS = [file.name for file in FILES if file.suffix == ".service"]
PROGRAM = "/opt/modelkin/bin/modelkin"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_is_on_the_page(file: Path) -> None:
    """Each is linked, and its text is shown where it is not too long to read."""
    page = PAGE.read_text()
    assert f"](recipes/{file.name})" in page
    assert (f"\n{file.read_text()}```\n" in page) is (file.suffix != ".json")


@pytest.mark.parametrize("file", [PAGE, *FILES], ids=lambda file: file.name)
def test_every_setting_is_one(file: Path) -> None:
    """The service warns of no variable that a file names."""
    assert not unknown_variables(set(re.findall(r"\bMODELKIN_[A-Z_]+[A-Z]", file.read_text())))


@pytest.mark.parametrize("file", [PAGE, *FILES], ids=lambda file: file.name)
def test_every_command_is_one(file: Path) -> None:
    """Of the service, of the workers or of the client; with its action where it has some."""
    text = file.read_text()
    of_the_service = re.findall(r"(?:modelkin serve|python -m app) ([a-z][\w-]*)", text)
    assert set(of_the_service) <= set(COMMANDS)
    known = {name for name, _ in leaves()}
    for words in re.findall(r"`modelkin ([a-z]+(?: [a-z]+)?)", text):
        assert words in known or words.split()[0] == "serve", words


def test_the_settings_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are valid, keys are required, and what is stored is in the folder of the unit."""
    for name, value in recipes.variables("modelkin.env").items():
        monkeypatch.setenv(name, value)
    settings = Settings(_env_file=None)
    [folder] = recipes.unit("modelkin.service")["StateDirectory"]
    assert settings.keys_required
    assert f"/var/lib/{folder}/blobs" == str(settings.blob_dir)


def test_the_units_begin_what_is_installed() -> None:
    """Service and backup are commands of the service, of one user, who has the settings."""
    for name in UNITS:
        unit = recipes.unit(name)
        assert ["/etc/modelkin.env"] == unit["EnvironmentFile"]
        assert ["modelkin"] == unit["User"]
        for line in unit["ExecStart"]:
            program, serve, *words = line.split()
            assert (PROGRAM, "serve") == (program, serve)
            assert not words or words[0] in COMMANDS


def test_budgets_fit_the_memory_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All budgets together, as docs/capacity.md adds them up, are below MemoryMax."""
    for name, value in recipes.variables("modelkin.env").items():
        monkeypatch.setenv(name, value)
    settings = Settings(_env_file=None)
    shared = settings.index_memory_bytes + settings.max_inflight_body_bytes
    supports = settings.support_cache_bytes + 3 * 8 * settings.max_ingested_indices
    fixed = (2 * 70) << 20  # processes that read JSON
    [most] = recipes.unit("modelkin.service")["MemoryMax"]
    assert most.endswith("G")
    assert 1.25 * shared + supports + fixed < int(most[:-1]) << 30


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Without a warning, and with an exposure below 2 of 10."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    units = [file for file in FILES if file.suffix in {".service", ".timer"}]
    for file in units:
        text = file.read_text().replace(PROGRAM, sys.executable)
        (tmp_path / file.name).write_text(text)
    paths = [str(tmp_path / file.name) for file in units]
    passes("systemd-analyze", "verify", "--man=no", *paths)
    for name in UNITS:
        exposed = "security", "--offline=yes", "--threshold=20", str(tmp_path / name)
        passes("systemd-analyze", *exposed)


def test_nginx_passes_on_what_the_service_takes() -> None:
    """Path, address and largest body are those of the settings."""
    env = recipes.variables("modelkin.env")
    prefix = env["MODELKIN_ROOT_PATH"]
    within = {words[1]: words[2:] for words in directives() if f"location {prefix}/" in words[0]}
    assert ("http://modelkin",) == within["proxy_pass"]
    assert within["client_max_body_size"][0].endswith("m")
    largest = int(within["client_max_body_size"][0][:-1]) << 20
    assert largest > Settings.model_fields["max_body_bytes"].default
    servers = [words[2] for words in directives() if words[:2] == ("upstream modelkin", "server")]
    assert [f"{env['MODELKIN_HOST']}:{env['MODELKIN_PORT']}"] == servers
    places = {words[0].partition("location ")[2].lstrip("= ") for words in directives()} - {""}
    assert {prefix, f"{prefix}/", f"{prefix}/metrics"} == places
    assert env["MODELKIN_TRUSTED_PROXIES"] == env["MODELKIN_HOST"]


@pytest.mark.parametrize("name", ["nginx.conf", "nginx-spaces.conf", "Caddyfile"])
def test_proxies_end_idle_connections_before_the_service(name: str) -> None:
    """Also before one that stops, whose drain is shorter than its idle connections stay."""
    (seconds,) = re.findall(r"keepalive(?:_timeout)? (\d+)s", (FOLDER / name).read_text())
    assert int(seconds) < Settings(_env_file=None, processes=2).drain < KEEP_ALIVE_S


def test_nginx_hashes_the_name_of_the_space() -> None:
    """Of each path of the service that has one; the other paths go anywhere."""
    text = (FOLDER / "nginx-spaces.conf").read_text()
    (pattern,) = re.findall(r'"~(\S+)" \$space;', text)
    for path in json.loads((FOLDER.parent / "openapi.json").read_text())["paths"]:
        found = re.match(pattern.replace("?<", "?P<"), path)
        assert ("{space}" if "/{space}" in path else None) == (found and found["space"]), path


@pytest.mark.parametrize("name", ["nginx.conf", "nginx-spaces.conf"])
def test_nginx_takes_its_file(tmp_path: Path, name: str) -> None:
    """With a certificate where the file wants one."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed")
    names = "-keyout", str(tmp_path / "privkey.pem"), "-out", str(tmp_path / "fullchain.pem")
    passes("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kin", *names)
    text = (FOLDER / name).read_text().replace("/etc/ssl/modelkin", str(tmp_path))
    (tmp_path / "site.conf").write_text(text)
    main = tmp_path / "nginx.conf"
    kinds = "client_body", "proxy", "fastcgi", "uwsgi", "scgi"
    places = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    http = f"access_log off; {places} include {tmp_path}/site.conf;"
    main.write_text(f"pid {tmp_path}/pid; events {{}} http {{ {http} }}")
    passes("nginx", "-t", "-q", "-p", str(tmp_path), "-c", str(main), "-e", f"{tmp_path}/errors")
