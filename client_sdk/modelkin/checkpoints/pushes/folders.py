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

from modelkin.checkpoints.candidates import MACOS, SUFFIX, Candidate, candidates, is_weights
from modelkin.checkpoints.gguf.choosing import GGUF_SUFFIX, parts_of
from modelkin.checkpoints.indexes import read_pipeline
from modelkin.checkpoints.repository import DEFAULTS, PIPELINE, choose, components
from modelkin.core.adapters import CONFIG_NAME
from modelkin.core.file_formats import unread_format
from modelkin.errors import InvalidCheckpoint, InvalidParameter

__all__ = ["Below", "FolderContent", "LeftOut", "checkpoints_below", "is_inside"]

_CONFIGS: Final = ("config.json", CONFIG_NAME)
_CARD: Final = "README.md"
_PARTIAL: Final = re.compile(r"\.(?:incomplete|part|partial|crdownload|download|tmp|aria2)$", re.I)
_GGUF_PART: Final = re.compile(r"-[0-9]{5}-of-[0-9]{5}$")
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
        if PIPELINE in names and self._took_pipeline(folder, names):
            return
        is_model = self._took_model(folder, names)
        if not is_model:
            self._take_files(folder, names)
            self._say_unread(folder, names)
        if is_model and folder != self._root:
            for each in folders:
                if _holds_weights(each):
                    self._leave(each, f"it is a part of the model in {self._name(folder)!r}")
            return
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
            if entry.name.startswith((".", MACOS)):
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
        matters = _is_checkpoint(entry.name) or entry.name in (PIPELINE, *_CONFIGS)
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

    def _took_pipeline(self, folder: Path, names: list[str]) -> bool:
        """Whether a folder is a pipeline, each of whose components is a model."""
        files = [*names, *_paths_below(folder)]
        try:
            choice = choose(files, str(folder))
            if choice.kind != "pipeline":
                return False
            listed = read_pipeline(folder / choice.first)
            parts = components(choice, listed, files, str(folder))
        except (InvalidCheckpoint, OSError):
            return False
        for part in parts:
            found = Below(folder / part, self._name(folder / part), has_card=False)
            self._content.found.append(found)
        return True

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
            if _is_gguf(name):
                self._take_gguf(folder, name, names)

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
        stem = name.removesuffix(GGUF_SUFFIX)
        try:
            parts = parts_of(name, names)
        except InvalidCheckpoint as error:
            if not _is_later_part(name, names):
                self._leave(folder / name, str(error), is_error=True)
            return
        self._take(folder / name, folder / (_GGUF_PART.sub("", stem) if parts else stem))

    def _take(self, path: Path, named: Path) -> None:
        self._content.found.append(Below(path, self._name(named), has_card=False))

    def _name(self, path: Path) -> str:
        """A path from the pushed folder, whose own name stands for itself."""
        if path == self._root:
            return Path(os.path.abspath(path)).name
        return path.relative_to(self._root).as_posix()

    def _leave(self, path: Path, reason: str, *, is_error: bool = False) -> None:
        self._content.left_out.append(LeftOut(path, reason, is_error))


def _is_gguf(name: str) -> bool:
    return name.endswith(GGUF_SUFFIX) and name != GGUF_SUFFIX


def _is_checkpoint(name: str) -> bool:
    return is_weights(name) or _is_gguf(name) or name == SUFFIX


def _is_later_part(name: str, names: Iterable[str]) -> bool:
    """Whether the first part of a split file is there, which stands for all of them."""
    stem = _GGUF_PART.sub("", name.removesuffix(GGUF_SUFFIX))
    first = re.compile(re.escape(stem) + r"-00001-of-[0-9]{5}\.gguf")
    return not first.fullmatch(name) and any(map(first.fullmatch, names))


def _holds_weights(folder: Path) -> bool:
    """Whether weights lie in a folder itself."""
    with suppress(OSError):
        return any(_is_checkpoint(each.name) for each in folder.iterdir())
    return False


def _paths_below(folder: Path) -> Iterator[str]:
    """The paths of the files in a folder's own folders, one level down."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            with suppress(OSError):
                yield from (f"{path.name}/{each.name}" for each in sorted(path.iterdir()))
