"""Public names: modules of the SDK, methods of its client, operations, commands and settings.

Users write these down, so moves and renames inside leave them as they are. A name is added or
removed on purpose: ``python -m tests.structure.test_public_names`` writes the list.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import modelkin
from app.settings import Settings
from modelkin.cli.arguments import option_names, parser_of
from modelkin.cli.catalogue import leaves

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "public_names.json"
MODULES = (
    "modelkin",
    "modelkin.checkpoints",
    "modelkin.errors",
    "modelkin.federation.adapters",
    "modelkin.integrations.flower",
    "modelkin.integrations.huggingface",
    "modelkin.integrations.lightning",
    "modelkin.plots",
    "modelkin.sharing",
    "modelkin.torch",
    "modelkin.torch.privacy",
    "modelkin.types",
    "modelkin.webhooks",
    "modelkin.wire",
)


def exports() -> dict[str, list[str]]:
    """The names of each public module; each can be imported."""
    found = {module: sorted(import_module(module).__all__) for module in MODULES}
    assert all(hasattr(import_module(module), name) for module in found for name in found[module])
    return found


def methods() -> dict[str, list[str]]:
    """The methods of a client and of its resources, with the names of their parameters."""
    client = modelkin.Client("http://kin.test")
    resources = {name: value for name, value in vars(client).items() if not name.startswith("_")}
    parts = {"client": client, **{f"client.{name}": value for name, value in resources.items()}}
    client.close()
    return {
        f"{place}.{name}": [*inspect.signature(member).parameters]
        for place, part in parts.items()
        if type(part).__module__.startswith("modelkin.")
        for name, member in inspect.getmembers(part, callable)
        if not name.startswith("_")
    }


def operations() -> dict[str, str]:
    """The operations of the API by method and path."""
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    return {
        f"{method.upper()} {path}": operation["operationId"]
        for path, methods_of in paths.items()
        for method, operation in methods_of.items()
    }


def commands() -> dict[str, list[str]]:
    """The commands of ``modelkin`` and their options."""
    return {name: sorted(option_names(parser_of(name, command))) for name, command in leaves()}


def settings() -> list[str]:
    """The settings of the service."""
    return [f"MODELKIN_{name.upper()}" for name in Settings.model_fields]


LISTS: dict[str, Callable[[], object]] = {
    each.__name__: each for each in (exports, methods, operations, commands, settings)
}


@pytest.mark.parametrize("kind", LISTS)
def test_public_names_are_those_of_the_list(kind: str) -> None:
    """Nothing that users write down is renamed, added or removed by the way."""
    assert json.loads(GOLDEN.read_text())[kind] == LISTS[kind]()


if __name__ == "__main__":
    found = {kind: names() for kind, names in LISTS.items()}
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
