"""Files of learngenes: examined before sending, and whole before they get their name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from modelkin._whole_files import WholeFile
from modelkin.core.learngenes.manifest import (
    LearngeneTensor,
    check_finite_parts,
    digest_of,
    header_bytes,
    same_tensors,
    tensors_of,
)
from modelkin.core.safetensors_header import LENGTH_BYTES
from modelkin.errors import InvalidLearngene, LearngeneMismatch

__all__ = ["GeneFile", "PartialFile", "examine", "whole"]


@dataclass(frozen=True, slots=True)
class GeneFile:
    """The description of a learngene's file.

    Attributes:
        digest: ``sha256:`` and the digest of the bytes.
        size: the file's size in bytes.
        tensors: the tensors, in the order of their bytes.
    """

    digest: str
    size: int
    tensors: tuple[LearngeneTensor, ...]


def examine(path: str | os.PathLike[str]) -> GeneFile:
    """Describe a file, which is read in parts and never whole in memory.

    Raises:
        InvalidLearngene: the file is not a learngene, or is cut meanwhile; says why.
        OSError: the file cannot be read.
    """
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        length = header_bytes(file.read(LENGTH_BYTES), size)
        entries = tensors_of(file.read(length), size)

        def read(begin: int, end: int) -> bytes:
            file.seek(begin)
            part = file.read(end - begin)
            if len(part) != end - begin:
                raise InvalidLearngene(f"{os.fspath(path)} was cut while it was read")
            return part

        check_finite_parts(read, entries)
        file.seek(0)
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    tensors = tuple(LearngeneTensor(entry.name, entry.dtype, entry.shape) for entry in entries)
    return GeneFile(digest, size, tensors)


def whole(path: str | os.PathLike[str], file: GeneFile) -> bytes:
    """The bytes of a file that was examined.

    Raises:
        InvalidLearngene: the file has changed since.
    """
    data = Path(path).read_bytes()
    if digest_of(data) != file.digest:
        raise InvalidLearngene(f"{os.fspath(path)} has changed while it was published")
    return data


class PartialFile:
    """A file that is written under another name, and gets its own name once it is complete.

    Args:
        path: the file's path; an old file stays until then.
        digest: ``sha256:`` and the digest of the complete file.
        size: the bytes of the complete file.

    Raises:
        InvalidParameter: ``path`` is a link, or no ordinary file.
        OSError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], digest: str, size: int) -> None:
        self.path = Path(path)
        self._digest = digest
        self._size = size
        self._whole = WholeFile(self.path)
        self._file = self._whole.file
        self._restart()

    def _restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._sum = hashlib.sha256()
        self.written = 0

    def restart(self) -> None:
        """Write from the beginning again, for a download from another place."""
        self._restart()

    def write(self, data: bytes) -> None:
        """Write the next bytes.

        Raises:
            LearngeneMismatch: the file gets longer than its manifest says.
        """
        self.written += len(data)
        if self.written > self._size:
            raise LearngeneMismatch(
                f"the file has more than the {self._size} bytes that its manifest says: nothing "
                f"was written"
            )
        self._sum.update(data)
        self._file.write(data)

    def finish(self, tensors: Sequence[LearngeneTensor] | None) -> Path:
        """Check the file, and give it its name.

        Args:
            tensors: the manifest's tensors; None if they are not known.

        Raises:
            LearngeneMismatch: the size, the digest or the content differs.
        """
        found = f"sha256:{self._sum.hexdigest()}"
        if self.written != self._size or found != self._digest:
            raise LearngeneMismatch(
                f"the file has {self.written} bytes of {found}, its manifest says {self._size} of "
                f"{self._digest}: nothing was written"
            )
        self._file.flush()
        try:
            file = examine(self._whole.path)
        except InvalidLearngene as error:
            raise LearngeneMismatch(f"{error}: nothing was written") from None
        if tensors is not None and not same_tensors(file.tensors, tensors):
            raise LearngeneMismatch(
                "the file has other tensors than its manifest says: nothing was written"
            )
        self._whole.finish()
        return self.path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Delete an unfinished file."""
        self._whole.discard()
