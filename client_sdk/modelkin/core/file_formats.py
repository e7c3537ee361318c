"""Formats of files that are not read as weights, by their names and by what they begin with.

A refusal that names the format says what would do, where "not a safetensors file" does not.
"""

from __future__ import annotations

import re
from typing import Final

from modelkin.core.quoting import quote
from modelkin.errors import InvalidCheckpoint

__all__ = [
    "BEGINNING_BYTES",
    "UnreadFormat",
    "describe_beginning",
    "describe_unread",
    "is_piece",
    "unread_format",
    "unread_rank",
]

BEGINNING_BYTES: Final = 512
"""The bytes of a file that tell its format; those of a tar archive come latest."""

_SAVE: Final = "save the model by safetensors.torch.save_file"
_PUBLISH: Final = "publish the weights as model.safetensors"
_ARRAYS: Final = "save named arrays by safetensors.numpy.save_file"
_CHECKPOINT: Final = "give the checkpoint that it was made of"
_PICKLE: Final = f"a pickle may run whatever its maker wants: {_SAVE}"

_UNREAD: Final = (
    (
        ("pt", "pth", "ptl", "ckpt", "pkl", "pickle", "joblib", "pdparams"),
        "a pickle, which is never read",
    ),
    (("h5", "hdf5", "keras"), "of Keras, which is not read"),
    (("msgpack",), "of Flax, which is not read"),
    (("npz", "npy"), "of NumPy, which is not read"),
    (
        ("onnx", "onnx_data", "ort"),
        "ONNX, whose names of tensors are not those of the model, and so is not read",
    ),
    (("pb",), "of TensorFlow, which is not read"),
    (("tflite", "lite", "litertlm", "task"), "of TensorFlow Lite, compiled, and is not read"),
    (("mlmodel", "mlpackage", "mlmodelc"), "of Core ML, compiled, and is not read"),
    (("pte", "engine", "plan", "trt", "rknn", "hef", "dlc"), "compiled, and is not read"),
    (("ggml",), "GGML, which GGUF has replaced, and is not read"),
    (
        ("param", "pdiparams", "caffemodel", "weights", "mnn", "t7", "ftz"),
        "of a program of its own, and is not read",
    ),
    (("traineddata",), "of Tesseract, which is not read"),
    (
        ("nemo", "zip", "tar", "gz", "tgz", "7z", "zst", "xz", "bz2", "rar", "mar", "llamafile"),
        "an archive, and not read",
    ),
    (("dvc",), "a pointer of DVC, and no weights that can be read"),
    (("bin",), "either a pickle or of a program of its own, and is not read"),
)
"""The endings of names of weights, the likeliest first, and what these files are."""

