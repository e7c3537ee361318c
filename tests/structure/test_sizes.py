"""The sizes that keep the house in one's mind: of rooms, folders, files and import contracts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("app", "workers", "demo", "client_sdk/modelkin")
MAX_ROOMS, MAX_FILES, MAX_LINES, MAX_CONTRACT_LINES = 14, 20, 400, 60


def modules(*folders: str) -> list[Path]:
    """All modules below some folders."""
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > 10
    return found


@pytest.mark.parametrize("package", ["app", "client_sdk/modelkin"])
def test_a_package_has_few_rooms(package: str) -> None:
    """A room is a package at the top; the modules beside the rooms are not counted."""
    rooms = [path.parent for path in (ROOT / package).glob("*/__init__.py")]
    assert 5 < len(rooms) <= MAX_ROOMS


def test_no_folder_has_many_modules() -> None:
    """More cannot be read at a glance, be they product, tests, benchmarks or studies."""
    counts = Counter(path.parent for path in modules(*PRODUCT, "tests", "benchmarks", "studies"))
    assert {} == {folder: count for folder, count in counts.items() if count > MAX_FILES}


def test_no_module_is_long() -> None:
    """A longer one holds two ideas, of which one has no name yet."""
    counts = {path: len(path.read_text().splitlines()) for path in modules(*PRODUCT)}
    assert {} == {path: count for path, count in counts.items() if count > MAX_LINES}


def test_the_import_contracts_are_short() -> None:
    """They name rooms and kinds of modules; a list of modules would be read by nobody."""
    text = (ROOT / "pyproject.toml").read_text()
    contracts = re.search(r"^\[tool\.importlinter\]\n.*?^\]$", text, re.DOTALL | re.MULTILINE)
    assert contracts is not None
    assert contracts[0].count("{ name = ") > 10
    assert contracts[0].count("\n") < MAX_CONTRACT_LINES
