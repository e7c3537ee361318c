"""The health file of a worker: touched while it lives, and what the check says of it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.settings import Settings
from tests.support.backends import SQLITE
from tests.support.jobs.deployment import Deployment
from workers import health
from workers.health import MAX_AGE_S, HealthFile, check
from workers.worker import Worker


def test_a_file_that_was_touched_is_a_sign_of_life(tmp_path: Path) -> None:
    """There is none before the first touch, and none once the last is a minute old."""
    path = tmp_path / "worker"
    assert "no worker has touched this file" in str(check(path))
    HealthFile(path).touch()
    assert check(path) is None
    then = time.time() - MAX_AGE_S - 5
    os.utime(path, (then, then))
    assert "65 s old" in str(check(path))


def test_a_file_is_touched_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each step; without a path never."""
    path = tmp_path / "worker"
    file = HealthFile(path)
    file.touch()
    path.unlink()
    file.touch()
    assert not path.exists()
    monkeypatch.setattr(health, "_INTERVAL_S", 0.0)
    HealthFile(path).touch()
    assert path.exists()
    HealthFile(None).touch()


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker goes on, and its log says why its check fails."""
    with caplog.at_level(logging.WARNING):
        HealthFile(tmp_path / "no folder" / "worker").touch()
    assert "cannot be written" in caplog.text


def test_the_check_is_a_command(tmp_path: Path) -> None:
    """0 with a sign of life, 1 and the reason without, and usage for anything else."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "workers.health", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    path = tmp_path / "worker"
    absent = run(str(path))
    assert (1, True) == (absent.returncode, "no worker has touched" in absent.stderr)
    path.touch()
    assert 0 == run(str(path)).returncode
    assert "usage: python -m workers.health FILE" in run().stderr


def test_a_worker_touches_its_file_while_it_works_and_while_it_stands_by(tmp_path: Path) -> None:
    """The one that works and the one that waits for its place both live."""
    deployment = Deployment(tmp_path, SQLITE)
    files = [tmp_path / "first", tmp_path / "second"]
    workers = [
        Worker(
            Settings(database_url=deployment.url, worker_health_file=file),
            deployment.database,
            deployment.jobs,
        )
        for file in files
    ]
    try:
        for worker, file in zip(workers, files, strict=True):
            worker.start()
            end = time.monotonic() + 20
            while check(file) is not None:
                assert time.monotonic() < end
                time.sleep(0.05)
    finally:
        for worker in reversed(workers):
            worker.stop()
        deployment.close()
