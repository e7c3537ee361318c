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
def distributions(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str, release: list[list[str]]
) -> Path:
    """A folder with wheel and sdist of both, by the page's commands in this environment.

    All processes that carry out tests share it, and the first of them builds.
    """
    own = tmp_path_factory.getbasetemp()
    place = own if worker_id == "master" else own.parent
    folder = place / "distributions"
    with FileLock(place / "distributions.lock"):
        if not folder.exists():
            build(folder.with_name("building"), release).rename(folder)
    return folder


def build(folder: Path, release: list[list[str]]) -> Path:
    """Build both distributions into a folder, which is returned."""
    environment = os.environ | {"MODELKIN_PROJECT_URL": "https://forge.example/team/modelkin/"}
    builds = [words for words in release if words[:3] == ["python", "-m", "build"]]
    assert 2 == len(builds)
    for *command, out, source in builds:
        assert ["python", "-m", "build", "--outdir", "dist"] == [*command, out]
        words = [sys.executable, *command[1:], str(folder), "--no-isolation", str(ROOT / source)]
        # Not in the repository, whose folders would be imported.
        done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr + done.stdout
    return folder
