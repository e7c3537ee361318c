"""The distributions as a release builds them, once for all tests that install or read them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist of both; each wheel is built from its sdist."""
    folder = tmp_path_factory.mktemp("distributions")
    environment = os.environ | {"MODELKIN_PROJECT_URL": "https://forge.example/team/modelkin/"}
    for source in (ROOT / "client_sdk", ROOT):
        command = [sys.executable, "-m", "build", "--no-isolation", "-o"]
        done = subprocess.run(
            [*command, folder, source], env=environment, capture_output=True, text=True, cwd="/"
        )
        assert done.returncode == 0, done.stderr + done.stdout
    return folder
