"""What this environment has of an installation, linked: pip unpacks only the rest."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["link_distribution", "link_requirements"]


def link_requirements(site_packages: Path, *asked: str) -> None:
    """Link, file by file, what the distributions asked for require, and not these themselves.

    Args:
        site_packages: the folder of packages of another environment of this interpreter.
        asked: such as ``modelkin[fast]``; what they require, they say here as in a release.
    """
    own = {canonicalize_name(Requirement(each).name) for each in asked}
    for name, found in _closure(asked).items():
        if name not in own:
            _link(found, site_packages)


def link_distribution(site_packages: Path, name: str) -> None:
    """Link one distribution, file by file."""
    _link(distribution(name), site_packages)


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


def _link(found: Distribution, site_packages: Path) -> None:
    """The files of a distribution, with the bytecode beside them; no command, which names its
    interpreter.
    """
    for file in found.files or ():
        if ".." in file.parts:
            continue
        source, target = Path(str(found.locate_file(file))), site_packages / file
        _symlink(source, target)
        if target.suffix == ".py":
            for compiled in source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc"):
                _symlink(compiled, target.parent / "__pycache__" / compiled.name)


def _symlink(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_symlink():
        target.symlink_to(source)
