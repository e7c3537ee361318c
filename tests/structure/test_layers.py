"""Layers inside the features of ``app``, by the names of modules, as docs/architecture.md has them.

Import contracts order rooms, and name who may import HTTP and SQL. They cannot say that a module
imports only what lies below it, without a list of all modules.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]

LAYERS = ("records", "repository", "service", "jobs", "edge", "endpoints")
"""The lowest first. A module with none of the names below is part of the service."""
_NAMES = {
    "records": "records",
    "stored_layouts": "records",
    "terms": "records",
    "repository": "repository",
    "repositories": "repository",
    "manifests": "repository",
    "postgres_copies": "repository",
    "sqlite_copies": "repository",
    "jobs": "jobs",
    "schemas": "edge",
    "dependencies": "edge",
    "middleware": "edge",
    "endpoints": "endpoints",
    "health": "endpoints",
    "metrics": "endpoints",
    "request_log": "endpoints",
}
_BESIDE = ("app.infra", "app.ui", "app.server", "app.jobs")
"""Rooms without these layers; the queue is below all handlers, though its name is ``jobs``."""

APART = {
    # A manifest names servers of strangers: its readers fetch from them, the service never does.
    "app.models.learngenes": {"app.infra.egress", "app.hubs", "httpx", "modelkin.client"},
    "app.infra.errors": {"app.infra.db", "app.infra.egress", "app.infra.http", "app.infra.storage"},
    "app.infra.deadlines": {
        *("app.infra.db", "app.infra.egress", "app.infra.http", "app.infra.storage")
    },
    # One process may serve and carry out jobs: the server starts the worker, which knows no server.
    "workers": {"app.server", "app.__main__"},
    # A query reads the caller's own spaces; `public` shows those of others, and is asked by itself.
    "app.search.endpoints": {"app.search.public"},
    "app.search.service": {"app.search.public"},
    "app.kinship": {"app.search.public"},
}
"""Packages, and what none of their modules imports."""
SHARED = {
    "app.operations.cli": ("store_checks", "running", "arguments", "output"),
    "modelkin.federation.sharing": (
        "aggregator",
        "pairwise_masks",
        "sealing",
        "shift_state",
        "values",
    ),
}
"""Packages whose modules import no other of them but these, and each of these the later ones."""


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("app", "workers", "modelkin", include_external_packages=True)


def within(package: str) -> set[str]:
    """A module and all that lie in it; a package of others is one module."""
    if graph().is_module_squashed(package):
        return {package}
    return {package} | graph().find_descendants(package)


def layer_of(module: str) -> str | None:
    """The layer of a module; None of one that is in no feature."""
    if not module.startswith("app.") or module.count(".") < 2 or module.startswith(_BESIDE):
        return None
    names = [part for part in reversed(module.split(".")[2:]) if part in _NAMES]
    return _NAMES[names[0]] if names else "service"


def imports_of(layer: str) -> set[tuple[str, str]]:
    """Each module of a layer, with each module that it imports."""
    found = {each for each in graph().modules if layer_of(each) == layer}
    assert found
    return {(each, to) for each in found for to in graph().find_modules_directly_imported_by(each)}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_none_above_it(layer: str) -> None:
    """Directly. What composes them all, the pages and the server have no such layers."""
    above = LAYERS[LAYERS.index(layer) + 1 :]
    assert set() == {each for each in imports_of(layer) if layer_of(each[1]) in above}


@pytest.mark.parametrize("package", APART)
def test_some_packages_are_apart(package: str) -> None:
    """A package imports nothing of those that it must not know, whatever the layers allow."""
    imported = {
        to for each in within(package) for to in graph().find_modules_directly_imported_by(each)
    }
    assert set() == imported & {each for name in APART[package] for each in within(name)}


@pytest.mark.parametrize("package", SHARED)
def test_modules_share_what_they_build_on_and_know_no_other(package: str) -> None:
    """An operator's command knows no other command, and a member no assembly."""
    shared = [f"{package}.{name}" for name in SHARED[package]]
    modules = graph().find_children(package)
    assert set(shared) < modules
    for each in modules:
        later = shared[shared.index(each) + 1 :] if each in shared else shared
        assert graph().find_modules_directly_imported_by(each) & modules <= set(later), each


def test_every_feature_of_a_room_has_its_place() -> None:
    """The contract of features names each folder of the rooms that have an order."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (features,) = (c for c in options["contracts"] if c["name"] == "The features of a room")
    named = {name for line in features["layers"] for name in line.replace(":", "|").split("|")}
    folders = {
        path.parent.name
        for room in features["containers"]
        for path in (ROOT / room.replace(".", "/")).glob("*/__init__.py")
    }
    assert folders - {"endpoints"} <= {name.strip(" ()") for name in named}
