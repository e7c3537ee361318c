"""Measure which inputs can be had from a part of a gradient of one sample.

One digit of 16 x 16 each. A convolutional network is attacked by iDLG, once as in the literature,
where what is not seen counts as zero, and once matching only what is seen, which every aggregator
can. A linear layer that meets the input is attacked by completing its gradient, a matrix of rank
one. PSNR in dB: above 30 an image is recognised without doubt.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.eris.data import Dataset, digits
from benchmarks.eris.networks import lenet, mlp
from benchmarks.report import Findings, Row, Table
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.thinning import Thinning
from modelkin.torch.privacy.flat_network import FlatNetwork
from studies.attacks.completion import complete, find_input_layer
from studies.attacks.image_quality import psnr
from studies.attacks.inversion import invert

LIBRARIES = ("numpy", "torch", "scikit-learn")

SIDE: Final = 16
SHARDS: Final = (1, 2, 5, 10, 20, 50)
THINNED: Final = ((2, 4), (2, 16), (2, 64))
"""A and c."""

IMAGES, COMPLETED, STEPS = 8, 50, 250

Found = dict[tuple[str, int, int], float]
"""Median PSNR by attack, A and c."""


def run(quick: bool) -> Findings:
    """Attack by search, then by completion."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    images, steps = (1, 1) if quick else (IMAGES, STEPS)
    shards = (1, 2, 20) if quick else SHARDS
    data = digits(SIDE)
    searched = _searches(data, images, steps, shards, () if quick else THINNED)
    completed = _completions(data, 1 if quick else COMPLETED, shards)
    rows = _judged(searched, judged=not quick)
    return Findings(rows, [_table(data, searched, completed)])


def _searches(
    data: Dataset,
    images: int,
    steps: int,
    shards: tuple[int, ...],
    thinned: tuple[tuple[int, int], ...],
) -> Found:
    found: dict[tuple[str, int, int], list[float]] = {}
    for place, row in enumerate(chosen(data, images, 0)):
        image, label = data.inputs[row : row + 1], data.labels[row : row + 1]
        network = FlatNetwork(lenet(SIDE, seed=place), cross_entropy)
        gradient = network.gradient(image, label)
        views = [(count, 1) for count in shards] + list(thinned)
        for count, one_in in views:
            at = seen_places(network.size, count, one_in, place)
            guess = _search(network, gradient[at], at, label, steps, place)
            found.setdefault(("matching", count, one_in), []).append(_quality(guess, image))
            if one_in == 1:
                zeros = torch.zeros_like(gradient).index_add(0, at, gradient[at])
                everywhere = torch.arange(network.size)
                guess = _search(network, zeros, everywhere, label, steps, place)
                found.setdefault(("zeros", count, 1), []).append(_quality(guess, image))
    return {key: float(np.median(values)) for key, values in found.items()}


def _search(
    network: FlatNetwork, seen: Tensor, at: Tensor, label: Tensor, steps: int, seed: int
) -> Tensor | None:
    shape = torch.Size((1, SIDE, SIDE))
    return invert(network, seen, at, label, shape, (0.0, 1.0), steps=steps, seed=seed)


def _completions(data: Dataset, images: int, shards: tuple[int, ...]) -> Found:
    found: dict[tuple[str, int, int], list[float]] = {}
    for place, row in enumerate(chosen(data, images, 1)):
        image, label = data.inputs[row : row + 1], data.labels[row : row + 1]
        network = FlatNetwork(mlp(SIDE * SIDE, hidden=128, seed=place), cross_entropy)
        layer = find_input_layer(network, image)
        assert layer is not None, "the first layer is linear"
        gradient, prior = network.gradient(image, label), torch.zeros(layer.inputs).double()
        for count in shards:
            at = seen_places(network.size, count, 1, place)
            guess = complete(layer, gradient[at], at, prior).clamp(0, 1).view_as(image)
            found.setdefault(("completion", count, 1), []).append(_quality(guess, image))
    return {key: float(np.median(values)) for key, values in found.items()}


def chosen(data: Dataset, images: int, seed: int) -> list[int]:
    chosen: list[int] = np.random.default_rng(seed).permutation(len(data.labels))[:images].tolist()
    return chosen


def seen_places(size: int, shards: int, one_in: int, seed: int) -> Tensor:
    """The coordinates of one shard that one aggregator has in a round."""
    indices = Partition(size, shards, seed).indices(seed % shards)
    return torch.from_numpy(indices[Thinning(len(indices), one_in, seed).positions])


def _quality(guess: Tensor | None, image: Tensor) -> float:
    return 0.0 if guess is None else psnr(guess, image, 1.0)


def _judged(found: Found, *, judged: bool) -> list[Row]:
    rows = []
    for count, least in ((2, 30.0), (20, 20.0)):
        matched, zeros = found["matching", count, 1], found["zeros", count, 1]
        met = matched >= least and zeros <= 13.0
        rows.append(
            Row(
                f"an image from one of {count} shards, by matching what is seen",
                f"{matched:.1f} dB",
                f"zeros for the unseen: {zeros:.1f} dB",
                f"{matched - zeros:+.1f} dB",
                f"≥ {least:g} dB, and ≤ 13 dB" if judged else "",
                met if judged else None,
            )
        )
    return rows


def _table(data: Dataset, searched: Found, completed: Found) -> Table:
    size, linear = (
        FlatNetwork(network, cross_entropy).size
        for network in (lenet(SIDE), mlp(SIDE * SIDE, hidden=128))
    )
    rows = []
    for _, shards, one_in in [key for key in searched if key[0] == "matching"]:
        completion = completed.get(("completion", shards, one_in))
        zeros = searched.get(("zeros", shards, one_in))
        rows.append(
            [
                str(shards),
                str(one_in),
                f"{len(seen_places(size, shards, one_in, 0)):,}",
                *("" if each is None else f"{each:.1f}" for each in (zeros,)),
                f"{searched['matching', shards, one_in]:.1f}",
                "" if completion is None else f"{completion:.1f}",
            ]
        )
    mean = data.inputs.mean(0, keepdim=True)
    chance = np.median([psnr(mean, image, 1.0) for image in data.inputs[:200, None]])
    return Table(
        f"Median PSNR of images of {SIDE * SIDE} numbers from one sample's gradient, in dB; the "
        f"mean image has {chance:.1f}. By search: a LeNet with M = {size:,}; by completion: a "
        f"network whose first layer is linear, M = {linear:,}",
        ["A", "c", "values", "search, zeros for the unseen", "search, matching", "completion"],
        rows,
    )
