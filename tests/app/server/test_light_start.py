"""What a start leaves out: libraries that this service does not use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.backends import SQLITE

START = """
import sys
from importlib.util import find_spec
import app.server.command
import workers.__main__
from app.bootstrap import open_services
from app.main import create_app
from app.settings import Settings
with open_services(Settings.from_command_line([])) as services:
    create_app(services)
slow = {"alembic", "igraph", "llvmlite", "numba", "obstore", "psycopg", "redis"}
slow |= {"scipy", "sklearn"}
slow |= {"opentelemetry.sdk", "opentelemetry.instrumentation", "opentelemetry.exporter"}
assert all(map(find_spec, slow))
print(*sorted(slow & set(sys.modules)))
"""
EMBEDDED = """
import sys
import app.server.embedded
print(*sorted({"alembic", "fastapi", "sqlalchemy", "starlette", "uvicorn"} & set(sys.modules)))
"""
COMMAND = """
import sys
from app.__main__ import main
sys.argv = ["app", "keys", "create"]
code = main()
print(code, *sorted({"fastapi", "starlette", "uvicorn", "workers"} & set(sys.modules)))
"""


def printed(code: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


@pytest.mark.slow
def test_a_start_imports_only_what_it_needs(tmp_path: Path) -> None:
    """On an up-to-date SQLite, neither Alembic nor drivers of other stores, and no compiler."""
    url = SQLITE.migrated_url(tmp_path)
    assert "" == printed(START, MODELKIN_DATABASE_URL=url)


def test_an_embedded_service_is_loaded_behind_its_lock() -> None:
    """One that is refused, as the folder has another, has waited for no library of a service."""
    assert "" == printed(EMBEDDED)


@pytest.mark.slow
def test_a_command_imports_no_server(tmp_path: Path) -> None:
    """What an operator runs beside the service begins in half the time."""
    said = printed(COMMAND, MODELKIN_DATABASE_URL=SQLITE.migrated_url(tmp_path))
    assert "0" == said.splitlines()[-1]
