"""The list of features in docs/architecture.md, beside the folders and modules of ``app``."""

from __future__ import annotations

import re

from tests.support.servers.server_process import ROOT

_OTHERS = {"workers"}
"""Folders in the list that lie beside ``app``."""


def listed() -> list[str]:
    """The names of the list, in its order."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"\*\*Features\.\*\*.*?```text\n(.*?)```", page, re.DOTALL)
    assert block is not None
    names = [line.split("  ")[0] for line in block[1].splitlines()]
    return [name for each in names for name in each.split(", ")]


def test_every_feature_is_in_the_list_and_every_name_of_it_is_there() -> None:
    """Each folder and module of the service once, and nothing that has gone."""
    app = ROOT / "app"
    there = {path.stem for path in app.glob("*.py")} | {
        path.parent.name for path in app.glob("*/__init__.py")
    }
    there -= {"__init__", "__main__"}
    assert sorted(there | _OTHERS) == sorted(listed())
