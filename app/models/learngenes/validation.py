"""The checks of a published learngene: of a file by its bytes, of a manifest by its fields.

A file is a safetensors file of finite floating-point numbers. Where only a manifest comes, the
digest binds it to a file that the service never sees, and never fetches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.models.learngenes.records import Content
from modelkin.core.learngenes.manifest import (
    LearngeneTensor,
    check_digest,
    check_finite,
    check_size,
    check_tensors,
    digest_of,
    header_bytes,
    tensors_of,
)
from modelkin.core.learngenes.references import reference_from_json, reference_to_json
from modelkin.core.safetensors_header import LENGTH_BYTES, TensorEntry

__all__ = ["content_of_file", "file_header", "stated_content"]


def file_header(data: bytearray) -> bytes:
    """Return the header of a learngene's file, which is not parsed.

    Raises:
        InvalidLearngene: the file is no safetensors file, or the header is too long.
    """
    length = header_bytes(bytes(data[:LENGTH_BYTES]), len(data))
    return bytes(data[LENGTH_BYTES : LENGTH_BYTES + length])


def content_of_file(data: bytearray, entries: tuple[TensorEntry, ...] | None = None) -> Content:
    """Return the content of a learngene's file.

    Args:
        entries: the entries of its header, if another process has parsed it.

    Raises:
        InvalidLearngene: the file is not that of a learngene; the error says why.
    """
    if entries is None:
        entries = tensors_of(file_header(data), len(data))
    check_finite(data, entries)
    tensors = tuple(LearngeneTensor(entry.name, entry.dtype, entry.shape) for entry in entries)
    return Content(digest_of(data), len(data), tensors, data=data)


def stated_content(
    digest: str, size: int, tensors: Iterable[LearngeneTensor], reference: Mapping[str, Any]
) -> Content:
    """The content that a manifest states.

    Raises:
        InvalidLearngene: the digest, the tensors or the size cannot be.
        InvalidParameter: the reference is not to a commit or a version, or of another kind.
    """
    listed = tuple(tensors)
    check_digest(digest)
    check_tensors(listed)
    check_size(listed, size)
    checked = reference_to_json(reference_from_json(reference))
    return Content(digest, size, listed, reference=checked)
