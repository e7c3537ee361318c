"""Who may ask a service: ``keys``, ``spaces publish``, ``public``, ``ask`` and ``withdraw``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from modelkin import Client, Support
from tests.sdk.cli.conftest import Run
from tests.support.servers.server_process import Server

Ask = Callable[..., str]
SUPPORT = Support.from_indices(range(0, 9_000, 3), 10_000)


def test_a_space_is_published_asked_and_withdrawn(
    ask_here: Ask, run_here: Run, server: Server, tmp_path: Path
) -> None:
    """Publishing needs a yes; a file of either kind is asked about."""
    with Client(server.url) as client:
        client.ensure_space("open-atlas", num_parameters=10_000)
        client.put_support("open-atlas", "org/a", SUPPORT)
    done = run_here("spaces", "publish", "open-atlas", "--url", server.url)
    wanted = "ask space open-atlas, in steps of 0.05 from 0.3 on, 1,000 queries a day, and there is"
    assert f"this would let every tenant of the service {wanted}" in done.stderr
    options = ("--step", "0.1", "--daily-queries", "5", "--description", "ours", "--yes")
    shown = ask_here("spaces", "publish", "open-atlas", *options)
    assert "default/open-atlas" in shown
    (line,) = (row for row in ask_here("spaces", "public").splitlines() if "open-atlas" in row)
    assert ["default/open-atlas", "0.1", "0.3", "5", "ours"] == line.split()
    for name, content in (
        ("a.mksp", SUPPORT.to_bytes()),
        ("a.mksg", SUPPORT.signature().to_bytes()),
    ):
        (tmp_path / name).write_bytes(content)
        found = ask_here("spaces", "ask", "default/open-atlas", str(tmp_path / name), "--json")
        [item] = json.loads(found)["items"]
        assert "org/a" == item["model"]
        assert item["score"] in {0.9, 1.0}
    assert "not public" in ask_here("spaces", "withdraw", "open-atlas", "-y")
    assert "open-atlas" not in ask_here("spaces", "public")
    wrong = run_here("spaces", "ask", "open-atlas", str(tmp_path / "a.mksp"), "--url", server.url)
    assert (1, "OWNER/NAME" in wrong.stderr) == (wrong.returncode, True)


def test_a_key_is_made_listed_and_revoked(ask_here: Ask, run_here: Run, server: Server) -> None:
    """It is shown once, then by its first characters; revoking needs a yes."""
    make = ("keys", "create", "--label", "cli", "--scope", "read", "--days", "2", "--json")
    made = json.loads(ask_here(*make))
    (line,) = (row for row in ask_here("keys").splitlines() if row.startswith(made["prefix"]))
    assert ["cli", "read", "valid"] == line.split()[1:4]
    assert made["key"] not in ask_here("keys", "--json")
    done = run_here("keys", "revoke", made["prefix"], "--url", server.url)
    assert f"this would revoke key {made['prefix']}" in done.stderr
    assert "revoked" in ask_here("keys", "revoke", made["prefix"], "--yes")
    (line,) = (row for row in ask_here("keys").splitlines() if row.startswith(made["prefix"]))
    assert ["cli", "read", "revoked"] == line.split()[1:4]


def test_a_wrong_scope_is_the_services_error(run_here: Run, server: Server) -> None:
    """One line says which scopes there are."""
    done = run_here("keys", "create", "--scope", "reed", "--url", server.url)
    assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert "read" in done.stderr
