"""A support's file, and the file beside it that says where the support comes from.

A support's bytes have neither the kind of importance nor the tensors, which are its origin. The
file beside it names the digest of the support, so that it says nothing about another support that
has taken its place.
"""

from __future__ import annotations

import json
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

from modelkin._whole_files import write_whole
from modelkin.core.importance import Origin
from modelkin.errors import SpaceMismatch

__all__ = ["AnyPath", "origin_beside", "origin_path", "save", "write_origin"]

AnyPath: TypeAlias = str | PathLike[str]


def save(path: AnyPath, data: bytes, digest: str, origin: Origin | None) -> None:
    """Write the bytes of a support, and its origin beside them.

    Without an origin no file is beside it: one of an earlier support is deleted.
    """
    write_whole(path, data)
    if origin is None:
        origin_path(path).unlink(missing_ok=True)
    else:
        write_origin(path, digest, origin)


def origin_path(path: AnyPath) -> Path:
    """The file beside that of a support."""
    return Path(f"{fspath(path)}.origin.json")


def write_origin(path: AnyPath, digest: str, origin: Origin) -> None:
    """Write the origin of the support of this digest beside its file."""
    fields = {"digest": digest, "origin": json.loads(origin.to_text())}
    write_whole(origin_path(path), json.dumps(fields).encode())


def origin_beside(path: AnyPath, digest: str, num_parameters: int) -> Origin | None:
    """The origin beside a support's file; None without one, or with that of another support.

    Args:
        path: where the support was written; the origin lies beside it.
        digest: ``sha256:`` and hex, of the support that was read.
        num_parameters: M of the support.
    """
    try:
        fields = json.loads(origin_path(path).read_text(encoding="utf-8"))
        origin = Origin.from_text(json.dumps(fields["origin"]))
    except (OSError, KeyError, TypeError, ValueError, RecursionError, SpaceMismatch):
        return None
    layout = origin.layout
    is_its_own = layout is None or layout.num_parameters == num_parameters
    return origin if is_its_own and fields["digest"] == digest else None
