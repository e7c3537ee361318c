"""A package of another version than the service needs is told in one line, with what to do."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from app.infra.misfits import misfit
from tests.support.servers.server_process import ROOT, environment


def error_of(statement: str) -> ImportError:
    with pytest.raises(ImportError) as raised:
        exec(statement, {"__name__": "app.main"})
    return raised.value


def test_both_packages_are_named() -> None:
    """Who needs it, and the installed version of what lacks it."""
    lacks = f"which fastapi {version('fastapi')} here does not have"
    said = misfit(error_of("import fastapi.nowhere"))
    assert f"modelkin's service needs 'fastapi.nowhere', {lacks}" == said
    assert lacks in (misfit(error_of("from fastapi import Nothing")) or "")


def test_a_fault_of_the_service_is_none() -> None:
    """A module of its own that is missing keeps its traceback."""
    assert misfit(error_of("import app.nowhere")) is None


@pytest.fixture
def old_fastapi(tmp_path: Path) -> Path:
    """A folder with a FastAPI that has little of today's."""
    (tmp_path / "fastapi").mkdir()
    (tmp_path / "fastapi" / "__init__.py").write_text("class FastAPI: ...\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--port", "0"], ["check"]])
def test_the_service_beside_an_old_package(words: list[str], old_fastapi: Path) -> None:
    """Neither its start nor its check shows a traceback."""
    paths = f"{old_fastapi}:{ROOT}:{ROOT / 'client_sdk'}"
    done = subprocess.run(
        [sys.executable, "-m", "app", *words],
        cwd=old_fastapi,
        env=environment(PYTHONPATH=paths),
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    assert 1 == done.returncode
    assert "needs 'fastapi" in said or 'needs "cannot import name' in said
    assert "in an environment of its own" in said
    assert "Traceback" not in said
