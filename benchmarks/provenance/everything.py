"""All pairs of the comparison: of models that are trained here, and of published ones."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import torch

from benchmarks.provenance.architectures import MADE
from benchmarks.provenance.pairs import Pair, strangers_of
from benchmarks.provenance.published import published
from benchmarks.provenance.text import transformers
from benchmarks.provenance.zoo import Family, family

__all__ = ["all_pairs"]

_UNRELATED: Final = 2
"""The training that no derivative comes from."""


def all_pairs(folder: Path) -> tuple[list[Pair], list[Pair]]:
    """The pairs that are counted, and those that are listed apart.

    Args:
        folder: for the models; their trainings take minutes.
    """
    spawning = get_context("spawn")  # a fork would keep locks of torch
    seeds = range(0, 100 * len(MADE), 100)
    with ProcessPoolExecutor(os.cpu_count(), spawning, _prepare) as processes:
        families = list(processes.map(family, MADE, repeat(folder), seeds))
        minilm, smollm = processes.submit(published, folder).result()
    trainings = [*(each.trainings for each in families), minilm.trainings, [smollm]]
    kin = [pair for each in [*families, minilm] for pair in each.kin]
    others = [pair for each in families for pair in _against_another(each)]
    return kin + strangers_of(trainings, others), [pair for each in families for pair in each.apart]


def _prepare() -> None:
    """One thread for each process, and no word about progress."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def _against_another(found: Family) -> list[tuple[Path, Path]]:
    """Each derivative, once, beside a training that it does not come from."""
    derivatives = dict.fromkeys(pair.first for pair in found.kin)
    return [(derivative, found.trainings[_UNRELATED]) for derivative in derivatives]
