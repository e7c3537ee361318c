"""Layers inside the features of ``app``, by the names of modules, as docs/architecture.md has them.

Import contracts order rooms, and name who may import HTTP and SQL. They cannot say that a module
imports only what lies below it, without a list of all modules.
"""

from __future__ import annotations

from functools import cache

import grimp
import pytest

LAYERS = ("records", "repository", "service", "jobs", "edge", "endpoints")
"""The lowest first. A module with none of the names below is part of the service."""
_NAMES = {
    "records": "records",
    "stored_layouts": "records",
    "repository": "repository",
    "repositories": "repository",
    "manifests": "repository",
    "postgres_copies": "repository",
    "sqlite_copies": "repository",
    "jobs": "jobs",
    "schemas": "edge",
    "dependencies": "edge",
    "rate_limit_middleware": "edge",
    "endpoints": "endpoints",
    "health": "endpoints",
    "metrics": "endpoints",
    "request_log": "endpoints",
}
_BESIDE = ("app.infra", "app.ui", "app.server", "app.jobs")
"""Rooms without these layers; the queue is below all handlers, though its name is ``jobs``."""


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("app")


def layer_of(module: str) -> str | None:
    """The layer of a module; None of one that is in no feature."""
    if module.count(".") < 2 or module.startswith(_BESIDE):
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
