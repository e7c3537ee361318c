"""``modelkin advise``: of files and of a space, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelkin import Client
from tests.sdk.cli.conftest import Run
from tests.support.federations.planted_federations import APART, LAYOUT
from tests.support.servers.server_process import Server


def test_the_command(run_here: Run, server: Server, tmp_path: Path) -> None:
    """Files and a space give the same groups; a space knows chance by tensor."""
    files = [f"client-{at:02}.mksp" for at in range(20)]
    with Client(server.url) as client:
        client.ensure_space("advised", layout=LAYOUT)
        for name, support in zip(files, APART, strict=True):
            support.save(tmp_path / name)
            client.put_support("advised", name.removesuffix(".mksp"), support)
    lines = "".join(f"{name.removesuffix('.mksp')},60\n" for name in files)
    (tmp_path / "samples.csv").write_text(lines, encoding="utf-8-sig")  # as spreadsheets do
    of_files = run_here("advise", *files, "--samples", "samples.csv", "--json")
    of_space = run_here("advise", "--space", "advised", "--url", server.url, "--json")
    one, other = json.loads(of_files.stdout), json.loads(of_space.stdout)
    assert one["items"] == other["items"]
    assert (False, True) == (one["by_tensor"], other["by_tensor"])
    assert (1, 0) == (len(one["notes"]), len(other["notes"]))
    shown = run_here("advise", *files).stdout
    assert "clients  20, 4 groups" in shown.splitlines()[0]
    assert len(shown.splitlines()) <= 24


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "give the clients' support files, or their --space"),
        (("a.mksp", "--tag", "x"), "--tag narrows the models of a space"),
        (("a.mksp", "b.mksp", "c.mksp", "--samples", "wrong.csv"), "wrong.csv: line 1: write"),
        (("a.mksp", "b.mksp", "c.mksp", "--samples", "few.csv"), "has no number of samples of b"),
        (("a.mksp", "b.mksp", "c.mksp", "--samples", "twice.csv"), "twice.csv: line 2: a has a"),
        (("a.mksp", "b.mksp", "c.mksp", "--samples", "latin.csv"), "latin.csv: line 2: it is not"),
    ],
)
def test_wrong_command_lines(
    arguments: tuple[str, ...],
    expected: str,
    run_here: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is one sentence that says what to do."""
    monkeypatch.delenv("MODELKIN_SPACE", raising=False)
    for name, support in zip("abc", APART, strict=False):
        support.save(tmp_path / f"{name}.mksp")
    (tmp_path / "wrong.csv").write_text("a;3\n")
    (tmp_path / "few.csv").write_text("a,3\n")
    (tmp_path / "twice.csv").write_text("a,3\na,4\n")
    (tmp_path / "latin.csv").write_bytes(b"a,3\n\xe9,4\n")
    done = run_here("advise", *arguments)
    assert (1, True) == (done.returncode, expected in done.stderr), done.stderr
