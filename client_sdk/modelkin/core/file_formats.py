"""Formats of files that are not read as weights, by their names and by what they begin with.

A refusal that names the format says what would do, where "not a safetensors file" does not.
"""

from __future__ import annotations

import re
from typing import Final

from modelkin.core.quoting import quote

__all__ = ["BEGINNING_BYTES", "describe_beginning", "describe_unread", "unread_rank"]

BEGINNING_BYTES: Final = 512
"""The bytes of a file that tell its format; those of a tar archive come latest."""

_SAVE: Final = "save the model by safetensors.torch.save_file"
_PUBLISH: Final = "publish the weights as model.safetensors"
_PICKLE: Final = f"a pickle may run whatever its maker wants: {_SAVE}"

_UNREAD: Final = (
    ((".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".pdparams"), "a pickle, which is never"),
    ((".h5", ".hdf5", ".keras"), "of Keras, which is not"),
    ((".msgpack",), "of Flax, which is not"),
    ((".npz", ".npy"), "of NumPy, which is not"),
    ((".onnx",), "ONNX, whose names of tensors are not those of the model, and so is not"),
    ((".tflite", ".mlmodel", ".mlpackage", ".pte", ".engine", ".plan"), "compiled, and is not"),
    ((".nemo", ".zip", ".tar", ".gz", ".tgz", ".7z", ".zst", ".xz", ".rar"), "an archive, and not"),
    ((".dvc",), "a pointer of DVC, and no weights that can be"),
)
"""The suffixes of formats of weights, the most frequent first, and what they are."""

_BEGINNINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (
        b"version https://git-lfs",
        "it is a pointer of Git LFS in place of the file: `git lfs pull` gets the file itself",
    ),
    (
        b"# xet version",
        "it is a pointer of Git Xet in place of the file: `git xet checkout` gets the file itself",
    ),
    (
        b"/annex/objects/",
        "it is a pointer of git-annex in place of the file: `git annex get` gets the file itself",
    ),
    (b"GGUF", "it is a GGUF file: its name has to end in .gguf"),
    (b"lmgg", "it is a GGML file, which GGUF has replaced: convert it to GGUF"),
    (b"tjgg", "it is a GGML file, which GGUF has replaced: convert it to GGUF"),
    (b"PK\x03\x04", f"it is a zip archive, as torch.save writes it around a pickle, and {_PICKLE}"),
    (b"PK\x05\x06", "it is an empty zip archive"),
    (b"\x1f\x8b", "it is a gzip archive: unpack it"),
    (b"BZh", "it is a bzip2 archive: unpack it"),
    (b"\xfd7zXZ\0", "it is an xz archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "it is a zstd archive: unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it"),
    (b"Rar!", "it is a rar archive: unpack it"),
    (b"\x89HDF\r\n\x1a\n", f"it is an HDF5 file, as Keras writes it: {_PUBLISH}"),
    (b"\x93NUMPY", "it is an array of NumPy: save named arrays by safetensors.numpy.save_file"),
    (
        bytes(8),
        "it begins with zeros, as unfinished downloads do: get it again",
    ),
)
_TAR: Final = (257, b"ustar", "it is a tar archive: unpack it")
_PAGE: Final = re.compile(
    rb"\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html|head|body)", re.I | re.S
)
_MARKUP: Final = re.compile(rb"\s*<(?:\?xml|[a-z]+[ >])", re.I)
_ONNX: Final = re.compile(rb"\x08[\x01-\x20]\x12[\x00-\x40][\x20-\x7e]")
_TEXT: Final = re.compile(rb"[\x09\x0a\x0d\x20-\x7e]{8,}")


def describe_unread(path: str) -> str | None:
    """What a file of weights is that is not read, and what would do; None for other names."""
    rank = unread_rank(path)
    if rank == len(_UNREAD):
        return None
    return f"{quote(path)} is {_UNREAD[rank][1]} read: {_PUBLISH}"


def unread_rank(path: str) -> int:
    """The place of a file's format in the order in which formats are named; the last for others."""
    lower = path.lower()
    return next((i for i, (ends, _) in enumerate(_UNREAD) if lower.endswith(ends)), len(_UNREAD))


def describe_beginning(beginning: bytes) -> str | None:
    """What a file is instead of safetensors, and what to do; None if that is not clear.

    Args:
        beginning: the first bytes of the file, :data:`BEGINNING_BYTES` where there are as many.
    """
    beginning = beginning.removeprefix(b"\xef\xbb\xbf")
    for magic, words in _BEGINNINGS:
        if beginning.startswith(magic):
            return words
    at, magic, words = _TAR
    if beginning[at : at + len(magic)] == magic:
        return words
    if beginning[:1] == b"\x80" and beginning[1:2] <= b"\x05":
        return f"it is a pickle, as torch.save writes it, and {_PICKLE}"
    if _PAGE.match(beginning):
        return "it is a web page (HTML) in place of the file, of a login or an error: get it again"
    if _MARKUP.match(beginning):
        return "it is XML in place of the file, such as the error of a store: get it again"
    if _ONNX.match(beginning):
        return f"it looks like ONNX: {_PUBLISH}"
    if text := _TEXT.match(beginning):
        words = quote(text[0][:60].decode("ascii").strip())
        return f"it is text that begins with {words}, and not a safetensors file"
    return None
