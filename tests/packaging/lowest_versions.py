"""``python -m tests.packaging.lowest_versions``: list what ``make oldest`` installs.

What the distributions require stands there as it is published, so that a resolver that prefers the
lowest version shows what they promise. The tools of tests have the versions of constraints.txt,
since no distribution brings them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["requirements"]

ROOT = Path(__file__).parents[2]
_OWN = re.compile(r"modelkin(-service)?\b")
_NAME = re.compile(r"[\w.-]+(\[[\w,.-]+\])?")
_NOT_INSTALLED = {"dev", "bench"}
"""Extras of those who work on modelkin."""


def requirements() -> Iterator[str]:
    """Each published requirement, and each tool of the tests with its version."""
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, version = line.partition("#")[0].strip().partition("==")
        pins[_key(name)] = version
    for file in ROOT / "pyproject.toml", ROOT / "client_sdk/pyproject.toml":
        project = tomllib.loads(file.read_text())["project"]
        extras = project["optional-dependencies"]
        published = [*project["dependencies"]]
        for extra in extras.keys() - _NOT_INSTALLED:
            published += extras[extra]
        yield from _foreign(published)
        for tool in _foreign(extras.get("dev", [])):
            found = _NAME.match(tool)
            assert found is not None
            yield f"{found[0]}=={pins[_key(found[0])]}"


def _foreign(listed: list[str]) -> Iterator[str]:
    """Those of other projects; Flower and NVFlare are installed apart, see the Makefile."""
    apart = ("flwr", "nvflare")
    return (each for each in listed if not _OWN.match(each) and not each.startswith(apart))


def _key(name: str) -> str:
    return name.partition("[")[0].lower().replace("_", "-")


if __name__ == "__main__":
    sys.stdout.writelines(f"{each}\n" for each in sorted(requirements()))
