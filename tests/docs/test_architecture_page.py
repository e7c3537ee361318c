"""The rooms and features in docs/architecture.md, beside the folders and modules of ``app``."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.servers.server_process import ROOT

APP = ROOT / "app"
PAGE = ROOT / "docs" / "architecture.md"
MOST = 14
_OTHERS = {"workers"}
"""Folders in the list that lie beside ``app``."""


def listed() -> list[str]:
    """The names of the list, in its order."""
    block = re.search(r"\*\*Rooms\.\*\*.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    names = [line.split("  ")[0] for line in block[1].splitlines()]
    return [name for each in names for name in each.split(", ")]


def packages(folder: Path) -> set[str]:
    """The names of the packages in a folder."""
    return {path.parent.name for path in folder.glob("*/__init__.py")}


def features() -> dict[str, set[str]]:
    """The features of each room that has some."""
    rows = re.findall(
        r"^- `(\w+)`: (`.*?)(?=\n\S|\n\n)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return {room: set(re.findall(r"`(\w+)`\s\(", named)) for room, named in rows}


def test_every_room_is_in_the_list_and_every_name_of_it_is_there() -> None:
    """Each folder and module of the service once, and nothing that has gone."""
    modules = {path.stem for path in APP.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(packages(APP) | modules | _OTHERS) == sorted(listed())


def test_the_rooms_are_few() -> None:
    """A newcomer can hold them in mind."""
    assert len(packages(APP)) <= MOST


def test_every_feature_of_a_room_is_named() -> None:
    """All folders of these rooms are features; `kinship` has that of donors, too."""
    named = features()
    folders = {room: packages(APP / room) - {"endpoints"} for room in named}
    assert {"models", "operations", "search", "tenancy", "kinship"} == named.keys()
    assert folders == {**named, "kinship": named["kinship"] | {"donors"}}
