"""The journal of a bulk upload: the models that the service acknowledged, for a resumed upload.

The journal is an append-only text file. Its first line says where they went; each further line
holds a model and the fingerprint of its upload. A last line that an interruption cut off is
ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Self

from modelkin.client._transport.messages import printable
from modelkin.errors import InvalidParameter

__all__ = ["Journal"]

_FORMAT = 1


class Journal:
    """An open journal; :meth:`open` makes one.

    Args:
        path: the file's path.
        file: the file, open for reading and appending; the journal closes it.
        header: the first line that the file has, or gets if it is empty.
    """

    def __init__(self, path: Path, file: BinaryIO, header: dict[str, Any]) -> None:
        self._path = path
        self._file = file
        self._header = header
        self._acknowledged: dict[str, str] = {}

    @classmethod
    def open(cls, path: str | os.PathLike[str], url: str, into: Mapping[str, str]) -> Self:
        """Open the journal of a bulk upload, and read it.

        Args:
            path: the file's path; a missing file is created.
            url: the service's address.
            into: what tells the upload from all others of that service.

        Raises:
            InvalidParameter: the file cannot be opened, is not a journal, or is that of another
                upload.
        """
        path = Path(path)
        header = {"modelkin_journal": _FORMAT, "url": url, **into}
        try:
            file = path.open("a+b")
        except OSError as error:
            raise _unusable(path, f"cannot be opened: {error.strerror}") from error
        journal = cls(path, file, header)
        try:
            journal._load()
        except BaseException:
            journal.close()
            raise
        return journal

    def has(self, model: str, fingerprint: str) -> bool:
        """Whether this content was the last that the service acknowledged of the model.

        Another content makes the journal forget the model, because it replaces the old one.
        """
        if self._acknowledged.get(model) == fingerprint:
            return True
        self._acknowledged.pop(model, None)
        return False

    def add(self, acknowledged: Iterable[tuple[str, str]]) -> None:
        """Appends models and fingerprints; they are in the file when this returns."""
        lines = [_line({"model": model, "sent": sent}) for model, sent in acknowledged]
        self._file.write(b"".join(lines))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _load(self) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):  # the line was cut off, or the file is no journal
                if number == 1 and not _line(self._header).startswith(line):
                    raise self._not_a_journal(number)
                break
            self._read(number, line)
            whole += len(line)
        self._file.truncate(whole)
        if not whole:
            self._file.write(_line(self._header))
            self._file.flush()

    def _read(self, number: int, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise self._not_a_journal(number) from None
        wanted = ("modelkin_journal",) if number == 1 else ("model", "sent")
        if not isinstance(entry, dict) or any(name not in entry for name in wanted):
            raise self._not_a_journal(number)
        if number == 1:
            self._check(entry)
        else:
            self._acknowledged[str(entry["model"])] = str(entry["sent"])

    def _check(self, header: dict[str, Any]) -> None:
        for name, ours in self._header.items():
            if header.get(name) != ours:
                theirs = printable(str(header.get(name)))
                raise _unusable(
                    self._path,
                    f"is of another upload: its {name} is {theirs}, here it is {ours}; "
                    f"give each upload a file of its own",
                )

    def _not_a_journal(self, number: int) -> InvalidParameter:
        return _unusable(self._path, f"is not a journal of put_many: see its line {number}")


def _unusable(path: Path, why: str) -> InvalidParameter:
    return InvalidParameter(f"resume file {path} {why}", field="resume")


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
