"""The kinds of jobs: those that the service registers, and those that the SDK names."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from app.jobs.service import JobService
from modelkin.types import vocabulary
from tests.support.app.harness import open_app


def test_the_sdk_names_the_kinds_of_the_service(tmp_path: Path) -> None:
    """``JobKind``, a plain text at run time, lists exactly the kinds that have a handler."""
    [named] = [
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(vocabulary)))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "JobKind"
    ]
    assert isinstance(named, ast.Subscript)
    with open_app(tmp_path) as app:
        assert set(ast.literal_eval(named.slice)) == app.services[JobService].kinds
