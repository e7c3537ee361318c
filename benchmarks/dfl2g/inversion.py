"""Measure what a learngene's gradients show of a sample: the paper's Figure 5, by what is known.

One digit of 8 x 8 each, a network with three convolutions and sigmoids, and iDLG with its label
given. The attacker sees the gradients of some layers. Of the weights of the others it knows all, or
all but an error, or nothing, and then takes weights drawn as theirs were. PSNR in dB: above 30 an
image is recognised without doubt.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.eris.data import digits
from benchmarks.eris.networks import mlp
from benchmarks.report import Findings, Row, Table
from modelkin.torch.privacy.flat_network import FlatNetwork
from studies.attacks.completion import complete, find_input_layer
from studies.attacks.image_quality import psnr
from studies.attacks.inversion import invert

LIBRARIES = ("numpy", "torch", "scikit-learn")

SIDE: Final = 8
LAYERS: Final = {"conv1": 0, "conv2": 2, "conv3": 4, "head": 7}
"""Where each is in the network."""
SEEN: Final = {
    "all": ("conv1", "conv2", "conv3", "head"),
    "conv1": ("conv1",),
    "conv1 and conv2": ("conv1", "conv2"),
    "conv1 to conv3": ("conv1", "conv2", "conv3"),
    "conv3 and head": ("conv3", "head"),
    "head": ("head",),
}
ERRORS: Final[tuple[float | None, ...]] = (0.0, 0.03, 0.1, 0.3, None)
"""The errors of the weights that the attacker does not see trained, by their norm; None where it
knows none of them."""
VARIANCE: Final = 0.001
"""The variance of the noise on gradients, as in the paper."""
LEAST: Final = 60.0
PAPER: Final = (
    "10.8, 12.8 and 37.6 dB for the best of a row, FedAvg, and 2.1 to 7.4 dB for all else"
)
"""Figure 5's three images: with all gradients, and with noise or a part of the layers."""

IMAGES, SEEDS, STEPS = 3, 3, 60

Found = dict[tuple[str, float | None, bool], list[float]]
"""PSNR of each image, by the layers seen, the error, and whether there was noise."""


