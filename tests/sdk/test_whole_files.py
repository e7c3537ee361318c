"""Files that are written from an answer: whole or not at all, and through no link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelkin import Graph, Support
from modelkin._whole_files import WholeFile, write_whole
from modelkin.client._transport.learngene_files import PartialFile
from modelkin.core.importance import Origin
from modelkin.core.support_files import origin_path, write_origin
from modelkin.errors import InvalidParameter
from tests.support.models.learngene_files import gene, manifest_of

SUPPORT = Support.from_indices([2, 5, 7], 100)
GENE = gene()


def fetch(path: Path) -> None:
    """Write a learngene as ``client.learngenes.fetch`` does."""
    with PartialFile(path, manifest_of(GENE)["digest"], len(GENE)) as partial:
        partial.write(GENE)
        partial.finish(None)


WRITERS: dict[str, Callable[[Path], object]] = {
    "learngenes.fetch": fetch,
    "pull, matrix, graph --output; learngenes of Flower": lambda path: write_whole(path, b"answer"),
    "Support.save": lambda path: SUPPORT.save(path),
    "Graph.to_graphml": lambda path: Graph(nodes=(), edges=(), version=1).to_graphml(path),
}


def symbolic(path: Path, victim: Path) -> None:
    """Make a symbolic link."""
    path.symlink_to(victim)


PLACES: dict[str, Callable[[Path, Path], object]] = {
    "a link": symbolic,
    "a link to nothing": lambda path, victim: path.symlink_to(victim.with_name("nothing")),
    "a folder": lambda path, _: path.mkdir(),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a device": lambda path, _: path.symlink_to("/dev/null"),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that no answer may change."""
    path = tmp_path / "victim"
    path.write_bytes(b"mine")
    return path


@pytest.mark.parametrize("put", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_what_is_no_file_is_not_written_through(
    write: Callable[[Path], object], put: Callable[[Path, Path], object], victim: Path
) -> None:
    """A link, a folder, a pipe or a device in the place of the file is refused by name."""
    path = victim.with_name("answer")
    put(path, victim)
    before = sorted(each.name for each in victim.parent.iterdir())
    with pytest.raises(InvalidParameter, match=r"answer is (a link|not an ordinary file)"):
        write(path)
    assert b"mine" == victim.read_bytes()
    assert before == sorted(each.name for each in victim.parent.iterdir())


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_a_link_in_the_place_of_the_unfinished_file_is_replaced(
    write: Callable[[Path], object], victim: Path
) -> None:
    """The name of the file that is written first may be foreseen, and lead elsewhere."""
    path = victim.with_name("answer")
    for name in (".answer.part", ".answer.origin.json.part"):
        (victim.parent / name).symlink_to(victim)
    write(path)
    assert b"mine" == victim.read_bytes()
    assert stat.S_ISREG(os.lstat(path).st_mode)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_a_second_name_keeps_its_content(write: Callable[[Path], object], victim: Path) -> None:
    """A hard link is another file's name; the answer takes one name, and the other file stays."""
    path = victim.with_name("answer")
    os.link(victim, path)
    write(path)
    assert b"mine" == victim.read_bytes()
    assert path.stat().st_ino != victim.stat().st_ino


def test_an_origin_is_not_written_through_a_link(victim: Path) -> None:
    """The file beside a support is written as the support is."""
    path = victim.with_name("answer")
    origin_path(path).symlink_to(victim)
    origin: Any = Origin(None, None)
    stated = Support.from_indices([2, 5, 7], 100)
    with pytest.raises(InvalidParameter, match="is a link"):
        write_origin(path, stated.digest, origin)
    assert b"mine" == victim.read_bytes()


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    """Of two at once the first is refused at its end, and the file is the second's, whole."""
    path = tmp_path / "answer"
    with WholeFile(path) as first, WholeFile(path) as second:
        first.file.write(b"first")
        second.file.write(b"second")
        with pytest.raises(FileExistsError, match="another process"):
            first.finish()
        second.finish()
    assert (b"second", ["answer"]) == (
        path.read_bytes(),
        [each.name for each in tmp_path.iterdir()],
    )


def test_permissions_are_those_of_new_files(tmp_path: Path) -> None:
    """A file has the permissions of any new file, or fewer where that is asked."""
    usual, own = tmp_path / "usual", tmp_path / "own"
    (tmp_path / "known").touch()
    write_whole(usual, b"")
    with WholeFile(own, 0o600) as whole:
        whole.finish()
    assert ((tmp_path / "known").stat().st_mode, 0o100600) == (
        usual.stat().st_mode,
        own.stat().st_mode,
    )
