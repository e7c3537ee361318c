"""The page of all operations with curl: none is missing, and the service understands each line."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import modelkin
from tests.docs.commands.lines import ROOT, lines
from tests.support.servers.server_process import Server

PAGE = "docs/curl.md"
DOCUMENT: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
ADDRESS = "http://127.0.0.1:8000"
SHAPE = {400, 405, 406, 411, 413, 415, 421, 422, 500}
"""What answers a line that is no request of an operation, or whose body is none."""
REFUSED = {
    "create_source": "this machine finds no hub",
    "create_subscription": "this machine finds no receiver",
    "find_anatomy": "the file of the reader is no fingerprint here",
    "find_relatives": "the file of the reader is no fingerprint here",
    "put_fingerprint": "the file of the reader is no fingerprint here",
    "put_sketch": "the file of the reader is no sketch here",
}
"""The operations that may answer so, and why."""


def operation_of(method: str, path: str) -> str:
    """The operation that answers a request; the one with the fewest parameters."""
    found = [
        (template.count("{"), item[method]["operationId"])
        for template, item in DOCUMENT["paths"].items()
        if method in item and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+(/a)?", template), path)
    ]
    assert found, (method, path)
    return str(min(found)[1])


def test_each_operation_is_understood(sqlite_server: Server, tmp_path: Path) -> None:
    """Each line is one operation, and is refused for what is not there at most."""
    with modelkin.Client(sqlite_server.url) as client:
        client.ensure_space("digits-cnn", layout=modelkin.Layout.of([("w", (4810,))]))
        for name in ("org/a", "org/b"):
            client.put_support("digits-cnn", name, modelkin.Support.from_indices([3, 17], 4810))
    commands = [line.command for line in lines(PAGE)]
    for name in re.findall(r"@(\S+)", " ".join(commands)):
        (tmp_path / name).write_bytes(b"{}")
    asked = [_asked(command) for command in commands]
    every = [each["operationId"] for item in DOCUMENT["paths"].values() for each in item.values()]
    assert Counter(every) == Counter(asked)
    answers = dict(zip(asked, _answers(commands, sqlite_server.url, tmp_path), strict=True))
    wrong = {name: status for name, status in answers.items() if status in SHAPE}
    assert wrong.keys() <= REFUSED.keys(), wrong
    assert {200, 201, 202, 204} <= set(answers.values())


def _asked(command: str) -> str:
    """The operation of a command."""
    method = re.search(r" -X (\w+)", command)
    path = re.search(rf"{ADDRESS}([^\s\"?]*)", command)
    assert path is not None, command
    usual = "POST" if " -d " in command or "--data-binary" in command else "GET"
    return operation_of((method[1] if method else usual).lower(), path[1].replace("$ID", "id"))


def _answers(commands: list[str], url: str, folder: Path) -> list[int]:
    """The status of each answer; nothing is deleted before all else is asked."""
    order = sorted(range(len(commands)), key=lambda at: "-X DELETE" in commands[at])
    told = "curl() { command curl -s --noproxy '*' -m 20 -o body -w '%{http_code}\\n' \"$@\"; }"
    script = "\n".join([told, *(commands[at].replace(ADDRESS, url) for at in order)])
    variables = {"ID": str(uuid.uuid4()), "TOKEN": "token"}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    statuses = dict(zip(order, map(int, done.stdout.split()), strict=True))
    return [statuses[at] for at in range(len(commands))]
