"""20 Newsgroups: a folder for each group, a file for each message.

The tokeniser: a message is what follows its first empty line, because headers name the group. Its
words are runs of two or more of the letters a to z, after ASCII capitals became small. A word's
number is its CRC-32, so there is no vocabulary to learn or to agree on; few words share a number.

Source: K. Lang, NewsWeeder (1995); the folders are those of the archive ``20news-bydate``.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from studies.loaders.folder import DataError

__all__ = ["MAX_FILES", "WIDTH", "newsgroups", "read_words", "token_ids", "word_vector"]

Words = list[bytes]
Row = npt.NDArray[Any]

WIDTH: Final = 2_048
"""Entries of a vector of words."""
MAX_FILES: Final = 50_000
"""The largest version has 19,997 messages."""

_MAX_BYTES: Final = 2**16
"""The bytes of a message that are read."""
_PLACES: Final = (
    ("20news-bydate-train", "20news-bydate-test"),
    ("20news-18828",),
    ("20_newsgroups",),
)
_WORD: Final = re.compile(rb"[a-z]{2,}")
_HEADERS_END: Final = re.compile(rb"\r?\n\r?\n")
_PADDING, _START, _FIRST = 0, 1, 2


def newsgroups(
    folder: Path, row_of: Callable[[Words], Row]
) -> tuple[Row, npt.NDArray[np.int64], list[str]]:
    """A row of each message, its group's number, and the groups by name.

    Args:
        folder: that has ``20news-bydate-train`` and ``-test``, or ``20news-18828``, or
            ``20_newsgroups``, or is one of the last two itself.
        row_of: the row of a message's words, such as :func:`word_vector`.

    Raises:
        DataError: there is no such folder, it has fewer than two groups or too many files, or a
            file is not text.
    """
    roots = _roots(folder)
    paths = [path for root in roots for path in _messages(root)]
    groups = sorted({path.parent.name for path in paths})
    if len(groups) < 2:
        raise DataError(
            f"{folder} has no folders of messages, one for each newsgroup: unpack 20news-bydate "
            "there, or name its folder with --data-dir"
        )
    number = {group: at for at, group in enumerate(groups)}
    rows = []
    for path in paths:
        with path.open("rb") as file:
            rows.append(row_of(read_words(file, str(path))))
    return np.stack(rows), np.array([number[path.parent.name] for path in paths], np.int64), groups


def _roots(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: give the one that has 20news-bydate-train")
    for names in _PLACES:
        roots = [folder / name for name in names]
        if all(root.is_dir() for root in roots):
            return roots
    return [folder]


def _messages(root: Path) -> list[Path]:
    """The files of all groups in their order, which does not depend on the file system."""
    found: list[Path] = []
    for group in sorted(each for each in root.iterdir() if each.is_dir()):
        for path in group.iterdir():
            if path.is_file():
                found.append(path)
            if len(found) > MAX_FILES:
                raise DataError(f"{root} has more than {MAX_FILES:,} files: it is another folder")
    return sorted(found)


def read_words(file: BinaryIO, name: str) -> Words:
    """The words of one message, of its first 64 KiB.

    Raises:
        DataError: it has a zero byte, as no text has.
    """
    data = file.read(_MAX_BYTES)
    if b"\0" in data:
        raise DataError(f"{name} is not a text: it has a zero byte; remove it from the folder")
    headers = _HEADERS_END.search(data)
    return _WORD.findall(data[headers.end() if headers else 0 :].lower())


def word_vector(words: Words, width: int = WIDTH) -> npt.NDArray[np.float32]:
    """Logarithms of 1 + the count of each word number modulo ``width``, of length 1 (or all 0)."""
    numbers = np.fromiter(map(zlib.crc32, words), np.int64, len(words))
    counts = np.log1p(np.bincount(numbers % width, minlength=width))
    return (counts / max(float(np.linalg.norm(counts)), 1e-12)).astype(np.float32)


def token_ids(words: Words, length: int, vocabulary: int) -> npt.NDArray[np.int64]:
    """A start token, then the first words; filled with padding (0) to ``length``."""
    found = np.full(length, _PADDING, np.int64)
    found[0] = _START
    numbers = [_FIRST + zlib.crc32(word) % (vocabulary - _FIRST) for word in words[: length - 1]]
    found[1 : 1 + len(numbers)] = numbers
    return found
