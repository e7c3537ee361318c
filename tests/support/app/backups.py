"""Backups of a service under load, restored elsewhere, and what ``verify`` says of them."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.operations.cli import find_command
from tests.support.backends import Backend
from tests.support.http_space import SUPPORT, random_support
from tests.support.servers.server_process import Server

__all__ = ["Copies", "writing"]

M, K, MODELS = 20_000, 300, 30


class Copies:
    """The commands of an operator on the installation in a folder.

    Args:
        folder: has, or is to have, the database of a backend and the supports.
        settings: others, by their names.
    """

    def __init__(self, backend: Backend, folder: Path, **settings: str) -> None:
        self.folder, self.backend = folder, backend
        self._settings = {
            "MODELKIN_DATABASE_URL": backend.url(folder),
            "MODELKIN_BLOB_URL": f"file://{folder}/blobs",
            **{f"MODELKIN_{name.upper()}": value for name, value in settings.items()},
        }

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """``python -m app ARGUMENTS`` on this installation, in this process: it begins at once."""
        command, *rest = map(str, arguments)
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name in [n for n in os.environ if n.upper().startswith("MODELKIN_")]:
                patch.delenv(name)
            for name, value in self._settings.items():
                patch.setenv(name, value)
            run = find_command(command)
            assert run is not None
            code = run(rest)
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    def back_up(self, to: Path, *flags: str) -> str:
        """What a backup that succeeds says."""
        made = self.run("backup", to, *flags)
        assert 0 == made.returncode, made.stderr
        return made.stdout

    def put_back(self, source: Path, *flags: str) -> str:
        """What a restoration that succeeds says."""
        restored = self.run("restore", source, *flags)
        assert 0 == restored.returncode, restored.stderr
        return restored.stdout

    def verify(self) -> str:
        """What ``verify --deep`` finds; empty if nothing."""
        verified = self.run("verify", "--deep")
        findings = verified.stdout.strip()
        assert verified.returncode == bool(findings), verified.stderr
        return findings


@contextmanager
def writing(server: Server, writers: int, pause: float = 0.0, seed: int = 0) -> Iterator[list[int]]:
    """Writers that replace and delete models of a space ``w`` meanwhile; how much each has done.

    Args:
        pause: of each writer after each write, in seconds.
        seed: of what they write.
    """
    done, stop, failures = [0] * writers, threading.Event(), list[str]()
    with httpx.Client(base_url=server.url, trust_env=False) as http:
        made = http.post("/v1/spaces", json={"name": "w", "num_parameters": M})
        assert made.status_code in {200, 201}, made.text

    def write(number: int) -> None:
        draw = random.Random(seed * writers + number)
        generator = np.random.default_rng([seed, number])
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
            while not stop.is_set():
                path = f"/v1/spaces/w/supports/w{number}-{draw.randrange(MODELS)}"
                if draw.random() < 0.3:
                    answer = http.delete(path.replace("/supports/", "/models/"))
                else:
                    data = random_support(generator, M, K).to_bytes()
                    answer = http.put(path, content=data, headers={"Content-Type": SUPPORT})
                if answer.status_code not in {200, 201, 204, 404}:
                    failures.append(answer.text)
                done[number] += 1
                time.sleep(pause)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
