"""The page of private names lists what the product uses, and a test for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.private_names import foreign_private_names

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decisions" / "0010-private-names.md"
PRODUCT = ("app", "workers", "migrations", "client_sdk/modelkin")
DOCUMENTED = {"_exit", "_replace"}
"""Names that begin with an underscore, and that Python documents."""
MOST = 12


class Entry(NamedTuple):
    """What one item of the page says."""

    package: str
    names: list[str]
    file: str
    test: str


def entries() -> list[Entry]:
    """The items of the page's list."""
    items = re.findall(
        r"^- (\w+) ((?:`[\w.]+`(?:,\s+)?)+)\s+in\s+`([\w./]+)`:.*?\n  Test: `(\S+)`$",
        PAGE.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    return [
        Entry(package, re.findall(r"`([\w.]+)`", names), file, test)
        for package, names, file, test in items
    ]


@pytest.mark.slow
def test_private_names_are_those_of_the_page() -> None:
    """What begins with an underscore is found by syntax, so that neither can change alone."""
    files = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    listed = {name.rpartition(".")[2] for entry in entries() for name in entry.names}
    assert {name for name in listed if name.startswith("_")} == (
        foreign_private_names(files).keys() - DOCUMENTED
    )


def test_there_are_few() -> None:
    """Each has to be inspected with each release of its package."""
    names = [(entry.package, name) for entry in entries() for name in entry.names]
    assert PAGE.read_text().count("\n  Test: ") == len(entries())
    assert len(set(names)) == len(names) <= MOST


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.names[0])
def test_what_is_listed_is_used_and_tested(entry: Entry) -> None:
    """In the file that the page names, by a test that exists."""
    code = (ROOT / entry.file).read_text()
    for name in entry.names:
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", code), name
    file, _, test = entry.test.partition("::")
    assert f"\ndef {test}(" in (ROOT / file).read_text()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from numpy._core import umath", {"_core"}),
        ("import torch.utils._pytree as trees", {"_pytree"}),
        ("import torch\ntorch._foreach_add_([], [])", {"_foreach_add_"}),
        (
            "def names(parser):\n    return parser._option_string_actions",
            {"_option_string_actions"},
        ),
        ("flat = getattr(object(), '_is_flat_param', False)", {"_is_flat_param"}),
        (
            "import httpx\n"
            "class Own(httpx.HTTPTransport):\n"
            "    def __init__(self):\n"
            "        self._pool = None",
            {"_pool"},
        ),
        (
            "from argparse import ArgumentParser\n"
            "class Mine(ArgumentParser):\n"
            "    def _get_values(self, action, words): return self._own\n"
            "    def _mine(self): self._own = self._mine",
            {"_get_values"},
        ),
        (
            "from app._parts import _one\nclass A:\n    _x = 1\n    def of(self): return self._x",
            set(),
        ),
    ],
)
def test_private_names_are_found(code: str, found: set[str], tmp_path: Path) -> None:
    """Imports, attributes of what is imported, names that no file defines, and overridden ones."""
    file = tmp_path / "one.py"
    file.write_text(code)
    assert found == foreign_private_names([file]).keys()
