"""The command of the studies."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from modelkin.client._transport.embedded import EmbeddedService
from studies.__main__ import main
from studies.cells import Cells
from studies.page import FOLDER, PAGE, written
from tests.support.servers.in_place_of_embedded import InPlaceOfEmbedded
from tests.support.servers.server_process import Server

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.slow
def test_a_quick_study_asks_a_service(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sqlite_server: Server
) -> None:
    """Two cells are made, and their pages have the tables. A cell of test_making.py asks a service
    that it starts.
    """
    monkeypatch.setattr(EmbeddedService, "of", lambda *_: InPlaceOfEmbedded(sqlite_server))
    assert 0 == main(["all", "--quick"])
    said = capsys.readouterr().out
    assert "retrieval digits-cnn-dir01-20-0:" in said
    assert re.search(r"\| Dir\(0.1\) \| A: IOS, K = 10% \| 0\.\d+ \| 0\.8", said)
    assert "| blinded |" in said


@pytest.mark.slow
def test_the_pages_are_made_of_their_cells() -> None:
    """The pages in the repository have no figure that their cells do not have."""
    assert {PAGE, *FOLDER.glob("*.md")} == written(Cells()).keys()
    assert 0 == main(["page", "--check"])


@pytest.mark.parametrize(
    "wrong", [["table99"], ["table3", "--data", "letters"], ["all", "--seeds", "0"]]
)
def test_wrong_arguments_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown table, unknown data and no seed at all end with status 2 and a line."""
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert 2 == ended.value.code
    assert wrong[-1] in capsys.readouterr().err


@pytest.mark.parametrize(("missed", "status"), [("all", 2), ("lines", 2), ("none", 0)])
def test_a_missed_gate_stops_no_study(tmp_path: Path, missed: str, status: int) -> None:
    """The exit status says it at the end; make's own is 2 where a command failed."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$3" >> "{tmp_path}/asked"\ntest "$3" != {missed}\n')
    python.chmod(0o755)
    ready = tmp_path / ".dev"
    call = ["make", "--silent", f"--old-file={ready}", f"VENV={tmp_path}", "studies"]
    made = subprocess.run(call, cwd=ROOT, capture_output=True, check=False)
    assert ["all", "lines"] == (tmp_path / "asked").read_text().split()
    assert status == made.returncode
