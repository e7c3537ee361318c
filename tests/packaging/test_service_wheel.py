"""The service's wheel: `modelkin serve` and embedded clients without a clone of the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from modelkin._version import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

FIVE_LINES = """
import modelkin
with modelkin.Client(":memory:") as client:
    client.ensure_space("a", num_parameters=1000)
    for at in range(3): client.put_support("a", f"m{at}", modelkin.Support.from_indices(range(at, 500 + at), 1000))
    print([neighbor.model for neighbor in client.neighbors("a", "m0", k=2)])
import sys
assert not {"app", "workers"} & set(sys.modules)
"""  # noqa: E501


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def site(
    distributions: Path, release: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with what docs/versions.md installs; all else that it requires is here already."""
    folder = tmp_path_factory.mktemp("site")
    *install, found_in, asked = next(words for words in release if "--find-links" in words)
    assert ["pip", "install", "--find-links", "dist"] == [*install, found_in]
    pip = [sys.executable, "-m", *install, str(distributions)]
    options = "-q", "--no-index", "--no-deps", "--target", folder
    run(*pip, *options, asked, required_by_extra(), cwd="/")
    return folder


def required_by_extra() -> str:
    """The requirement of ``modelkin[server]``."""
    sdk = tomllib.loads((ROOT / "client_sdk" / "pyproject.toml").read_text())["project"]
    [server] = sdk["optional-dependencies"]["server"]
    return str(server)


@pytest.fixture
def environment(site: Path, tmp_path: Path) -> dict[str, str]:
    """Python finds the installed packages first, and a user's module called ``app`` beside them."""
    (tmp_path / "app.py").write_text("raise SystemExit('the user\\'s app was imported')")
    (tmp_path / "workers.py").write_text("raise SystemExit('the user\\'s workers were imported')")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MODELKIN_")}
    return kept | {"PYTHONPATH": str(site)}


def test_nothing_called_app_is_at_the_top(site: Path) -> None:
    """The packages of the service are inside one folder, with migrations and pages."""
    names = {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")}
    assert {"modelkin", "modelkin_service", "bin"} == names
    inside = site / "modelkin_service"
    assert {"app", "workers", "migrations"} == {path.name for path in inside.iterdir()}
    assert (inside / "app" / "ui" / "templates" / "base.html").is_file()
    assert (inside / "migrations" / "versions" / "0026_schema_of_0_1_0.py").is_file()
    missing = [
        path
        for path in run("git", "ls-files", "app", "workers", "migrations", cwd=ROOT).stdout.split()
        if not (inside / path).is_file()
    ]
    assert [] == missing


@pytest.mark.long
def test_five_lines_to_the_first_neighbours(environment: dict[str, str], tmp_path: Path) -> None:
    """An embedded service of the installed package answers; no module of it is imported here."""
    done = run(sys.executable, "-c", FIVE_LINES, env=environment, cwd=tmp_path)
    assert "['m1', 'm2']\n" == done.stdout


def test_serve_needs_no_clone(environment: dict[str, str], site: Path, tmp_path: Path) -> None:
    """`modelkin serve` runs the package beside a user's own ``app.py``, with all its commands."""
    command = sys.executable, "-m", "modelkin", "serve"
    helped = run(*command, "--help", env=environment, cwd=tmp_path).stdout
    assert "usage: modelkin serve" in helped
    assert re.search("^  workers +carry out jobs", helped, re.MULTILINE)
    made = run(*command, "keys", "create", env=environment, cwd=tmp_path).stdout
    assert re.fullmatch(r"mk_\w{49}\n", made)
    assert (tmp_path / "modelkin-data" / "modelkin.db").is_file()


def test_commands_are_named_as_they_are_typed(environment: dict[str, str], tmp_path: Path) -> None:
    """Help and messages name ``modelkin serve``; ``doctor`` imports no ``app.py`` of the user."""
    command = sys.executable, "-m", "modelkin"
    helped = run(*command, "serve", "keys", "--help", env=environment, cwd=tmp_path).stdout
    assert "usage: modelkin serve keys" in helped
    closed = "doctor", "--json", "--url", "http://127.0.0.1:9"
    done = subprocess.run(
        [*command, *closed], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert "ok" == found["data folder"]["state"]
    assert "`modelkin serve`" in found["service"]["remedy"]


def test_both_distributions_have_one_version() -> None:
    """The extra ``server`` asks for the service of the SDK's own version."""
    assert f"modelkin-service[clustering,fast,objects]=={__version__}" == required_by_extra()
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]
    assert f"\n## {__version__} - " in (ROOT / "CHANGELOG.md").read_text()
