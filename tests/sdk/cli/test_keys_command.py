"""``keys`` against a real service."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.sdk.cli.conftest import Run
from tests.support.servers.server_process import Server

Ask = Callable[..., str]


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
