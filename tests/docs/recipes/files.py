"""The files of docs/recipes, read as the programs read them that they are for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = [
    "FOLDER",
    "directives",
    "expressions",
    "labels_in",
    "metrics_in",
    "objects",
    "passes",
    "pods",
    "unit",
    "variables",
]

FOLDER = Path(__file__).parents[3] / "docs" / "recipes"
_TOKEN = re.compile(r"\"[^\"]*\"|[{};]|[^\s{};]+")
_TEXT = re.compile(r"\"[^\"]*\"|'[^']*'")
_GROUPING = re.compile(r"\b(?:by|without) *\(([^)]*)\)")
_BRACES = re.compile(r"\{([^}]*)\}")
_WINDOW = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*(?! *\(|[\w:])")
_OPERATORS = {"or", "and", "unless"}


def unit(name: str) -> dict[str, list[str]]:
    """The values of each key of a systemd unit, in order."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text().splitlines():
        if line and line[0] not in "#[":
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(key, []).append(value)
    return found


def variables(name: str) -> dict[str, str]:
    """The variables of a file of them."""
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def directives() -> Iterator[tuple[str, ...]]:
    """The directives of nginx.conf: the blocks around each, and its words."""
    text = re.sub(r"#.*", "", (FOLDER / "nginx.conf").read_text())
    words: list[str] = []
    around: list[str] = []
    for token in _TOKEN.findall(text):
        if token == "{":
            around.append(" ".join(words))
            words = []
        elif token == "}":
            assert not words, words
            around.pop()
        elif token == ";":
            yield (" > ".join(around), *words)
            words = []
        else:
            words.append(token)
    assert not around, around


def objects() -> list[dict[str, Any]]:
    """The objects of kubernetes.yaml."""
    listed: dict[str, Any] = yaml.safe_load((FOLDER / "kubernetes.yaml").read_text())
    assert ("v1", "List") == (listed["apiVersion"], listed["kind"])
    found: list[dict[str, Any]] = listed["items"]
    return found


def pods() -> dict[str, dict[str, Any]]:
    """The pods of each object that has some, by its name."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in objects()
        if "template" in each.get("spec", {})
    }


def expressions() -> list[str]:
    """The expressions of the alerts and of the dashboard."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [
        *(rule["expr"] for group in rules for rule in group["rules"]),
        *(target["expr"] for panel in panels for target in panel["targets"]),
    ]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    bare = _TEXT.sub("", expression)
    for part in (_GROUPING, _BRACES, _WINDOW):
        bare = part.sub("", bare)
    return set(_NAME.findall(bare)) - _OPERATORS


def labels_in(expression: str) -> set[str]:
    """The labels by which an expression selects or groups."""
    bare = _TEXT.sub("", expression)
    lists = _GROUPING.findall(bare) + _BRACES.findall(bare)
    return {name for text in lists for name in re.findall(r"[a-z_]+", text)}


def passes(*command: str) -> None:
    """Fail the test with what a program says that does not exit with 0."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout + done.stderr
