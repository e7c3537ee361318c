"""The files of changes/: names that a release reads, and the section that it makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
CHANGES = ROOT / CONFIG["directory"]
OTHERS = {"README.md", Path(CONFIG["template"]).name}
SECTION = """<!-- releases -->

## 9.8.7 - 2031-02-03

### Removed

- Stop-lists go.

### Fixed

- A search ends
  in time.

## 0.1.0"""


def fragments() -> list[Path]:
    """All files of the folder that a release would join."""
    return sorted(path for path in CHANGES.iterdir() if path.name not in OTHERS)


def test_a_release_reads_the_name_of_each_change() -> None:
    """A slug, a kind that has a heading, and ``.md``: any other name would end the release."""
    kinds = "|".join(kind["directory"] for kind in CONFIG["type"])
    name = re.compile(rf"(?:{CONFIG['issue_pattern']})\.(?:{kinds})\.md")
    assert [] == [path.name for path in fragments() if not name.fullmatch(path.name)]


def test_a_change_is_a_sentence_or_two() -> None:
    """Each is one paragraph, and neither a heading nor a list: the release makes its bullet."""
    for path in fragments():
        text = path.read_text()
        assert re.fullmatch(r"[^\s#*-][^\n]*(\n[^\s#-][^\n]*){0,5}\n", text), path.name


def test_a_release_joins_the_changes_and_deletes_them(tmp_path: Path) -> None:
    """The section of the release stands above that of the release before, by kind."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (folder := tmp_path / CONFIG["directory"]).mkdir()
    for other in OTHERS:
        shutil.copy(CHANGES / other, folder)
    (folder / "search-ends.fixed.md").write_text("A search ends\nin time.\n")
    (folder / "stop-lists.removed.md").write_text("Stop-lists go.\n")
    log = tmp_path / CONFIG["filename"]
    log.write_text(f"# Changelog\n\n{CONFIG['start_string']}\n## 0.1.0 - 2026-11-24\n")
    command = ["build", "--yes", "--version", "9.8.7", "--date", "2031-02-03"]
    subprocess.run([sys.executable, "-m", "towncrier", *command], cwd=tmp_path, check=True)
    assert SECTION in log.read_text()
    assert OTHERS == {path.name for path in folder.iterdir()}
