"""``python -m app check``: what is wrong with the settings, the data folder and the secret key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.app.backups import Copies
from tests.support.backends import SQLITE


@pytest.fixture
def installation(tmp_path: Path) -> Copies:
    """A service that was never started."""
    return Copies(SQLITE, tmp_path)


def test_nothing_is_wrong_and_nothing_is_written(installation: Copies, tmp_path: Path) -> None:
    """A new folder is well: the first start makes what it lacks, and a probe leaves no file."""
    done = installation.run("check")
    assert (0, "") == (done.returncode, done.stderr)
    assert ["ok", "ok"] == [line.split()[0] for line in done.stdout.splitlines()]
    assert "which is made with the first secret" in done.stdout
    assert [] == list(tmp_path.iterdir())


def test_for_programs(tmp_path: Path) -> None:
    """As JSON each line is an object; a wrong setting ends the checks and fails."""
    done = Copies(SQLITE, tmp_path, port="many").run("check", "--json")
    [found] = json.loads(done.stdout)["checks"]
    assert (1, "settings", "fail") == (done.returncode, found["check"], found["state"])
    assert "MODELKIN_PORT: " in found["detail"]


def test_a_variable_that_is_no_setting(tmp_path: Path) -> None:
    """It is named with the setting that may be meant, and what follows is inspected."""
    done = Copies(SQLITE, tmp_path, prot="1").run("check")
    assert 0 == done.returncode
    assert "did you mean MODELKIN_PORT?" in done.stdout.splitlines()[0]
    assert "data folder" in done.stdout


def test_a_full_disk(installation: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than 5 GB for the data folder is a warning that says what to do."""
    full = SimpleNamespace(total=1 << 40, used=1 << 40, free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert "to do: free some, or move the data folder" in installation.run("check").stdout


def test_a_folder_that_takes_no_files(tmp_path: Path) -> None:
    """/proc takes no file from anyone, whatever its permissions say: that fails, and is named."""
    for setting in (
        {"database_url": "sqlite:////proc/m.db"},
        {"database_url": f"sqlite:///{tmp_path}/m.db", "blob_url": "file:///proc/blobs"},
        {"database_url": f"sqlite:///{tmp_path}/m.db", "download_dir": "/proc/downloads"},
    ):
        done = Copies(SQLITE, tmp_path, **setting).run("check", "--json")
        found = json.loads(done.stdout)["checks"][0]
        assert (1, "data folder", "fail") == (done.returncode, found["check"], found["state"])
        assert found["detail"].startswith("/proc cannot be written")


def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    """Where the folder takes files but the database is a folder itself, that is named."""
    (tmp_path / "m.db").mkdir()
    url = f"sqlite:///{tmp_path}/m.db"
    done = Copies(SQLITE, tmp_path, database_url=url).run("check")
    assert 1 == done.returncode
    assert f"{tmp_path}/m.db cannot be written" in done.stdout