def run(quick: bool) -> Findings:
    """Search for the images, then solve for those that a linear layer met."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    seeds, images, steps = (1, 1, 2) if quick else (SEEDS, IMAGES, STEPS)
    found: Found = defaultdict(list)
    solved, means = [], []
    inputs, labels = digits().inputs, digits().labels
    mean = inputs.mean(0, keepdim=True)
    for seed in range(seeds):
        rows = np.random.default_rng(seed).permutation(len(labels))[:images].tolist()
        for row in rows:
            image, label = inputs[row : row + 1], labels[row : row + 1]
            _search_all(found, image, label, seed, steps)
            solved.append(_solve(image, label, seed))
            means.append(psnr(mean, image, 1.0))
    medians = {key: float(np.median(values)) for key, values in found.items()}
    count = seeds * images
    closed, guess = float(np.median(solved)), float(np.median(means))
    return Findings(
        _rows(medians, closed, guess, judged=not quick), [_table(medians, closed, guess, count)]
    )


def network(seed: int) -> nn.Module:
    """Three convolutions with sigmoids and a linear head, started uniformly as DLG's own."""
    torch.manual_seed(seed)
    found = nn.Sequential(
        *(nn.Conv2d(1, 12, 3, padding=1), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 3, padding=1, stride=2), nn.Sigmoid()),
        *(nn.Conv2d(12, 12, 3, padding=1), nn.Sigmoid()),
        *(nn.Flatten(), nn.Linear(12 * (SIDE // 2) ** 2, 10)),
    )
    for parameter in found.parameters():
        parameter.data.uniform_(-0.5, 0.5)
    return found


def positions(flat: FlatNetwork, layers: tuple[str, ...]) -> Tensor:
    """Where the weights and biases of layers lie in the vector of all."""
    parts = [
        flat.positions(f"{LAYERS[layer]}.{kind}") for layer in layers for kind in ("weight", "bias")
    ]
    return torch.cat([torch.arange(part.start, part.stop) for part in parts if part is not None])


def believed(true: nn.Module, seen: tuple[str, ...], error: float | None, seed: int) -> nn.Module:
    """The network as the attacker has it: the seen layers as they are, the others as it knows them.

    Args:
        true: the client's.
        seen: layers whose gradients, and so whose weights, the attacker has.
        error: of each other tensor, by its norm; None for others, drawn alike.
        seed: of the error.
    """
    guess, stranger = copy.deepcopy(true), network(seed + 999)
    generator = torch.Generator().manual_seed(seed)
    hidden = [f"{place}." for layer, place in LAYERS.items() if layer not in seen]
    for (name, own), other in zip(guess.named_parameters(), stranger.parameters(), strict=True):
        if not name.startswith(tuple(hidden)):
            continue
        if error is None:
            own.data.copy_(other.data)
        else:
            noise = torch.randn(own.shape, generator=generator)
            own.data.add_(noise * (error * own.data.norm() / noise.norm()))
    return guess


def _search_all(found: Found, image: Tensor, label: Tensor, seed: int, steps: int) -> None:
    true = network(seed)
    flat = FlatNetwork(true, cross_entropy)
    gradient = flat.gradient(image, label)
    noise = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(seed))
    for name, layers in SEEN.items():
        at = positions(flat, layers)
        for error in ERRORS[:1] if name == "all" else ERRORS:
            attacker = FlatNetwork(believed(true, layers, error, seed), cross_entropy)
            guess = search(attacker, gradient[at], at, label, steps, seed)
            found[name, error, False].append(quality(guess, image))
    for name in ("all", "conv1"):
        at = positions(flat, SEEN[name])
        noisy = (gradient + VARIANCE**0.5 * noise)[at]
        guess = search(flat, noisy, at, label, steps, seed)
        found[name, 0.0, True].append(quality(guess, image))


def search(
    attacker: FlatNetwork, seen: Tensor, at: Tensor, label: Tensor, steps: int, seed: int
) -> Tensor | None:
    shape = torch.Size((1, SIDE, SIDE))
    return invert(attacker, seen, at, label, shape, (0.0, 1.0), steps=steps, seed=seed)


def quality(guess: Tensor | None, image: Tensor) -> float:
    return 0.0 if guess is None else psnr(guess, image, 1.0)


def _solve(image: Tensor, label: Tensor, seed: int) -> float:
    """The closed form: a linear layer's gradient is its input times the gradient of its bias."""
    flat = FlatNetwork(mlp(SIDE * SIDE, hidden=128, seed=seed), cross_entropy)
    layer = find_input_layer(flat, image)
    assert layer is not None, "the first layer is linear"
    begin = flat.positions("1.weight"), flat.positions("1.bias")
    at = torch.cat([torch.arange(part.start, part.stop) for part in begin if part is not None])
    prior = torch.zeros(layer.inputs).double()
    found = complete(layer, flat.gradient(image, label)[at], at, prior)
    return psnr(found.clamp(0, 1).view_as(image), image, 1.0)


def _rows(
    medians: dict[tuple[str, float | None, bool], float],
    closed: float,
    mean: float,
    *,
    judged: bool,
) -> list[Row]:
    """The early layer alone, as an attacker with all weights sees it, and one without."""
    first, unknown = medians["conv1", 0.0, False], medians["conv1", None, False]
    beside = f"the mean image: {mean:.1f} dB"

    def row(figure: str, value: float, least: float | None) -> Row:
        gain = f"{value - mean:+.1f} dB"
        if least is None or not judged:
            return Row(figure, f"{value:.1f} dB", beside, gain)
        return Row(figure, f"{value:.1f} dB", beside, gain, f"≥ {least:g} dB", value >= least)

    return [
        row("an image from conv1 alone, all weights known", first, LEAST),
        row("an image from conv1 alone, other weights unknown", unknown, None),
        row("an image from a first linear layer, closed form", closed, LEAST),
    ]


def _table(
    medians: dict[tuple[str, float | None, bool], float], closed: float, mean: float, count: int
) -> Table:
    flat = FlatNetwork(network(0), cross_entropy)
    rows = []
    for name, layers in SEEN.items():
        size = len(positions(flat, layers))
        cells = [medians.get((name, error, False)) for error in ERRORS]
        cells.append(medians.get((name, 0.0, True)))
        rows.append([name, f"{size:,}", *("" if each is None else f"{each:.1f}" for each in cells)])
    knows = [_known(error) for error in ERRORS]
    return Table(
        f"Median PSNR of {count} images in dB, by the layers whose gradients the attacker sees and "
        f"what it knows of the other weights: all, all but an error of their norm, or nothing; "
        f"or all, with noise of variance {VARIANCE:g} on the gradients. The mean image has "
        f"{mean:.1f}, the closed form for a first linear layer {closed:.1f}. The paper prints "
        f"{PAPER}",
        ["gradients seen", "values", *knows, "all, noise"],
        rows,
    )


def _known(error: float | None) -> str:
    if error is None:
        return "nothing"
    return f"± {error:.0%}" if error else "all"
