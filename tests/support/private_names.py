"""Find the private names of other packages that the product uses, as far as syntax shows them."""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["OUR_PACKAGES", "foreign_private_names"]

OUR_PACKAGES = ("app", "workers", "migrations", "modelkin")

Tree = list[ast.AST]
"""The nodes of a file that are asked about; walking all takes longer than what is asked of each."""
_ASKED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Name, ast.Attribute, ast.Call),
    *(ast.Import, ast.ImportFrom, ast.alias),
)


def foreign_private_names(files: Iterable[Path]) -> dict[str, set[str]]:
    """Private names by the last part of each, with the names of the files that use it.

    A name is private if it begins with one underscore. It belongs to others if it is imported
    from them, or if no file here defines it; or if a class here overrides it.
    """
    ours = set[str]()
    theirs, used = dict[str, set[str]](), dict[str, set[str]]()
    for file in files:  # one tree at a time: garbage collections inspect what is kept
        tree = _nodes(ast.parse(file.read_text()))
        ours.update(_defined(tree))
        for name in {*_imported(tree), *_of_imports(tree), *_overridden(tree)}:
            theirs.setdefault(name, set()).add(file.name)
        for name in _used(tree):
            used.setdefault(name, set()).add(file.name)
    for name in used.keys() - ours:
        theirs.setdefault(name, set()).update(used[name])
    return theirs


def _nodes(root: ast.AST) -> Tree:
    return [node for node in ast.walk(root) if isinstance(node, _ASKED)]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def _is_foreign(module: str | None) -> bool:
    return bool(module) and str(module).partition(".")[0] not in (*OUR_PACKAGES, "__future__")


def _defined(tree: Tree) -> Iterator[str]:
    """Names that a file gives something: functions, classes, variables, attributes and slots."""
    for node in tree:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                yield node.attr
            case ast.alias(asname=str(name)):
                yield name


def _imported(tree: Tree) -> Iterator[str]:
    for node in tree:
        match node:
            case ast.ImportFrom(level=0) if _is_foreign(node.module):
                parts = str(node.module).split(".")
                for alias in node.names:
                    yield from filter(_is_private, [*parts, alias.name])
            case ast.Import():
                for alias in node.names:
                    if _is_foreign(alias.name):
                        yield from filter(_is_private, alias.name.split("."))


def _used(tree: Tree) -> set[str]:
    """Private attributes, and private names that are asked for as strings."""
    found = set()
    for node in tree:
        match node:
            case ast.Attribute():
                found.add(node.attr)
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr")):
                found |= {
                    a.value
                    for a in node.args
                    if isinstance(a, ast.Constant) and isinstance(a.value, str)
                }
    return {name for name in found if _is_private(name)}


def _foreign_objects(tree: Tree) -> dict[str, tuple[str, str]]:
    """Names bound by imports of others' modules: the module and the name in it."""
    found: dict[str, tuple[str, str]] = {}
    for node in tree:
        match node:
            case ast.ImportFrom(level=0) if _is_foreign(node.module):
                found |= {a.asname or a.name: (str(node.module), a.name) for a in node.names}
            case ast.Import():
                for a in node.names:
                    if _is_foreign(a.name):
                        found[a.asname or a.name.partition(".")[0]] = (a.name, "")
    return found


def _of_imports(tree: Tree) -> Iterator[str]:
    """Private attributes of what was imported, even if a file here defines the same name."""
    foreign = _foreign_objects(tree)
    for node in tree:
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            root: ast.AST = node
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in foreign:
                yield node.attr


def _overridden(tree: Tree) -> Iterator[str]:
    """Private methods and attributes of a class that one of its foreign bases has, too."""
    foreign = _foreign_objects(tree)
    for node in tree:
        if not isinstance(node, ast.ClassDef):
            continue
        names = {n for n in _defined(_nodes(node)) if _is_private(n)}
        for base in node.bases if names else ():  # importing them takes seconds
            base = base.value if isinstance(base, ast.Subscript) else base
            yield from names & set(_names_of(_resolved(base, foreign)))


def _names_of(kind: object) -> Iterator[str]:
    """The names of a class, and of the attributes that its methods use."""
    yield from dir(kind)
    for each in getattr(kind, "__mro__", ()):
        for method in vars(each).values():
            yield from getattr(getattr(method, "__code__", None), "co_names", ())


def _resolved(base: ast.expr, foreign: dict[str, tuple[str, str]]) -> object:
    dotted = ast.unparse(base).split(".")
    if dotted[0] not in foreign:
        return getattr(builtins, dotted[0], None)
    module, name = foreign[dotted[0]]
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError:  # NVFlare, whose own tests ask where it is installed
        return None
    for part in filter(None, [name, *dotted[1:]]):
        found = getattr(found, part)
    return found
