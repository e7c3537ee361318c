"""The versions of constraints.txt, which the Makefile installs, with the oldest Python allowed."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OLDEST = {"python_version": "3.11", "python_full_version": "3.11.0"}
PINNED = frozenset(
    canonicalize_name(line.partition("==")[0])
    for line in (ROOT / "constraints.txt").read_text().split()
)


def installed() -> list[NormalizedName]:
    """The pinned packages that are there; some are for another Python or for benchmarks alone."""
    found: list[NormalizedName] = []
    for name in PINNED:
        try:
            metadata(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def test_the_oldest_python_is_that_of_the_projects() -> None:
    """Both say the one that these tests are about."""
    for project in ("pyproject.toml", "client_sdk/pyproject.toml"):
        asked = tomllib.loads((ROOT / project).read_text())["project"]["requires-python"]
        assert f">={OLDEST['python_version']}" == asked


def test_pinned_versions_run_on_the_oldest_python() -> None:
    """Distributions have the first releases of a Python, and pip refuses what asks for a later."""
    asked = {name: metadata(name).get_all("Requires-Python", [""])[0] for name in installed()}
    assert len(asked) > 100
    oldest = OLDEST["python_full_version"]
    assert {} == {name: asked[name] for name in asked if oldest not in SpecifierSet(asked[name])}


def test_what_only_the_oldest_python_needs_is_pinned() -> None:
    """A release of a Python that these tests do not run on gets tested versions, too."""
    needed = {
        canonicalize_name(each.name)
        for name in installed()
        for each in map(Requirement, requires(name) or [])
        if each.marker and re.search("python_(full_)?version", str(each.marker))
        if each.marker.evaluate({**OLDEST, "extra": ""})
    }
    assert set() == needed - PINNED
