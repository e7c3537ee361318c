"""The page of all operations with curl: none is missing, and the service understands each line."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.docs.commands.lines import ROOT, lines
from tests.sdk.core.fingerprints.planted import fingerprint, model
from tests.support.servers.fake_huggingface import Hub
from tests.support.servers.server_process import Server

PAGE = "docs/curl.md"
DOCUMENT: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
ADDRESS = "http://127.0.0.1:8000"
FIRST = re.compile(r"id_of|TOKEN=")
"""The lines before those of operations."""
_WRAPPER = """
curl() {
  status=$(command curl -s --noproxy '*' -m 20 -o body -w '%{http_code}' "$@")
  echo $status >> statuses
  if [ $status = 202 ]; then
    job=URL/v1/jobs/$(id_of < body)
    for _ in {1..600}; do
      command curl -s --noproxy '*' $job | grep -qE '"state": ?"(queued|running)"' || break
      sleep 0.1
    done
  fi
  cat body
}
"""
"""A curl that notes each status, and waits for a job as its reader would."""


A_NAME = "[^/]+(/(a|b|newcomer))?"
ENDED = {"cancel_job"}
"""What is refused or not, as soon as a job has ended."""


def refused_here() -> set[str]:
    """The operations of which the page says that they are refused where the lines run in order."""
    said = set(
        re.findall(r"^# ([^(\n]+) \([^)\n]* here: [^)\n]*\)$", (ROOT / PAGE).read_text(), re.M)
    )
    found = {
        each["operationId"]
        for item in DOCUMENT["paths"].values()
        for each in item.values()
        if each["summary"] in said
    }
    assert len(found) == len(said)
    return found


def operation_of(method: str, path: str) -> str:
    """The operation that answers a request; the one with the fewest parameters."""
    found = [
        (template.count("{"), item[method]["operationId"])
        for template, item in DOCUMENT["paths"].items()
        if method in item
        and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+(/(a|b|newcomer))?", template), path)
    ]
    assert found, (method, path)
    return str(min(found)[1])


def test_each_operation_has_a_line(hub: Hub, tmp_path: Path) -> None:
    """In their order on an empty service all succeed, but for those of which the page says not."""
    commands = [line.command for line in lines(PAGE)]
    asked = [each for each in commands if not FIRST.match(each)]
    every = [each["operationId"] for item in DOCUMENT["paths"].values() for each in item.values()]
    assert set(every) == {_operation(command) for command in asked}
    (tmp_path / "a.mkfp").write_bytes(fingerprint(model(1)).to_bytes())
    (tmp_path / "a.sketch").write_bytes(b"of no model here")
    (tmp_path / "cell").write_bytes(b"sealed")
    (tmp_path / "batch.jsonl").write_text(
        '{"model": "org/b", "signature": {"scheme": "affine32"}}\n'
    )
    (tmp_path / "service").mkdir()
    running = Server(tmp_path / "service", "--egress-allow=127.0.0.1").start()
    script = "\n".join(commands).replace(ADDRESS, running.url)
    script = re.sub(r"https://(huggingface\.co|receiver\.example)", hub.url, script)
    first, _, rest = script.partition("TOKEN=")
    done = subprocess.run(
        ["bash", "-c", f"{first}{_WRAPPER.replace('URL', running.url)}TOKEN={rest}"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert 0 == running.stop()
    not_here = refused_here()
    statuses = (tmp_path / "statuses").read_text().split()
    assert len(asked) == len(statuses), done.stderr
    refused = [
        f"{status} {command}"
        for command, status in zip(asked, statuses, strict=True)
        if (status[0] == "2") == (_operation(command) in not_here)
        and _operation(command) not in ENDED
    ]
    assert [] == refused


def _operation(command: str) -> str:
    """The operation of a command."""
    method = re.search(r" -X (\w+)", command)
    path = re.search(rf"{ADDRESS}([^\s\"?]*)", command)
    assert path is not None, command
    usual = "POST" if " -d " in command or "--data-binary" in command else "GET"
    return operation_of((method[1] if method else usual).lower(), re.sub(r"\$\w+", "id", path[1]))
