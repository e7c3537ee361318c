"""What is left of a support after quantisation, and what reading it takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from modelkin import Support, similarity
from modelkin.checkpoints import open_checkpoint, select_from_checkpoint
from tests.support.models.quantised_checkpoints import BITS, SCHEMES, write_quantised

pytestmark = pytest.mark.slow

WEIGHTS: Final = {
    f"h.{n}.weight": (0.02 * np.random.default_rng(n).standard_t(6, (128, 512))).astype(np.float32)
    for n in range(4)
}
"""Matrices with the tails of trained ones; what real ones keep is measured by ``studies real``."""
_LEAST: Final = {8: 0.99, 4: 0.9, 3: 0.75}
_FLOATS: Final = {"FP8": 0.94, "NVFP4": 0.85, "MXFP4": 0.65, "nf4": 0.85}
"""Floats keep fewer of the largest values, as their steps grow with these."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Support:
    path = tmp_path_factory.mktemp("original") / "model.safetensors"
    save_file({name: torch.from_numpy(values) for name, values in WEIGHTS.items()}, path)
    return select_from_checkpoint(open_checkpoint(path))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_copies_are_kin_of_the_original(original: Support, tmp_path: Path, scheme: str) -> None:
    """A copy has at least as much of the original's support as its bits allow."""
    copy = select_from_checkpoint(open_checkpoint(write_quantised(tmp_path / "q", WEIGHTS, scheme)))
    least = next(
        (s for kind, s in _FLOATS.items() if scheme.startswith(kind)), _LEAST[BITS[scheme]]
    )
    assert similarity(original, copy) >= least


@pytest.mark.parametrize("scheme", ["GPTQ, 4 bits, in the order of activations", "AWQ", "nf4"])
def test_memory_does_not_grow_with_the_tensor(tmp_path: Path, scheme: str) -> None:
    """A tensor of 12 MiB of values takes as much memory as one of 24."""
    peaks = []
    for rows in (3072, 6144):
        weights = np.random.default_rng(0).normal(0, 0.02, (rows, 1024)).astype(np.float32)
        folder = write_quantised(tmp_path / "q", {"m.weight": weights}, scheme)
        (tensor,) = open_checkpoint(folder).tensors
        tracemalloc.start()
        for _ in tensor.stretches():
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 24 << 20
    assert peaks[1] < 1.1 * peaks[0]
