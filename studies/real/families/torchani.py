"""TorchANI: eight ANI-1ccx networks, each made from one of eight ANI-1x networks.

The members of ANI-1x are trained apart, from other seeds. A part of each member's parameters was
trained on for ANI-1ccx (Smith et al., 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from studies.cells import Figures
from studies.hub import Hub
from studies.real.checkpoints import Checkpoints, saved
from studies.real.kinship import among, between, cosines, nearest
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensors
from studies.real.readers.raw import read_layer

__all__ = ["NAME", "SHARES", "figures", "tensors"]

NAME: Final = "torchani"
SHARES: Final = (0.05, 0.1)

_RESOURCES: Final = "torchani/resources"
_MEMBERS: Final = range(8)
_FAMILIES: Final = [str(member) for _ in range(2) for member in _MEMBERS]
"""The seed of each model; those of ANI-1x are first."""


def figures(packages: Packages, hub: Hub) -> Figures:
    """Parents among sixteen models, and how near other seeds are."""
    files = packages.members("torchani", "2.0", lambda name: name.endswith("param"))
    models = {
        f"{kind}-{member}": tensors(files, f"{_RESOURCES}/{kind}_8x/train{member}/networks")
        for kind in ("ani-1x", "ani-1ccx")
        for member in _MEMBERS
    }
    with saved(models) as checkpoints:
        found = {f"K = {share:.0%}": _by_indices(checkpoints, hub, share) for share in SHARES}
        return {**found, "cosine of weights": _by_cosine(checkpoints)}


def tensors(files: Mapping[str, bytes], folder: str) -> Tensors:
    """The four networks of a member, one an element, each of four layers."""
    found: Tensors = {}
    for element in "HCNO":
        for layer in range(1, 5):
            path = f"{folder}/ANN-{element}.nnf-l{layer}"
            weight, bias = read_layer(files[f"{path}.wparam"], files[f"{path}.bparam"])
            found[f"{element}.{layer}.weight"], found[f"{element}.{layer}.bias"] = weight, bias
    return found


def _parents() -> list[tuple[int, int]]:
    return [(len(_MEMBERS) + member, member) for member in _MEMBERS]


def _by_indices(checkpoints: Checkpoints, hub: Hub, share: float) -> dict[str, float]:
    with checkpoints.pushed(hub, share) as space:
        similarity, kappa = space.matrix(), space.matrix("kappa")
    strangers = among(_FAMILIES, related=False)
    return {
        "M": checkpoints.parameters,
        "nearest": nearest(similarity, _parents()),
        "parents' least S": between(similarity, _parents()).min(),
        "others' greatest S": between(similarity, strangers).max(),
        "others' least kappa": between(kappa, strangers).min(),
        "others' greatest kappa": between(kappa, strangers).max(),
    }


def _by_cosine(checkpoints: Checkpoints) -> dict[str, float]:
    cosine = cosines(checkpoints.vectors())
    strangers = between(cosine, among(_FAMILIES, related=False))
    return {
        "nearest": nearest(cosine, _parents()),
        "parents' least": between(cosine, _parents()).min(),
        "others' greatest": strangers.max(),
    }
