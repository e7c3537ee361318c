"""The extras that a service lacks: said at its start and by ``check``, with the line for each."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from app.infra.extras import Absent, absent_extras
from app.operations.cli.checks import run
from app.server.announcement import announce
from app.settings import Settings

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """No module of an extra can be found."""
    found, heavy = importlib.util.find_spec, {"numba", "scipy", "sklearn", "igraph"}
    monkeypatch.delenv("MODELKIN_KERNELS", raising=False)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name in heavy else found(name, package),
    )


def test_nothing_is_absent_where_all_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """This environment has them all."""
    monkeypatch.delenv("MODELKIN_KERNELS", raising=False)
    assert [] == list(absent_extras())


@pytest.mark.usefixtures("light")
def test_an_absent_extra_is_one_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line can be typed; numba is not missed by who has turned it off."""
    absent = list(absent_extras())
    assert ["fast", "clustering"] == [each.extra for each in absent]
    assert {each.extra for each in absent} <= PROJECT["optional-dependencies"].keys()
    assert f"pip install '{PROJECT['name']}[fast]'" == absent[0].command
    monkeypatch.setenv("MODELKIN_KERNELS", "reference")
    assert ["clustering"] == [each.extra for each in absent_extras()]


def test_what_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One library that is missing is said, and not the others."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "igraph" else found(name, package),
    )
    assert [Absent("clustering", "clusterings that need igraph fail")] == list(absent_extras())


@pytest.mark.usefixtures("light")
def test_the_start_says_what_is_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line each, below the two about the service."""
    announce(Settings(database_url=f"sqlite:///{tmp_path}/m.db"), 8000)
    _, _, fast, clustering = capsys.readouterr().err.splitlines()
    assert fast.startswith("without fast: numpy's loops give the same answers")
    assert clustering.endswith("fail; pip install 'modelkin-service[clustering]'")


@pytest.mark.usefixtures("light")
def test_a_check_says_what_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no fault: the state is ok, and the command exits with 0."""
    monkeypatch.setenv("MODELKIN_DATABASE_URL", f"sqlite:///{tmp_path}/m.db")
    assert 0 == run([])
    said = capsys.readouterr().out
    assert "ok    fast         not installed: numpy's loops" in said
    assert "pip install 'modelkin-service[clustering]'" in said
