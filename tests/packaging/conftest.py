"""The distributions as a release builds them, once for all tests that install or read them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
VERSIONS = (ROOT / "docs" / "versions.md").read_text()


@pytest.fixture(scope="session")
def release() -> list[list[str]]:
    """The commands by which docs/versions.md makes and installs a release, as words."""
    return [
        shlex.split(line)
        for kind, text in blocks(VERSIONS)
        if kind == "sh"
        for line in text.splitlines()
    ]


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with wheel and sdist of both, by `make wheels` in this environment.

    All processes that carry out tests share it, and the first of them builds.
    """
    own = tmp_path_factory.getbasetemp()
    place = own if worker_id == "master" else own.parent
    folder = place / "distributions"
    with FileLock(place / "distributions.lock"):
        if not folder.exists():
            build(folder.with_name("building")).rename(folder)
    return folder


def build(folder: Path) -> Path:
    """Build both distributions into a folder, which is returned."""
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    # The environment is there, whoever made it, and has the backend: nothing is installed.
    made = (f"VENV={sys.prefix}", f"--old-file={sys.prefix}/.python", "PIP=:", f"DIST={folder}")
    address = "MODELKIN_PROJECT_URL=https://forge.example/team/modelkin/"
    done = subprocess.run(
        ("make", "--no-print-directory", "wheels", *made, address),
        env=environment,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return folder
