"""The demo's act of newcomers, as its user runs it: one command, from fingerprints to accuracy."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.demo.conftest import demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    """One whole run."""
    return demo("--starting", "--once", "--port", "0")


@pytest.mark.long
def test_it_ends_well(finished: subprocess.CompletedProcess[str]) -> None:
    """With --once it prints its story and exits with 0 and no word of complaint."""
    assert (0, "") == (finished.returncode, finished.stderr)


def test_newcomers_are_in_their_own_cluster(finished: subprocess.CompletedProcess[str]) -> None:
    """Nearly all of them, by 20 images each."""
    found = re.search(r"(\d+) of 12 are placed in their own cluster", finished.stdout)
    assert found is not None
    assert int(found[1]) >= 11


def test_the_start_is_worth_it(finished: subprocess.CompletedProcess[str]) -> None:
    """The trunk after five epochs, and the whole model before any step."""
    rows = re.findall(r"^ (random|its).*?((?: +0\.\d+){2}) *$", finished.stdout, re.MULTILINE)
    (_, random), (_, trunk), (_, whole) = (
        [float(figure) for figure in figures.split()] for _, figures in rows
    )
    assert trunk >= random + 0.15
    assert float(rows[2][1].split()[0]) >= 0.8
    assert whole >= random + 0.15


def test_two_stories_at_once_are_refused() -> None:
    """The command line names the choice."""
    done = demo("--starting", "--sharing")
    assert 2 == done.returncode
    assert "choose one" in done.stderr
