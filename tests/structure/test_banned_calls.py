"""The linter refuses what could run code out of a file or a message, in all of the product."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "workers", "client_sdk", "studies", "benchmarks", "demo", "examples", "docs")
EXCEPTIONS = {
    "app/hubs/ingestion/files/resumption.py": "arrays that a sync kept, without pickles",
    "app/infra/subprocesses.py": "a child reads what its parent writes",
    "client_sdk/modelkin/cli/commands/subspaces.py": "an array of the user, without pickles",
}
"""Where a line may do it, and why; the restricted reader of the studies unpickles nothing."""
BANNED = [
    "import pickle",
    "from pickle import loads",
    "import _pickle",
    "import cloudpickle",
    "import dill",
    "import joblib",
    "import marshal",
    "import shelve",
    "import torch\n\ntorch.load('model.pt')",
    "import torch as t\n\nt.load('model.pt', weights_only=True)",
    "from torch import load",
    "from torch import hub",
    "import numpy as np\n\nnp.load('array.npy', allow_pickle=True)",
    "from numpy import load",
    "import pandas as pd\n\npd.read_pickle('frame.pkl')",
]


def refusals(code: str, path: str) -> set[str]:
    """The rules of the linter that a file of this path and content breaks."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format=json", "--no-cache"]
    checked = subprocess.run(
        [*command, f"--stdin-filename={path}", "-"],
        cwd=ROOT,
        input=code,
        capture_output=True,
        text=True,
    )
    return {found["code"] for found in json.loads(checked.stdout)}


@pytest.mark.parametrize("code", BANNED)
def test_each_is_refused(code: str) -> None:
    """In a module of the service."""
    assert "TID251" in refusals(f"{code}\n", "app/planted.py")


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_is_refused_everywhere(folder: str) -> None:
    """No folder of the product is left out; tests make pickles to see them refused."""
    assert "TID251" in refusals("import pickle\n", f"{folder}/planted.py")


def sources() -> Iterator[tuple[str, str]]:
    """The paths and texts of all modules of the product."""
    for folder in (*FOLDERS, "migrations"):
        for path in (ROOT / folder).rglob("*.py"):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_exceptions_are_declared() -> None:
    """A line that turns the rule off is in one of these modules, and says why."""
    marked = {path: text for path, text in sources() if re.search(r"noqa:.*TID251", text)}
    assert set(EXCEPTIONS) == set(marked)
    assert all(re.search(r"noqa: TID251 - \w", text) for text in marked.values())


def test_no_call_allows_pickles() -> None:
    """``allow_pickle`` is False wherever it is said, with or without a name in between."""
    allowing = [
        f"{path}:{node.lineno}"
        for path, text in sources()
        if "allow_pickle" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
        if not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]
    assert [] == allowing
