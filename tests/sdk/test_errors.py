"""The errors of the SDK: each class that can be caught is one that is raised."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import modelkin
from modelkin import errors
from modelkin.errors import ModelkinError

SDK = Path(modelkin.__file__).parent


def constructed(tree: ast.AST) -> Iterator[str]:
    """Names that are called, chosen by a condition or looked up in a table."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name
            case ast.IfExp(body=body, orelse=orelse):
                yield from (part.id for part in (body, orelse) if isinstance(part, ast.Name))
            case ast.Dict(values=values):
                yield from (value.id for value in values if isinstance(value, ast.Name))


@pytest.fixture(scope="module")
def raised() -> set[str]:
    """What the modules of the SDK make, but for the one that defines the errors."""
    files = [path for path in SDK.rglob("*.py") if path != SDK / "errors.py"]
    return {name for path in files for name in constructed(ast.parse(path.read_text()))}


@pytest.mark.parametrize("name", sorted(errors.__all__))
def test_each_class_is_raised(name: str, raised: set[str]) -> None:
    """The SDK makes the class itself, or for a base one of those below it."""

    def below(error: type[ModelkinError]) -> Iterator[str]:
        yield error.__name__
        for kind in error.__subclasses__():
            if kind.__module__ == errors.__name__:
                yield from below(kind)

    assert set(below(getattr(errors, name))) & raised


def test_all_classes_are_listed_and_drawn() -> None:
    """``__all__`` and the tree in the docstring name every class of the module, and no other."""
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, ModelkinError)
    }
    drawn = set(re.findall(r"^    (?:[│ ]*[├└]── )?(\w+)", errors.__doc__ or "", re.MULTILINE))
    assert defined == set(errors.__all__) == drawn
