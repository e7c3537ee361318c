"""``python -m tests.packaging.release``: whether this clone is what its tag says.

A dry run has no tag: it says the version, and what a tag of it would still lack. It needs nothing
but Python, since the workflow of a release installs nothing else for it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["faults", "main", "version"]

ROOT = Path(__file__).parents[2]


def main(environment: Mapping[str, str], root: Path = ROOT) -> int:
    """Say what is wrong; 1 where a tag says that this should be published."""
    found, of_tag = list(faults(environment, root)), environment.get("GITHUB_REF_TYPE") == "tag"
    for each in found:
        print(f"{'wrong' if of_tag else 'before a tag'}: {each}")  # noqa: T201
    print(f"version {version(root)}, {'to publish' if of_tag else 'a dry run'}")  # noqa: T201
    return 1 if of_tag and found else 0


def version(root: Path) -> str:
    """The one version of both distributions, read without an import."""
    text = (root / "client_sdk" / "modelkin" / "_version.py").read_text()
    found = re.search(r'^__version__[^=\n]*= "([^"]+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def faults(environment: Mapping[str, str], root: Path) -> Iterator[str]:
    """What does not fit a release of this version."""
    number = version(root)
    tag = environment.get("GITHUB_REF_NAME", "")
    if environment.get("GITHUB_REF_TYPE") == "tag" and tag != f"v{number}":
        yield f"the tag is {tag}, and the version {number}: the tag has to be v{number}"
    if f"\n## {number} - " not in (root / "CHANGELOG.md").read_text():
        yield f"CHANGELOG.md has no section for {number}: make changelog VERSION={number}"
    waiting = [each.name for each in (root / "changes").glob("*.*.md")]
    if waiting:
        yield f"changes/ still has what waits for this release: {min(waiting)}"


if __name__ == "__main__":
    sys.exit(main(os.environ))
