"""Packages are those of the manifest, to the bit, and their members never leave their folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest

from studies.real.archives import read_members
from studies.real.command import FAMILIES
from studies.real.downloads import fetched
from studies.real.errors import InvalidFile, Unavailable
from studies.real.manifest import Package, packages


def package(file: str = "small-1.0-py3-none-any.whl", data: bytes = b"bytes") -> Package:
    """A package whose file has these bytes."""
    registry: Literal["npm", "python"] = "npm" if file.endswith(".tgz") else "python"
    digest = hashlib.sha256(data).hexdigest()
    return Package("spliceai", registry, "small", "1.0", file, digest, "MIT")


def wheel(path: Path, *names: str) -> Path:
    """A wheel whose members are their own names."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return path


def tarball(path: Path, *members: tarfile.TarInfo) -> Path:
    """A tarball of empty members."""
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO())
    return path


def test_every_family_has_packages_that_are_named_to_the_bit() -> None:
    """Each has a version, a file, a digest and a licence; files are wheels or tarballs."""
    found = packages()
    assert {package.family for package in found} == FAMILIES.keys()
    for each in found:
        assert 64 == len(bytes.fromhex(each.sha256).hex())
        assert each.licence
        assert each.version in each.file
        assert each.file.endswith(".tgz" if each.registry == "npm" else ".whl")
    assert len(found) == len({(each.family, each.file) for each in found})


def test_a_package_that_is_there_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the cache with the right digest needs neither pip nor a registry."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / package().file).write_bytes(b"bytes")
    assert tmp_path / package().file == fetched(package(), tmp_path)


def test_a_changed_package_is_refused_by_both_digests(tmp_path: Path) -> None:
    """The error names the package, its file, the digest seen and that of the manifest."""
    (tmp_path / package().file).write_bytes(b"other bytes")
    with pytest.raises(Unavailable) as refused:
        fetched(package(), tmp_path)
    said = str(refused.value)
    assert "small 1.0" in said
    assert package().file in said
    assert hashlib.sha256(b"other bytes").hexdigest() in said
    assert package().sha256 in said


@pytest.mark.slow
def test_without_a_registry_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither pip without its index nor a machine without npm leaves a file or a traceback."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(Unavailable, match=r"small 1\.0: the python registry does not give it: \w+"):
        fetched(package(), tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"small 1\.0: npm is not installed"):
        fetched(package("small-1.0.tgz"), tmp_path)
    assert [] == list(tmp_path.iterdir())


def test_members_are_read_by_name(tmp_path: Path) -> None:
    """Only wanted members are read, of wheels and of tarballs, in the order of the archive."""
    path = wheel(tmp_path / "a.whl", "b/c.h5", "a.txt", "a.h5")
    found = read_members(path, lambda name: name.endswith(".h5"))
    assert [("b/c.h5", b"b/c.h5"), ("a.h5", b"a.h5")] == list(found.items())
    path = tarball(tmp_path / "a.tgz", tarfile.TarInfo("package/a"), tarfile.TarInfo("package/b"))
    assert {"package/b": b""} == read_members(path, lambda name: name.endswith("b"))


@pytest.mark.parametrize(
    "name", ["../a", "b/../../a", "/etc/passwd", "..\\a", "C:\\a", "C:/a", "b/.."]
)
def test_an_archive_that_climbs_out_is_refused(tmp_path: Path, name: str) -> None:
    """A member outside of the folder refuses the archive, even where no one wants it."""
    for path in (
        wheel(tmp_path / "a.whl", "good", name),
        tarball(tmp_path / "a.tgz", tarfile.TarInfo("good"), tarfile.TarInfo(name)),
    ):
        with pytest.raises(InvalidFile, match="leads out of its folder"):
            read_members(path, lambda found: found == "good")
    assert {"a.whl", "a.tgz"} == {path.name for path in tmp_path.iterdir()}


def test_links_are_refused(tmp_path: Path) -> None:
    """A link in a tarball may lead anywhere."""
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(InvalidFile, match="link is a link or a device"):
        read_members(tarball(tmp_path / "a.tgz", link), lambda name: True)


@pytest.mark.parametrize("suffix", ["whl", "tgz"])
def test_a_damaged_archive_says_so(tmp_path: Path, suffix: str) -> None:
    """Foreign and truncated archives are errors that name the file."""
    path = tmp_path / f"a.{suffix}"
    for data in (b"", b"not an archive", wheel(tmp_path / "b", "name").read_bytes()[:-9]):
        path.write_bytes(data)
        with pytest.raises(InvalidFile, match=f"a.{suffix}: a damaged archive"):
            read_members(path, lambda name: True)
