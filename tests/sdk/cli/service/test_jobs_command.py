"""``modelkin jobs``: what failed is found at once, and upkeep hides nothing."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import pytest

from modelkin.cli import main
from tests.support.servers.hostile import Script, head, hostile_server

JOBS = (
    ("j9", "anatomies", "succeeded"),
    ("j8", "poll", "queued"),
    ("j7", "findings", "failed"),
    ("j6", "ingest", "failed"),
    ("j5", "anatomies", "running"),
    ("j4", "clustering", "succeeded"),
)
"""The newest first, as a service lists them."""


def listing(*jobs: tuple[str, str, str]) -> Script:
    """A service that has these jobs."""
    common: dict[str, Any] = {"parameters": {}, "attempts": 1, "cancelling": False}
    common["created_at"] = "2026-01-02T03:04:05Z"
    items = [{"id": i, "kind": kind, "state": state, **common} for i, kind, state in jobs]
    body = json.dumps({"items": items, "next_cursor": None}).encode()
    status = f"{HTTPStatus.OK.value} {HTTPStatus.OK.phrase}"
    return lambda: iter([head("Connection: close", status=status) + body])


def asked(capsys: pytest.CaptureFixture[str], script: Script, *options: str) -> str:
    """What ``modelkin jobs`` prints."""
    with hostile_server(script) as server:
        assert 0 == main(["jobs", *options, "--url", server.url])
    return capsys.readouterr().out


def ids(text: str) -> list[str]:
    """The first words of the lines that are jobs."""
    return [line.split()[0] for line in text.splitlines() if line.startswith("j")]


def test_failures_stand_first_and_upkeep_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Also in a pipe; within each part the newest is first."""
    work, upkeep = asked(capsys, listing(*JOBS)).split("\n\n")
    assert (["j7", "j6", "j8", "j4"], ["j9", "j5"]) == (ids(work), ids(upkeep))
    assert upkeep.startswith("by which the service keeps itself up to date:\n")
    assert ["j7", "j6"] == ids(asked(capsys, listing(*JOBS), "--limit", "2"))


def test_programs_get_them_as_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """An object's items are the newest first; a kind that is asked for is not apart."""
    items = json.loads(asked(capsys, listing(*JOBS), "--json"))["items"]
    assert [job[0] for job in JOBS] == [item["id"] for item in items]
    alone = asked(capsys, listing(JOBS[0]), "--kind", "anatomies")
    assert (["j9"], False) == (ids(alone), "by which" in alone)
    assert "no jobs\n" == asked(capsys, listing())
