"""The label of an image: read off a part of its gradient (iDLG), or searched with it (DLG)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.eris.inversions.attacks import (
    RESTARTS,
    Case,
    Quality,
    best_ends,
    mismatched,
    quality,
)
from benchmarks.eris.inversions.shards import seen_places
from studies.attacks.knowledge import Mismatch, matching

__all__ = ["Labels", "read_off", "searched"]

UNITS = 12
"""The channels that meet the last layer of the network, at a sixteenth of the pixels."""


@dataclass(frozen=True, slots=True)
class Labels:
    """What one of some shards shows of labels.

    Attributes:
        values: how many are seen.
        read: the share of labels that the values of the last layer show.
        found: the share of labels that DLG finds.
        images: how near DLG's images are.
    """

    values: int
    read: float
    found: float
    images: Quality


def searched(case: Case, shards: int, classes: int, steps: int) -> Labels:
    """Attack the first client of each case by one of its shards."""
    own, truths = case.gradients[:, 0], case.labels[:, 0]
    places = [seen_places(case.flat.size, shards, 1, seed) for seed in range(len(own))]
    mismatches = [matching(each[at], at) for each, at in zip(own, places, strict=True)]
    units = UNITS * (case.images.shape[-1] // 4) ** 2
    read = [
        read_off(each[at], at, len(each), classes, units)
        for each, at in zip(own, places, strict=True)
    ]
    guesses, labels = _both(case, mismatches, classes, steps)
    return Labels(
        len(places[0]),
        float((torch.tensor(read) == truths).float().mean()),
        float((labels == truths).float().mean()),
        quality(case, guesses[:, None]),
    )


def _both(
    case: Case, mismatches: Sequence[Mismatch], classes: int, steps: int
) -> tuple[Tensor, Tensor]:
    """The images of DLG, shape ``(cases, pixels)``, and their labels."""
    cases, pixels = len(mismatches), case.mean.numel()
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(RESTARTS * cases, pixels, generator=generator)
    label = torch.randn(RESTARTS * cases, classes, generator=generator)

    def losses(rows: Tensor, at: Tensor) -> Tensor:
        guesses, logits = at[:, None, :pixels], at[:, None, pixels:]
        return mismatched(case, mismatches, rows % cases, guesses, logits.softmax(2))

    ends = best_ends(losses, torch.cat([image, label], 1), steps)
    return ends[:, :pixels], ends[:, pixels:].argmax(1)


def read_off(seen: Tensor, at: Tensor, size: int, classes: int, units: int) -> int:
    """The class whose row of the last layer falls: its inputs are positive, as a sigmoid's are.

    Args:
        seen: values of the gradient of one sample.
        at: their coordinates.
        size: M; the last layer ends the vector, with its biases.
        classes: how many there are.
        units: the inputs of the last layer.
    """
    biases = size - classes
    weights = biases - classes * units
    row = torch.where(at < biases, (at - weights) // units, at - biases)
    last = at >= weights
    return int(torch.zeros(classes).index_add(0, row[last], seen[last]).argmin())
