"""``report`` and ``reports``: what people see, the files that are written, and the schedule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sdk.cli.conftest import Run
from tests.support.servers.server_process import Server

Ask = Callable[..., str]


@pytest.mark.slow
def test_a_report_is_five_lines_and_a_file(ask_here: Ask, tmp_path: Path) -> None:
    """The name of the file says its form; the newest report is written again in any other."""
    page = tmp_path / "report.html"
    made = json.loads(ask_here("report", "--everything", "-o", str(page), "--json"))
    assert page.read_bytes().startswith(b"<!DOCTYPE html>")
    assert (5, "html", None) == (len(made["headlines"]), made["format"], made["since"])
    shown = ask_here("reports", "show", made["report"])
    assert [*made["headlines"]] == [line for line in shown.splitlines() if ": " in line][:5]
    written = {
        "report.csv": b"\xef\xbb\xbffinding,",
        "report.json": b'{"id":',
        "report.cdx.json": b"{",
    }
    for name, begin in written.items():
        ask_here("reports", "show", "-o", str(tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert made["report"] in ask_here("reports")
    later = json.loads(ask_here("report", "--since", "2026-11-01", "--json"))
    assert "2026-11-01T00:00:00+00:00" == later["since"]
    for each in (made, later):
        ask_here("reports", "rm", each["report"], "--yes")
    assert made["report"] not in ask_here("reports")


def test_reports_are_scheduled(ask_here: Ask, run_here: Run, server: Server) -> None:
    """The period is said in days; `--off` ends it, and goes with nothing else."""
    shown = json.loads(ask_here("reports", "schedule", "--days", "7", "--keep", "3", "--json"))
    assert (604_800, 3) == (shown["every_seconds"], shown["keep"])
    assert "7 days" in ask_here("reports", "schedule", "--days", "7")
    assert "by request only" in ask_here("reports", "schedule", "--off")
    wrong = run_here("reports", "schedule", "--off", "--days", "7", "--url", server.url)
    assert (1, True) == (wrong.returncode, "--off goes without" in wrong.stderr)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("report", "--since", "yesterday"), "--since yesterday: write a day or a moment"),
        (("report", "-o", "report.txt"), "report.txt does not say what to write"),
        (("report", "--format", "csv"), "--format goes with --output"),
        (("reports", "show", "none"), "there is no report 'none'"),
        (("reports", "rm", "none", "--yes"), "there is no report 'none'"),
        (("reports", "badge", "org/nobody", "-o", "b.svg"), "fingerprint"),
    ],
)
def test_a_mistake_is_said_in_one_line(
    run_here: Run, server: Server, arguments: tuple[str, ...], expected: str
) -> None:
    """Before anything is made, where the command line alone is wrong."""
    done = run_here(*arguments, "--url", server.url)
    assert (1, 1) == (done.returncode, done.stderr.count("\n"))
    assert expected in done.stderr
