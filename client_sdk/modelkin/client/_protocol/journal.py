"""The journal of a bulk upload: which models the service has acknowledged, so that none goes twice.

A text file that only grows: a first line that says of which space it is, then one line a model with
the fingerprint of what was sent. A line that an interruption cut off counts for nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from modelkin.client._transport.messages import printable
from modelkin.errors import InvalidParameter
from modelkin.types.spaces import SpaceInfo

__all__ = ["Journal"]

_FORMAT = 1


class Journal:
    """An open journal.

    Args:
        path: the file; it is made where there is none.
        url: of the service.
        space: what the models are put into. One that was deleted and made again is another space.

    Raises:
        InvalidParameter: the file cannot be opened, is no journal, or is that of another space.
    """

    def __init__(self, path: str | os.PathLike[str], url: str, space: SpaceInfo) -> None:
        self._path = Path(path)
        self._acknowledged: dict[str, str] = {}
        self._header = {
            "modelkin_journal": _FORMAT,
            "url": url,
            "space": space.name,
            "created_at": space.created_at.isoformat(),
        }
        try:
            self._file: BinaryIO = self._path.open("a+b")
        except OSError as error:
            raise self._unusable(f"cannot be opened: {error.strerror}") from error
        try:
            self._load()
        except BaseException:
            self._file.close()
            raise

    def has(self, model: str, fingerprint: str) -> bool:
        """Whether this very content was the last that was acknowledged of the model.

        From the first content that was not on, nothing is said of the model: another is on its way.
        """
        if self._acknowledged.get(model) == fingerprint:
            return True
        self._acknowledged.pop(model, None)
        return False

    def add(self, acknowledged: Iterable[tuple[str, str]]) -> None:
        """Note models and fingerprints; they are in the file when this returns."""
        lines = [_line({"model": model, "sent": sent}) for model, sent in acknowledged]
        self._file.write(b"".join(lines))
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _load(self) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):  # cut off, or never ours
                if number == 1 and not _line(self._header).startswith(line):
                    raise self._no_journal(number)
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
            raise self._no_journal(number) from None
        wanted = ("modelkin_journal",) if number == 1 else ("model", "sent")
        if not isinstance(entry, dict) or any(name not in entry for name in wanted):
            raise self._no_journal(number)
        if number == 1:
            self._check(entry)
        else:
            self._acknowledged[str(entry["model"])] = str(entry["sent"])

    def _check(self, header: dict[str, Any]) -> None:
        for name, ours in self._header.items():
            if header.get(name) != ours:
                theirs = printable(str(header.get(name)))
                raise self._unusable(
                    f"is of another upload: its {name} is {theirs}, here it is {ours}; "
                    f"give each space a file of its own"
                )

    def _no_journal(self, number: int) -> InvalidParameter:
        return self._unusable(f"is no journal of put_many: see its line {number}")

    def _unusable(self, why: str) -> InvalidParameter:
        return InvalidParameter(f"resume file {self._path} {why}", field="resume")


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"
