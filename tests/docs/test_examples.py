"""Examples of plain HTTP and of the service's commands, as they stand on the pages."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import modelkin
from tests.docs.pages import blocks
from tests.support.app.backups import Copies
from tests.support.backends import SQLITE
from tests.support.http_space import random_support
from tests.support.servers.server_process import Server

DOCS = Path(__file__).parents[2] / "docs"
NOT_YET = {"clustering_not_found", "map_not_found"}
"""What reading the result of a job answers before a worker has carried the job out."""
ADDRESS = re.compile(r"(?:http://127\.0\.0\.1:8000|localhost:8000)")
HOST = re.compile(r"https://[\w.-]+")
"""Hosts of the examples, whose names need not exist here; nothing is sent to them."""
COMMAND = re.compile(r"^ *(?:python -m app|modelkin serve) (\w[^#\n]*)", re.MULTILINE)


def shell(page: str) -> Iterator[str]:
    """The commands of a page's blocks of shell, continued lines joined."""
    for kind, text in blocks((DOCS / page).read_text()):
        if kind == "sh":
            joined = textwrap.dedent(text).replace("\\\n", " ")
            yield from re.findall(r"^curl (?:[^'\n#]|'[^']*')*", joined, re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with the space of the examples; no worker asks a hub for anything."""
    folder = tmp_path_factory.mktemp("examples")
    running = Server(folder, "--embedded-worker=off").start()
    rng = np.random.default_rng(3)
    with modelkin.Client(running.url) as client:
        client.ensure_space("digits-cnn", num_parameters=1000)
        for name in "abc":
            client.put_support("digits-cnn", name, random_support(rng, 1000, 100))
    yield running
    assert running.stop() == 0


def sent(command: str, server: Server, ids: dict[str, str]) -> httpx.Response:
    """The answer to a command of curl; ids that a page shortens are those answered before."""
    words = shlex.split(command)[1:]
    method, headers, body, url = "GET", {}, None, ""
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = HOST.sub("https://1.1.1.1", words.pop(0))
            method = "POST" if method == "GET" else method
        elif not word.startswith("-"):
            url = ADDRESS.sub(server.url, word).replace("01a1febc-...", ids.get("id", ""))
    answer = httpx.request(method, url, headers=headers, content=body, trust_env=False)
    if answer.status_code == 201:
        ids |= answer.json()
    return answer


@pytest.mark.parametrize("page", ["clustering.md", "explorer.md", "hubs.md", "webhooks.md"])
def test_requests(page: str, server: Server) -> None:
    """Each request of a page is accepted as it stands there."""
    ids: dict[str, Any] = {}
    commands = list(shell(page))
    assert commands
    for command in commands:
        answer = sent(command, server, ids)
        code = {} if answer.is_success else answer.json()
        assert answer.is_success or code["code"] in NOT_YET, (command, answer.text)


@pytest.mark.parametrize("page", ["keys.md", "upgrading.md"])
def test_commands(page: str, tmp_path: Path) -> None:
    """Each command of the service has the arguments that a page shows."""
    found = [
        command
        for kind, text in blocks((DOCS / page).read_text())
        if kind == "sh"
        for command in COMMAND.findall(text)
    ]
    assert found
    SQLITE.migrated_url(tmp_path)
    for command in found:
        words = shlex.split(command.replace("/backups", str(tmp_path / "backups")))
        done = Copies(SQLITE, tmp_path).run(*words)  # a wrong argument would end the test
        assert done.returncode in {0, 1}, (command, done.stderr)
