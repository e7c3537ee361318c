"""Files that are no safetensors, by what they begin with: each is called what it is."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from modelkin.checkpoints import open_checkpoint
from modelkin.errors import InvalidCheckpoint

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n"


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones(9))
    return file.getvalue()


def zipped(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"x" * 40)
    return file.getvalue()


def tarred(name: str = "model.safetensors") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (POINTER, "a pointer of Git LFS in place of the file: `git lfs pull`"),
        (b"# xet version 0\nfilesize = 9\nhash = 'x'", "a pointer of Git Xet"),
        (b"/annex/objects/SHA256E-s9--ab.safetensors\n", "a pointer of git-annex"),
        (b"<!DOCTYPE html>\n<html><head><title>Sign in", "a web page (HTML)"),
        (b"\xef\xbb\xbf\r\n <HTML lang='en'>", "a web page (HTML)"),
        (b"<!-- cached --><!doctype HTML><p>", "a web page (HTML)"),
        (b'<?xml version="1.0"?><Error><Code>NoSuchKey', "XML in place of the file"),
        (b"Invalid username or password.", "text that begins with 'Invalid username or p"),
        (
            b'{"error": "Entry not found"}',
            """text that begins with '{"error": "Entry not found"}'""",
        ),
        (b"GGUF\x03\0\0\0" + bytes(16), "a GGUF file"),
        (b"tjgg" + bytes(16), "a GGML file"),
        (pickle.dumps({"w": [1.0] * 9}), "a pickle, as torch.save writes it"),
        (pickle.dumps({"w": [1.0] * 9}, protocol=2), "a pickle, as torch.save writes it"),
        (zipped("archive/data.pkl"), "a zip archive, as torch.save writes it around a pickle"),
        (zipped("encoder.npy"), "an archive of arrays of NumPy: save named arrays"),
        (zipped("metadata.json"), "an archive of Keras"),
        (zipped("1_Pooling/config.json"), "a zip archive: unpack it"),
        (b"PK\x03\x04", "a zip archive: unpack it"),
        (b"\x1c\0\0\0TFL3" + bytes(40), "of TensorFlow Lite, compiled"),
        (gzip.compress(b"x" * 99, mtime=0), "a gzip archive"),
        (bz2.compress(b"x" * 99), "a bzip2 archive"),
        (lzma.compress(b"x" * 99), "an xz archive"),
        (tarred(), "a tar archive"),
        (tarred("./") + bytes(9999), "a tar archive"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file"),
        (npy(), "an array of NumPy"),
        (b"\x08\x07\x12\x07pytorch\x1a\x052.1.0", "it looks like ONNX"),
        (bytes(4096), "it begins with zeros"),
        (b"\xff" * 99, "its first 8 bytes declare a header of 18446744073709551615 bytes"),
        (b"\1" + bytes(99), "its first 8 bytes are no length of a header"),
        (b"", "it has 0 bytes"),
    ],
)
def test_a_file_is_called_what_it_is(tmp_path: Path, data: bytes, says: str) -> None:
    """The error names the format, and what would do."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    for given in (path, tmp_path):
        with pytest.raises(InvalidCheckpoint) as caught:
            open_checkpoint(given)
        assert says in str(caught.value)


@pytest.mark.parametrize("data", [POINTER, b"<html>no such page"])
def test_an_index_is_called_what_it_is(tmp_path: Path, data: bytes) -> None:
    """A pointer in place of an index is no JSON, and is called a pointer."""
    (tmp_path / "model.safetensors.index.json").write_bytes(data)
    with pytest.raises(InvalidCheckpoint, match="in place of the file"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pytorch_model-00001-of-00002.bin", "a pickle, which is never read"),
        ("adapter_model.bin", "a pickle, which is never read"),
        ("model.bin", "either a pickle or of a program of its own"),
        ("group1-shard1of4.bin", "of TensorFlow, which is not read"),
        ("face-weights_manifest.json", "of TensorFlow, which is not read"),
        ("openvino/openvino_model.bin", "compiled, and is not read"),
        ("checkpoint.pth.tar", "a pickle, which is never read"),
        ("ggml-base.en.bin", "GGML, which GGUF has replaced"),
        ("a.mlpackage/Data/weights/weight.bin", "of Core ML, compiled"),
        ("saved_model.pb", "of TensorFlow, which is not read"),
        ("variables/variables.data-00000-of-00001", "of TensorFlow, which is not read"),
        ("model.onnx.data", "ONNX"),
        ("eng.traineddata", "of Tesseract"),
        ("yolo.weights", "of a program of its own"),
        ("x.gguf.part00", "a piece of a file that was cut: join the pieces"),
        ("model.safetensors.aa", "a piece of a file that was cut"),
        ("x.gguf-split-b", "a piece of a file that was cut"),
        ("model.safetensors.gz", "an archive"),
    ],
)
def test_a_file_is_called_what_its_name_says(tmp_path: Path, name: str, says: str) -> None:
    """So of a repository without weights that are read, and of a file whose bytes say nothing."""
    path = tmp_path / "held" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xfb" * 99)
    for given, where in ((path, "by its name it is "), (tmp_path / "held", f"{name!r} is ")):
        with pytest.raises(InvalidCheckpoint) as caught:
            open_checkpoint(given)
        assert where + says in str(caught.value)


def test_the_first_piece_of_a_file_is_a_piece(tmp_path: Path) -> None:
    """It begins as the file does, and another name would not make it whole."""
    path = tmp_path / "x.gguf.part00"
    path.write_bytes(b"GGUF\3\0\0\0" + bytes(99))
    with pytest.raises(InvalidCheckpoint, match="by its name it is a piece of a file that was cut"):
        open_checkpoint(path)
