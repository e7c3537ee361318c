"""``sources list``, ``add`` and ``remove`` against a real service."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import modelkin
from modelkin.cli.service import sources
from modelkin.types.hubs import Source
from tests.sdk.cli.conftest import Run
from tests.support.servers.server_process import Server

Ask = Callable[..., str]

SPACE = "cli-hub"


@pytest.fixture
def space(server: Server) -> str:
    """A space that follows no hub."""
    with modelkin.Client(server.url) as client:
        client.ensure_space(SPACE, num_parameters=9, importance="weight")
        for source in client.sources.list():
            client.sources.delete(source)
    return SPACE


def test_a_source_is_added_listed_and_removed(space: str, ask_here: Ask, server: Server) -> None:
    """The new secret is shown once; the list shows the state; the removal says what it removed."""
    assert "no sources\n" == ask_here("sources", "list")
    filters = ("--owner", "acme", "--owner", "labs", "--repo", "acme/*", "--tag", "kin")
    how = ("--importance", "weight", "--base-model", "acme/base", "--poll-seconds", "0")
    left_out = ("--exclude", "*.running_*", "--no-fingerprints", "--backfill-per-hour", "0")
    said = ask_here("sources", "add", "huggingface", "--space", space, *filters, *how, *left_out)
    fields = dict(line.split(maxsplit=1) for line in said.splitlines())
    with modelkin.Client(server.url) as client:
        (made,) = client.sources.list()
    assert {"source", "space", "webhook", "secret"} == fields.keys()
    assert (made.id, space, made.hook) == (fields["source"], fields["space"], fields["webhook"])
    assert len(fields["secret"]) >= 40
    assert {"owners": ["acme", "labs"], "repos": ["acme/*"], "tags": ["kin"]} == made.filters
    assert ("*.running_*",) == made.exclude
    assert (False, None) == (made.fingerprints, made.backfill_per_hour)
    assert ("weight", "acme/base", None) == (made.importance, made.base_model, made.poll_seconds)
    (line,) = ask_here("sources", "list").splitlines()[1:]
    row = [made.id, "huggingface", space, "-", "-", "none", "-", "events", "only"]
    assert row == line.split()
    assert "no sources\n" == ask_here("sources", "list", "--space", "another")
    assert f"{made.id}: removed\n" == ask_here("sources", "remove", made.id, "--yes")
    assert {"items": [], "notes": []} == json.loads(ask_here("sources", "list", "--json"))


def test_secrets_come_from_files(
    space: str, ask_here: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first line of a file, or of standard input; a given secret is not printed."""
    (tmp_path / "secret").write_text("one secret\nand notes\n")
    add = ("sources", "add", "mlflow", "--space", space)
    said = ask_here(*add, "--secret-file", "secret", "--json")
    printed = json.loads(said)
    assert "mlflow" == printed["kind"]
    assert "one secret" not in said
    assert "secret" not in printed
    monkeypatch.setattr("sys.stdin", io.StringIO("piped\n"))
    assert "secret" not in ask_here(*add, "--secret-file", "-")


def test_mistakes_end_in_one_line(
    space: str, run_here: Run, server: Server, tmp_path: Path
) -> None:
    """A file without a secret, an unknown source, and an unknown action."""
    (tmp_path / "empty").write_text("\nsecret\n")
    where = ("--url", server.url)
    add = ("sources", "add", "mlflow", "--space", space, *where, "--secret-file")
    assert "modelkin: empty: its first line is empty" in run_here(*add, "empty").stderr
    assert "modelkin: none: No such file or directory\n" == run_here(*add, "none").stderr
    unknown = run_here("sources", "remove", "none", "--yes", *where)
    assert (1, 1) == (unknown.returncode, unknown.stderr.count("\n"))
    assert "404 source_not_found" in unknown.stderr
    assert 2 == run_here("sources", "none").returncode


def source(**fields: Any) -> Source:
    """A source of which only some fields matter."""
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    given: dict[str, Any] = {
        "id": "i",
        "kind": "mlflow",
        "space": "s",
        "has_token": False,
        "filters": {},
        "on_delete": "keep",
        "hook": "/h",
        "created_at": now,
        "updated_at": now,
    }
    return Source(**given, **fields)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "events only"),
        ({"url": "http://h"}, "not polled yet"),
        ({"url": "http://h", "last_poll_at": datetime(2026, 1, 2, tzinfo=UTC)}, "ok"),
        (
            {
                "last_poll_at": datetime(2026, 1, 2, tzinfo=UTC),
                "last_error": {"at": "2026-01-01T00:00:00Z", "code": "hub_refused"},
            },
            "ok",
        ),
        (
            {
                "last_poll_at": datetime(2026, 1, 2, tzinfo=UTC),
                "last_error": {"at": "2026-01-03T00:00:00Z", "code": "hub_refused"},
            },
            "hub_refused",
        ),
        ({"last_error": {"at": "2026-01-03T00:00:00Z", "code": "hub_refused"}}, "hub_refused"),
    ],
)
def test_the_status_is_that_of_the_last_attempt(fields: dict[str, Any], status: str) -> None:
    """An error counts until a poll succeeds after it."""
    assert status == sources.status_of(source(**fields))


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ({}, "0"),
        ({"read": 1204, "without": 3, "waiting": 0, "unread": 0}, "1,204"),
        ({"read": 5, "waiting": 318, "unread": 12}, "5, 318 to read, 12 not readable"),
    ],
)
def test_fingerprints_are_counted_in_words(counts: dict[str, int], shown: str) -> None:
    """Those that are to come, and those that never will, are said where there are some."""
    assert shown == sources.fingerprints_of(source(fingerprints=True, fingerprint_counts=counts))


@pytest.mark.parametrize(
    ("poll", "notes"),
    [
        (None, []),
        ({"models": 0}, []),
        ({"absent_owners": ["acmee", "b"]}, ["i: the hub listed no model of acmee, b"]),
        ({"absent_owners": 3}, []),
    ],
)
def test_owners_without_models_are_named(poll: dict[str, Any] | None, notes: list[str]) -> None:
    """They may be misspelt, which is no error of the hub's."""
    assert notes == sources.absence_notes(source(last_poll=poll))
