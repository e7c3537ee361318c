"""``checkpoints_below``: the checkpoints of a folder, with the names that models get from paths.

A folder that holds one model, as a repository of a hub does, is a model of the folder's name, and
is chosen from by the same rule. Other files of weights are a model each, by their own name. Nothing
is opened here. Links are not followed out of the folder, and no folder is entered by a link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from modelkin.checkpoints.candidates import Candidate, candidates, is_index, is_weights, shard_of
from modelkin.checkpoints.gguf.choosing import GGUF_SUFFIX, gguf_part_of, parts_of
from modelkin.checkpoints.indexes import read_pipeline
from modelkin.checkpoints.repository import DEFAULTS, PIPELINE, choose, components
from modelkin.core.adapters import CONFIG_NAME
from modelkin.core.file_formats import unread_format
from modelkin.errors import InvalidCheckpoint, InvalidParameter

__all__ = ["Below", "FolderContent", "LeftOut", "checkpoints_below", "is_inside"]

_CONFIGS: Final = ("config.json", CONFIG_NAME)
_CARD: Final = "README.md"
_PARTIAL: Final = re.compile(r"\.(?:incomplete|part|partial|crdownload|download|tmp|aria2)$", re.I)
_ENDING: Final = re.compile(r"(?:\.safetensors(?:\.index(?:\.[\w-]+)?\.json)?|\.gguf)$", re.I)
_MAX_DEPTH: Final = 64
_MAX_FILES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Below:
    """A checkpoint of a folder.

    Attributes:
        path: the path to open it by: a file, an index or a folder.
        name: its path from the pushed folder, without the ending of a file.
        has_card: whether the card of its folder is about it alone.
    """

    path: Path
    name: str
    has_card: bool


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is left out of a folder, and why.

    Attributes:
        is_error: whether it could be a checkpoint that should have been read.
    """

    path: Path
    reason: str
    is_error: bool = False


@dataclass(slots=True)
class FolderContent:
    """The checkpoints of a folder by their paths, and what is left out."""

    found: list[Below] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def checkpoints_below(root: Path) -> FolderContent:
    """Find the checkpoints of a folder.

    Raises:
        InvalidParameter: it holds more than a million files.
        OSError: the folder itself cannot be read.
    """
    content = FolderContent()
    _Walk(root, content).visit(root, 0)
    content.found.sort(key=lambda each: each.name)
    content.left_out.sort(key=lambda each: str(each.path))
    return content


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path leads into a folder, links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


