"""The rules of the tests: they use public names of the product, and share fixtures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

TESTS = Path(__file__).resolve().parents[1]

ALLOWED = {
    ("app/server/test_signals.py", "_exit"): "a public function of os",
    ("app/hubs/test_downloads.py", "_replace"): "a public method of named tuples",
    ("sdk/integrations/test_huggingface.py", "_training"): "a private module of the SDK",
    ("sdk/integrations/test_lightning.py", "_training"): "likewise",
    ("sdk/integrations/test_huggingface.py", "_get_output_dir"): "of transformers' Trainer",
    ("sdk/test_printing.py", "_repr_html_"): "the name that notebooks call",
    ("sdk/test_anatomy.py", "_repr_html_"): "likewise",
    ("support/client_clock.py", "_connection"): "no clock in the public constructor of a client",
}
"""Private names that tests use, and why each may be used."""


MAY_BE_PRIVATE = re.compile(r"\._[^_]|\bimport\b[^\n(]*(?:\([^)]*)?\b_[^\W_]|\.(?:set|del)attr\b")
"""What a module has that reads, imports or replaces private names; to parse the rest takes long."""

IMPORTED = re.compile(r"\bfrom (tests\.[\w.]+) import\b")


@cache
def modules() -> dict[str, str]:
    """The texts of all modules of the tests by their path."""
    return {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}


def is_private(name: object) -> bool:
    """Whether a name begins with one underscore."""
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def is_replaceable(name: str) -> bool:
    """Whether monkeypatch may replace a name: a public one, or a constant of a module."""
    return not is_private(name) or name.isupper()


def is_replacement(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether it is a call of monkeypatch that replaces or deletes a name."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr in {"setattr", "delattr"}


def private_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """The private names of others that a module reads, imports or replaces, with their lines."""
    for node in nodes:
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
            if is_private(node.attr) and not own:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, each.name) for each in node.names if is_private(each.name))
        elif is_replacement(node):
            texts = (each.value for each in node.args[:2] if isinstance(each, ast.Constant))
            names = (text.rpartition(".")[2] for text in texts if isinstance(text, str))
            yield from ((node.lineno, name) for name in names if not is_replaceable(name))


def fixtures_of(tree: ast.Module) -> set[str]:
    """The names of the fixtures that a module defines."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


@pytest.mark.slow
def test_private_names_of_others_are_not_used() -> None:
    """A test that needs more of an object than it shows has it made public under a good name; no
    exception is left that no test takes.
    """
    used = {
        (file, name): line
        for file, text in modules().items()
        if MAY_BE_PRIVATE.search(text)
        for line, name in private_names(ast.walk(ast.parse(text)))
    }
    assert {} == {place: line for place, line in used.items() if place not in ALLOWED}
    assert set() == ALLOWED.keys() - used.keys()


@pytest.mark.slow
def test_fixtures_are_not_imported() -> None:
    """Those of several folders are in tests/support/fixtures.py: an imported one starts again."""
    fixtures = {
        "tests." + file.removesuffix(".py").replace("/", "."): fixtures_of(ast.parse(text))
        for file, text in modules().items()
        if "fixture" in text
    }
    defining = {module for module, names in fixtures.items() if names}
    for file, text in modules().items():
        if defining.isdisjoint(IMPORTED.findall(text)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module in defining:
                imported = {each.name for each in node.names}
                assert set() == imported & fixtures[node.module], file
