"""What this environment has of an installation, linked or copied: pip unpacks only the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["copy_distribution", "link_requirements"]


def link_requirements(site_packages: Path, *asked: str) -> None:
    """Link, file by file, what the distributions asked for require, and not these themselves.

    Args:
        site_packages: the folder of packages of another environment of this interpreter.
        asked: such as ``modelkin[fast]``; what they require, they say here as in a release.
    """
    own = {canonicalize_name(Requirement(each).name) for each in asked}
    for name, found in _closure(asked).items():
        if name not in own:
            _place(found, site_packages, os.symlink)


def copy_distribution(site_packages: Path, name: str) -> None:
    """Copy one distribution. Older releases of pip uninstall no links."""
    _place(distribution(name), site_packages, shutil.copy)


def _closure(asked: tuple[str, ...]) -> dict[str, Distribution]:
    """All that is required, directly or not, and installed here, by its name."""
    waiting = [Requirement(each) for each in asked]
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    while waiting:
        each = waiting.pop()
        name = canonicalize_name(each.name)
        new = {(name, extra) for extra in ("", *each.extras)} - seen
        if new:
            seen |= new
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:  # pip installs it, or says what it lacks
                continue
            waiting += _required(found[name], {extra for _, extra in new})
    return found


def _required(by: Distribution, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution requires on this machine for some extras; "" stands for no extra."""
    for line in by.requires or ():
        one = Requirement(line)
        if one.marker is None:
            if "" in extras:
                yield one
        elif any(one.marker.evaluate({"extra": extra}) for extra in extras):
            yield one


def _place(found: Distribution, site_packages: Path, place: Callable[[Path, Path], object]) -> None:
    """The files of a distribution, with the bytecode beside them; no command, which names its
    interpreter.
    """
    for file in found.files or ():
        if ".." in file.parts:
            continue
        source, target = Path(str(found.locate_file(file))), site_packages / file
        _unless_there(place, source, target)
        if target.suffix == ".py":
            for compiled in source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc"):
                _unless_there(place, compiled, target.parent / "__pycache__" / compiled.name)


def _unless_there(place: Callable[[Path, Path], object], source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        place(source, target)
