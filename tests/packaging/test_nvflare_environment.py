"""``make test-all`` tries to install NVFlare again, until its environment is complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.federations import nvflare_simulator

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("status", "is_made"), [(1, False), (0, True)])
def test_only_a_complete_environment_is_marked(tmp_path: Path, status: int, is_made: bool) -> None:
    """A fault of the network stops no test, and leaves no mark that later runs would believe."""
    python, mark = tmp_path / "bin" / "python", tmp_path / "nvflare" / ".made"
    for path in (python, mark):
        path.parent.mkdir()
    python.write_text(f"#!/bin/sh\nexit {status}\n")
    python.chmod(0o755)
    dev = tmp_path / ".dev"
    dev.touch()
    make = ["make", "-C", str(ROOT), "-o", str(dev), f"VENV={tmp_path}", str(mark)]
    done = subprocess.run(make, capture_output=True, text=True)
    assert (0, is_made) == (done.returncode, mark.exists()), done.stderr


@pytest.mark.parametrize(("arguments", "status"), [(["--only-make"], 1), ([], 0)])
def test_a_failed_installation_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
) -> None:
    """One line says why; the status tells make that there is no environment."""
    monkeypatch.setattr(nvflare_simulator, "environment", lambda home: "no network")
    monkeypatch.setattr(sys, "argv", ["nvflare_simulator", *arguments])
    assert status == nvflare_simulator.main()
    assert "skipped: NVFlare cannot be installed here: no network" in capsys.readouterr().out
