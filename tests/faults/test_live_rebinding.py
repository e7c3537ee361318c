"""Names that move inside, by the machine's own resolver: nothing inside gets a request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APART = ["unshare", "--net", "--mount"]
if os.geteuid() != 0:
    APART += ["--user", "--map-root-user"]

Hits = dict[str, dict[str, int]]


def can_stand_apart() -> bool:
    """Whether this machine gives a process a network and a resolver of its own; root always can."""
    try:
        tried = subprocess.run([*APART, "ip", "link", "set", "lo", "up"], capture_output=True)
    except FileNotFoundError:
        return False
    return tried.returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_stand_apart(), reason="needs namespaces: run as root"),
]


@pytest.fixture(scope="module")
def hits() -> dict[str, Hits]:
    """The requests that arrived outside and inside, by client and trial."""
    command = [sys.executable, "-m", "tests.support.faults.rebinding_world"]
    done = subprocess.run([*APART, *command], cwd=ROOT, capture_output=True, timeout=300)
    assert 0 == done.returncode, done.stderr.decode()
    found: dict[str, Hits] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("trial", ["alternating", "later", "mixed", "alias", "redirect"])
def test_no_trial_gets_inside(hits: dict[str, Hits], trial: str) -> None:
    """Webhooks and hubs connect to no address inside: of a name that moves after it was checked, or
    hours later; of A and AAAA records of which one is inside; behind aliases; by a redirect. A
    client that checks a URL and then connects to its name gets inside each time.
    """
    assert 0 == hits["guarded"][trial].get("inside", 0)
    assert hits["unguarded"][trial]["inside"] > 0


def test_public_names_are_reached(hits: dict[str, Hits]) -> None:
    """So the trials fail for no other reason: each attempt at a public name arrives."""
    assert {"outside": 6} == hits["guarded"]["public"] == hits["unguarded"]["public"]
    assert {"outside": 2} == hits["guarded"]["later"]
