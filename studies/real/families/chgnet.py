"""CHGNet: 0.3.0, r2SCAN that was made from it, and 0.2.0 that was trained on its own.

The files have the optimiser's state, so that Adam's second moments can be compared as importances.
"""

from __future__ import annotations

from typing import Final

from studies.cells import Figures
from studies.hub import Hub
from studies.real.checkpoints import common, saved
from studies.real.errors import InvalidFile
from studies.real.kinship import chance, cosines
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensors
from studies.real.readers.pickles import read_pickle, tensors_at

__all__ = ["MOMENT_SHARES", "NAME", "SHARES", "figures", "moments"]

NAME: Final = "chgnet"
SHARES: Final = (0.01, 0.05, 0.1, 0.2)
MOMENT_SHARES: Final = (0.05, 0.1, 0.2)

_FILES: Final = {
    "0.3.0": "chgnet/pretrained/0.3.0/chgnet_0.3.0_e29f68s314m37.pth.tar",
    "r2scan": "chgnet/pretrained/r2scan/chgnet_r2scan_transfer_learning_e15f36s161m23.pth.tar",
    "0.2.0": "chgnet/pretrained/0.2.0/chgnet_0.2.0_e30f77s348m32.pth.tar",
}


def figures(packages: Packages, hub: Hub) -> Figures:
    """S, kappa and cosine of the transfer, of the older model, and of Adam's moments."""
    files = packages.members("chgnet", "0.4.2", lambda name: name in _FILES.values())
    trees = {name: read_pickle(files[path]) for name, path in _FILES.items()}
    weights = {name: tensors_at(tree, "model", "state_dict") for name, tree in trees.items()}
    kin = {name: weights[name] for name in ("0.3.0", "r2scan")}
    adam = {name: moments(trees[name]) for name in kin}
    return {
        **_compared("weights, 0.3.0 and r2SCAN", kin, SHARES, hub),
        **_compared("weights, 0.3.0 and 0.2.0", _shared(weights), SHARES, hub),
        **_compared("Adam's moments, 0.3.0 and r2SCAN", adam, MOMENT_SHARES, hub),
    }


def moments(tree: object) -> Tensors:
    """Adam's second moments, by the number of the parameter.

    Raises:
        InvalidFile: it has no state of an optimiser.
    """
    state = tree.get("optimizer") if isinstance(tree, dict) else None
    numbers = state.get("state") if isinstance(state, dict) else None
    if not isinstance(numbers, dict) or not numbers:
        raise InvalidFile("it has no state of an optimiser")
    return {
        f"{number:03d}": tensors_at(numbers, number)["exp_avg_sq"] for number in sorted(numbers)
    }


def _shared(weights: dict[str, Tensors]) -> dict[str, Tensors]:
    """0.3.0 and 0.2.0, whose layouts differ, with the tensors that both have."""
    return common({name: weights[name] for name in ("0.3.0", "0.2.0")})


def _compared(
    title: str, models: dict[str, Tensors], shares: tuple[float, ...], hub: Hub
) -> Figures:
    """S, kappa and chance of two models at each K, and the cosine of their values."""
    found: Figures = {}
    with saved(models) as checkpoints:
        cosine = cosines(checkpoints.vectors())[0, 1]
        for share in shares:
            with checkpoints.pushed(hub, share) as space:
                similarity, kappa = space.matrix(), space.matrix("kappa")
            found[f"{title}, K = {share:.0%}"] = {
                "M": checkpoints.parameters,
                "tensors": len(models["0.3.0"]),
                "S": similarity[0, 1],
                "kappa": kappa[0, 1],
                "chance": chance(similarity, kappa)[0, 1],
                "cosine": cosine,
            }
    return found
