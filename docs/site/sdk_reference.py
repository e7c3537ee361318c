"""A reference of the SDK: every public name of ``modelkin``, by where it is defined.

A hook of MkDocs. It reads the names from the sources and imports nothing of them; mkdocstrings
writes what their docstrings say.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PACKAGE = Path(__file__).parents[2] / "client_sdk" / "modelkin"
PAGES: Final = {
    "client": ("The client", "The calls of a service: `Client`, and the namespaces that it has."),
    "core": ("Supports and selection", "What is computed on the device, without any service."),
    "types": ("Answers", "What the calls of a client return."),
    "errors": ("Errors", "What is raised, and when."),
}
"""Title and first sentence of each page, by the first part of the modules it covers."""


def definitions() -> Iterator[tuple[str, str]]:
    """The public names of ``modelkin``, each with the module that it comes from."""
    module = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    public: set[str] = set()
    found: list[tuple[str, str]] = []
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            public = set(ast.literal_eval(node.value)) - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [(alias.name, node.module) for alias in node.names]
        elif isinstance(node, ast.FunctionDef):
            found.append((node.name, "modelkin.selection"))
    yield from ((name, module) for name, module in found if name in public)
    yield from (
        (node.name, f"modelkin.client._sync.{path.stem}")
        for path in sorted((PACKAGE / "client" / "_sync").glob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(b) == "Resource" for b in node.bases)
    )


def page_of(module: str) -> str:
    """The page on which a module's names stand."""
    part = module.removeprefix("modelkin.").split(".")[0]
    return part if part in PAGES else "core"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    names: dict[str, list[str]] = {page: [] for page in PAGES}
    for name, module in definitions():
        whole = f"{module}.{name}" if "._sync." in module else f"modelkin.{name}"
        names[page_of(module)].append(f"::: {whole}")
    for page, (title, first) in PAGES.items():
        text = "\n\n".join([f"# {title}", first, *names[page]]) + "\n"
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    return files