class _Walk:
    """One search of a folder, level by level."""

    def __init__(self, root: Path, content: FolderContent) -> None:
        self._root, self._content = root, content
        self._files = 0

    def visit(self, folder: Path, depth: int) -> None:
        """Take what a folder holds, and what its folders hold."""
        try:
            names, folders = self._entries(folder)
        except OSError as error:
            if folder == self._root:
                raise
            self._leave(folder, f"it cannot be read: {error.strerror}", is_error=True)
            return
        parts = self._pipeline_parts(folder, names) if PIPELINE in names else None
        if parts is not None:
            self._take_pipeline(folder, names, parts)
            self._visit_each([each for each in folders if each not in parts], depth)
            return
        is_model = self._took_model(folder, names)
        if not is_model:
            self._take_files(folder, names)
            self._say_unread(folder, names)
        if is_model and folder != self._root:
            self._leave_parts(folder, folders)
            return
        self._visit_each(folders, depth)

    def _visit_each(self, folders: Iterable[Path], depth: int) -> None:
        for each in folders:
            if depth >= _MAX_DEPTH:
                self._leave(each, f"it is {_MAX_DEPTH} folders deep", is_error=True)
                continue
            self.visit(each, depth + 1)

    def _entries(self, folder: Path) -> tuple[list[str], list[Path]]:
        """The names of files that may be read, and the folders; says what is left out."""
        names, folders = list[str](), list[Path]()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda each: each.name)
        for entry in entries:
            path = Path(entry.path)
            if _is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif self._may_read(entry, path):
                names.append(entry.name)
        self._files += len(names)
        if self._files > _MAX_FILES:
            raise InvalidParameter(f"{self._root} holds more than {_MAX_FILES:,} files")
        return names, folders

    def _may_read(self, entry: os.DirEntry[str], path: Path) -> bool:
        small = _in_small_letters(entry.name)
        matters = _is_checkpoint(small) or entry.name in (PIPELINE, *_CONFIGS)
        if entry.is_symlink():
            if not path.exists():
                return self._refuse(path, matters, "it is a link to nothing")
            if not is_inside(path, self._root):
                return self._refuse(path, True, "it is a link that leads out of the folder")
            if path.is_dir():
                return self._refuse(path, True, "it is a link to a folder, which is read itself")
        if matters and not entry.is_file():
            return self._refuse(path, True, "it is no file")
        if _PARTIAL.search(entry.name):
            shown = _is_checkpoint(_PARTIAL.sub("", entry.name)) or entry.name.endswith("complete")
            return self._refuse(path, shown, "it is a download that has not ended")
        return True

    def _refuse(self, path: Path, said: bool, reason: str) -> bool:
        if said:
            self._leave(path, reason)
        return False

    def _say_unread(self, folder: Path, names: list[str]) -> None:
        """Say which files are of formats that are not read."""
        for name in names:
            told = None if _is_checkpoint(name) else unread_format(name)
            if told is not None:
                self._leave(folder / name, f"it is {told}")

    def _pipeline_parts(self, folder: Path, names: list[str]) -> list[Path] | None:
        """The components that have weights, of a folder that is a pipeline; else None."""
        files = [*names, *_paths_below(folder)]
        try:
            choice = choose(files, str(folder))
            if choice.kind != "pipeline":
                return None
            listed = read_pipeline(folder / choice.first)
            return [folder / part for part in components(choice, listed, files, str(folder))]
        except (InvalidCheckpoint, OSError):
            return None

    def _take_pipeline(self, folder: Path, names: list[str], parts: list[Path]) -> None:
        """Take each component as a model, and say what lies beside them."""
        for part in parts:
            self._content.found.append(Below(part, self._name(part), has_card=False))
            with suppress(OSError):
                self._leave_parts(part, sorted(filter(_is_folder, part.iterdir())))
        for name in filter(_is_checkpoint, names):
            self._leave(folder / name, "it lies beside the components of a pipeline")
        self._say_unread(folder, names)

    def _leave_parts(self, model: Path, folders: Iterable[Path]) -> None:
        """Say which folders within a model hold weights, too."""
        for each in folders:
            if _holds_weights(each):
                self._leave(each, f"it is a part of the model in {self._name(model)!r}")

    def _took_model(self, folder: Path, names: list[str]) -> bool:
        """Whether a folder holds one model, as a repository of a hub does."""
        if not any(map(_is_checkpoint, names)) or not self._is_marked(folder, names):
            return False
        try:
            choose(names, str(folder))
        except InvalidCheckpoint:
            return False
        found = Below(folder, self._name(folder), has_card=self._has_card(folder))
        self._content.found.append(found)
        return True

    def _is_marked(self, folder: Path, names: list[str]) -> bool:
        """Whether something beside the weights says that they are one model's."""
        held = candidates(names)
        if any(name in names for name in _CONFIGS) or any(name in held for name in DEFAULTS):
            return True
        if len(held) == 1 and next(iter(held.values())).file is None:
            return True  # shards alone
        return folder != self._root and self._has_card(folder)

    def _has_card(self, folder: Path) -> bool:
        path = folder / _CARD
        if path.is_file() and is_inside(path, self._root):
            with suppress(OSError), open(path, "rb") as card:
                return card.read(3) == b"---"
        return False

    def _take_files(self, folder: Path, names: list[str]) -> None:
        """Take each file of weights, or index, as a model of its own."""
        for stem, candidate in candidates(names).items():
            path = self._path_of(folder, candidate)
            if path is not None:
                self._take(path, folder / stem)
        for name in names:
            if name.endswith(GGUF_SUFFIX):
                self._take_gguf(folder, name, names)
            elif not _is_checkpoint(name) and _is_checkpoint(small := _in_small_letters(name)):
                self._take_capitals(folder, name, small)

    def _path_of(self, folder: Path, candidate: Candidate) -> Path | None:
        first = candidate.file or candidate.index
        if first is None:
            [*shards] = candidate.names
            reason = "it is one of several shards without an index: give them a folder of their own"
            try:
                if choose(shards, str(folder)).kind == "file":
                    return folder / shards[0]
            except InvalidCheckpoint as error:
                reason = str(error)
            self._leave(folder / shards[0], reason, is_error=True)
            return None
        return folder / first

    def _take_gguf(self, folder: Path, name: str, names: list[str]) -> None:
        part = gguf_part_of(name)
        if part is not None and 1 < part.number <= part.total and part.first in names:
            return  # it stands for all
        try:
            parts = parts_of(name, names)
        except InvalidCheckpoint as error:
            self._leave(folder / name, str(error), is_error=True)
            return
        stem = part.stem if part and parts else name.removesuffix(GGUF_SUFFIX)
        self._take(folder / name, folder / stem)

    def _take_capitals(self, folder: Path, name: str, small: str) -> None:
        """Take a file whose ending has capitals; parts of one model find each other by names."""
        if is_index(small) or shard_of(small) or gguf_part_of(small):
            reason = f"indexes and shards are read by endings in small letters: name it {small}"
            self._leave(folder / name, reason, is_error=True)
        else:
            self._take(folder / name, (folder / name).with_suffix(""))

    def _take(self, path: Path, named: Path) -> None:
        self._content.found.append(Below(path, self._name(named), has_card=False))

    def _name(self, path: Path) -> str:
        """A path from the pushed folder, whose own name stands for itself."""
        if path == self._root:
            return Path(os.path.abspath(path)).name
        return path.relative_to(self._root).as_posix()

    def _leave(self, path: Path, reason: str, *, is_error: bool = False) -> None:
        self._content.left_out.append(LeftOut(path, reason, is_error))


def _is_checkpoint(name: str) -> bool:
    return is_weights(name) or name.endswith(GGUF_SUFFIX)


def _in_small_letters(name: str) -> str:
    """A name with its ending, and the stem as it is."""
    return _ENDING.sub(lambda found: found[0].lower(), name)


def _is_hidden(name: str) -> bool:
    """Whether a file or folder is passed over without a word."""
    return name.startswith(".")


def _is_folder(path: Path) -> bool:
    """Whether a folder is entered: no link is."""
    return path.is_dir() and not path.is_symlink() and not _is_hidden(path.name)


def _holds_weights(folder: Path) -> bool:
    """Whether weights lie in a folder, or in those within it."""
    for _, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _is_hidden(each)]
        if any(_is_checkpoint(each) and not _is_hidden(each) for each in files):
            return True
    return False


def _paths_below(folder: Path) -> Iterator[str]:
    """The paths of the files in a folder's own folders, one level down."""
    for path in filter(_is_folder, sorted(folder.iterdir())):
        with suppress(OSError):
            names = sorted(each.name for each in path.iterdir())
            yield from (f"{path.name}/{name}" for name in names if not _is_hidden(name))