_RANKS: Final = {ending: rank for rank, (ends, _) in enumerate(_UNREAD) for ending in ends}
_LONGEST: Final = 255
"""The characters of a path that count, its last ones: no file system takes longer names."""
_ENDING_BY_NAME: Final = (
    (re.compile(r"(?:pytorch|adapter|learned_embeds)[^/]*\.bin$"), "pt"),
    (re.compile(r"\.(?:pt|pth|ckpt)\.tar$"), "pt"),
    (re.compile(r"ggml[^/]*\.bin$"), "ggml"),
    (re.compile(r"openvino[^/]*\.(?:bin|xml)$"), "engine"),
    (re.compile(r"(?:weights_manifest\.json|group[0-9]+-shard[0-9]+of[0-9]+\.bin)$"), "pb"),
    (re.compile(r"\.(mlpackage|mlmodelc)/.+", re.S), "mlmodel"),
    (re.compile(r"\.data-[0-9]+-of-[0-9]+$"), "pb"),
    (re.compile(r"\.onnx[._]data$"), "onnx"),
)
"""Ends of paths that say more than the ending does, and the ending whose files they are like."""
_PIECE: Final = re.compile(
    r"\.(?:safetensors|gguf|bin|zip|7z|tar)[._-](?:part|split)?[._-]?(?:[0-9]{1,4}|[a-c][a-z]?)$"
)
"""The end of a name of a piece of a file, as ``split`` and uploaders write it."""
_JOIN: Final = "a piece of a file that was cut: join the pieces in their order, as by cat"

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
    (b"MKSP", f"it is a support of modelkin, and no weights: {_CHECKPOINT}"),
    (b"MKSG", f"it is a signature of modelkin, and no weights: {_CHECKPOINT}"),
    (b"MKFP", f"it is a fingerprint of modelkin, and no weights: {_CHECKPOINT}"),
    (b"MKCT", "it is a catalogue of bases, which `modelkin catalogue show` reads"),
    (b"GGUF", "it is a GGUF file: its name has to end in .gguf"),
    (b"lmgg", "it is a GGML file, which GGUF has replaced: convert it to GGUF"),
    (b"tjgg", "it is a GGML file, which GGUF has replaced: convert it to GGUF"),
    (b"PK\x05\x06", "it is an empty zip archive"),
    (b"\x1f\x8b", "it is a gzip archive: unpack it"),
    (b"BZh", "it is a bzip2 archive: unpack it"),
    (b"\xfd7zXZ\0", "it is an xz archive: unpack it"),
    (b"\x28\xb5\x2f\xfd", "it is a zstd archive: unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it"),
    (b"Rar!", "it is a rar archive: unpack it"),
    (b"\x89HDF\r\n\x1a\n", f"it is an HDF5 file, as Keras writes it: {_PUBLISH}"),
    (b"\x93NUMPY", f"it is an array of NumPy: {_ARRAYS}"),
    (b"\xba\x16\x4f\x2f", f"it is of fastText: {_PUBLISH}"),
    (
        bytes(8),
        "it begins with zeros, as unfinished downloads do: get it again",
    ),
)
_INSIDE: Final[tuple[tuple[int, bytes, str], ...]] = (
    (257, b"ustar", "it is a tar archive: unpack it"),
    (4, b"TFL3", f"it is of TensorFlow Lite, compiled: {_PUBLISH}"),
    (4, b"ORTM", f"it is ONNX, compiled for its runtime: {_PUBLISH}"),
    (4, b"ET12", f"it is of ExecuTorch, compiled: {_PUBLISH}"),
)
"""What stands further inside a file, and where."""
_ZIP: Final = b"PK\x03\x04"
_MEMBERS: Final[tuple[tuple[tuple[bytes, ...], str], ...]] = (
    (
        (b".pkl", b"/version", b"/byteorder", b".debug_pkl"),
        f"it is a zip archive, as torch.save writes it around a pickle, and {_PICKLE}",
    ),
    ((b".npy",), f"it is an archive of arrays of NumPy: {_ARRAYS}"),
    ((b"metadata.json", b".weights.h5"), f"it is an archive of Keras: {_PUBLISH}"),
)
"""How the name of an archive's first member ends, and what the archive is."""
_PAGE: Final = re.compile(
    rb"\s*(?:<!--.{0,200}?-->\s*)?<(?:!doctype\s+html|html|head|body)", re.I | re.S
)
_MARKUP: Final = re.compile(rb"\s*<(?:\?xml|[a-z]+[ >])", re.I)
_ONNX: Final = re.compile(rb"\x08[\x01-\x20]\x12[\x00-\x40][\x20-\x7e]")
_TEXT: Final = re.compile(rb"[\x09\x0a\x0d\x20-\x7e]{8,}")


class UnreadFormat(InvalidCheckpoint):
    """A repository without a file of weights that is read, such as one of pickles alone."""


def describe_unread(path: str) -> str | None:
    """What a file of weights is that is not read, and what would do; None for other names."""
    what = unread_format(path)
    return None if what is None else f"{quote(path)} is {what}"


def unread_format(path: str) -> str | None:
    """The words of :func:`describe_unread` behind "is"."""
    rank = unread_rank(path)
    if rank < len(_UNREAD):
        return f"{_UNREAD[rank][1]}: {_PUBLISH}"
    return _JOIN if rank == len(_UNREAD) else None


def unread_rank(path: str) -> int:
    """The place of a file's format in the order in which formats are named; the last for others."""
    lower = path[-_LONGEST:].lower()
    ending = lower.rpartition(".")[2]
    for pattern, other in _ENDING_BY_NAME:
        if pattern.search(lower):
            ending = other
    if is_piece(path):
        return len(_UNREAD)
    return _RANKS.get(ending, len(_UNREAD) + 1)


def is_piece(path: str) -> bool:
    """Whether a file is by its name a piece of one that was cut."""
    return _PIECE.search(path[-_LONGEST:].lower()) is not None


def describe_beginning(beginning: bytes) -> str | None:
    """What a file is instead of safetensors, and what to do; None if that is not clear.

    Args:
        beginning: the first bytes of the file, :data:`BEGINNING_BYTES` where there are as many.
    """
    beginning = beginning.removeprefix(b"\xef\xbb\xbf")
    for magic, words in _BEGINNINGS:
        if beginning.startswith(magic):
            return words
    if beginning.startswith(_ZIP):
        return _describe_zip(beginning)
    for at, magic, words in _INSIDE:
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
        return f"it is text that begins with {words}, and no file of weights"
    return None


def _describe_zip(beginning: bytes) -> str:
    """What an archive is, by the name of its first member."""
    length = int.from_bytes(beginning[26:28], "little")
    name = beginning[30 : 30 + length]
    for endings, words in _MEMBERS:
        if name.endswith(endings):
            return words
    return f"it is a zip archive: unpack it, or, if torch.save wrote it, {_SAVE}"
