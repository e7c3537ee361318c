"""``subscriptions add``, ``jobs list`` and a push to a missing space, against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import modelkin
from modelkin.types.jobs import JobInfo
from modelkin.types.vocabulary import JobKind
from tests.sdk.cli.conftest import Run
from tests.support.servers.server_process import Server

Ask = Callable[..., str]

URL = "https://1.1.1.1/modelkin"
"""A public address, which needs no resolver; nothing is sent there."""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "of-the-shell"),
        (("--space", "another"), "another"),
        (("--all-spaces",), None),
    ],
)
def test_the_space_of_a_subscription(
    ask_here: Ask,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    expected: str | None,
) -> None:
    """MODELKIN_SPACE stands in for --space, --all-spaces overrides it; the answer says which."""
    monkeypatch.setenv("MODELKIN_SPACE", "of-the-shell")
    said = ask_here("subscriptions", "add", URL, "--event", "support.stored", *options)
    fields = dict(line.split(maxsplit=1) for line in said.splitlines())
    assert (expected or "all spaces") == fields["space"]
    with modelkin.Client(server.url) as client:
        made = client.webhooks.get(fields["subscription"])
        assert expected == made.space
        client.webhooks.delete(made)


def test_one_space_and_all_spaces_contradict_each_other(run_here: Run, server: Server) -> None:
    """Nothing is made where both are given."""
    both = ("--space", "one", "--all-spaces", "--url", server.url)
    done = run_here("subscriptions", "add", URL, "--event", "support.stored", *both)
    assert (1, "modelkin: give --space or --all-spaces, not both\n") == (
        done.returncode,
        done.stderr,
    )


def test_a_sync_names_its_model(
    run_here: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of jobs has the model that a job is about, and a dash where it is about none."""
    now = datetime.now(UTC)
    given: tuple[tuple[JobKind, dict[str, str]], ...] = (
        ("ingest", {"model": "acme/chat"}),
        ("poll", {"source": "s"}),
    )
    found = [
        JobInfo(
            id=f"job-{kind}",
            kind=kind,
            parameters=parameters,
            created_at=now,
            state="queued",
            attempts=0,
            cancelling=False,
        )
        for kind, parameters in given
    ]
    monkeypatch.setattr(
        "modelkin.client._sync.resources.jobs.Jobs.list", lambda *_, **__: iter(found), raising=True
    )
    done = run_here("jobs", "list", "--url", server.url)
    cells = [line.split() for line in done.stdout.splitlines()]
    column = cells[0].index("MODEL")
    assert ["acme/chat", "-"] == [row[column] for row in cells[1:]]


def test_a_push_to_a_missing_space_names_the_remedy(
    run_here: Run, server: Server, tmp_path: Path
) -> None:
    """The refusal keeps its code, and says which option makes the space."""
    support = modelkin.Support.from_indices(range(0, 900, 7), 900)
    (tmp_path / "m.mksp").write_bytes(support.to_bytes())
    push = ("push", "m.mksp", "--space", "absent", "--model", "m", "--url", server.url)
    done = run_here(*push)
    assert 1 == done.returncode
    assert done.stderr.startswith("modelkin: 404 space_not_found: ")
    assert "--create makes it, and for checkpoints --space auto takes" in done.stderr
    assert "space_not_found" == json.loads(run_here(*push, "--json").stderr)["code"]
