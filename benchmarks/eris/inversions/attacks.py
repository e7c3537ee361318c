"""Searches for the images of many clients at once, by what each method shows of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.eris.data import Dataset
from benchmarks.eris.inversions.senders import CLIENTS, Sender, Sight
from benchmarks.eris.inversions.shards import chosen
from benchmarks.eris.networks import Flat, lenet
from studies.attacks.image_quality import psnr, snr, ssim
from studies.attacks.knowledge import Mismatch
from studies.attacks.many_searches import Losses, minimized

__all__ = [
    "ATTACKS",
    "RESTARTS",
    "Case",
    "Quality",
    "attacked",
    "best_ends",
    "mean_image",
    "mismatched",
    "prepared",
    "quality",
]

ATTACKS: Final = ("as sent", "knowing the method", "and other images")
RESTARTS: Final = 2
LONGER: Final = 3
"""How many times the steps a search for the images of all members has."""
FLOOR: Final = 1e-5
"""The least mismatch of the truth that is expected, for single precision."""
RIDGE: Final = 0.01
"""The deviation of a pixel that other images cannot foresee."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How near the guesses are, by image."""

    psnr: list[float]
    ssim: list[float]
    snr: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Clients with one image each, around each one that is attacked, and a network for each.

    Attributes:
        flat: the network, as a function.
        weights: where it is, shape ``(cases, M)``.
        images: shape ``(cases, CLIENTS, 1, side, side)``; the first is attacked.
        labels: shape ``(cases, CLIENTS)``.
        gradients: of each image alone, shape ``(cases, CLIENTS, M)``.
        mean: of all images that no client has, shape ``(side * side,)``.
        root: of their covariance, shape ``(side * side, side * side)``.
    """

    flat: Flat
    weights: Tensor
    images: Tensor
    labels: Tensor
    gradients: Tensor
    mean: Tensor
    root: Tensor


def prepared(data: Dataset, cases: int) -> Case:
    """Draw the clients' images and networks."""
    side = data.inputs.shape[-1]
    rows = chosen(data, cases * CLIENTS, 0)
    flats = [Flat(lenet(side, seed=seed)) for seed in range(cases)]
    weights = torch.stack([flat.start for flat in flats])
    images = data.inputs[rows].unflatten(0, (cases, CLIENTS))
    labels = data.labels[rows].unflatten(0, (cases, CLIENTS))
    gradients = torch.stack(
        [
            flats[0].sample_gradients(*(each[None] for each in of))[0]
            for of in zip(weights, images, labels, strict=True)
        ]
    )
    others = np.delete(np.arange(len(data.labels)), rows)
    pixels = data.inputs[torch.from_numpy(others)].flatten(1)
    ridge = RIDGE**2 * torch.eye(pixels.shape[1])
    root = torch.linalg.cholesky(pixels.T.cov() + ridge)
    return Case(flats[0], weights, images, labels, gradients, pixels.mean(0), root)


def attacked(case: Case, sender: Sender, steps: int) -> tuple[int, dict[str, Quality]]:
    """How many values a receiver has, and what each attack makes of them."""
    sights = [sender.see(own, seed) for seed, own in enumerate(case.gradients)]
    steps *= LONGER if sights[0].summed else 1
    clip = sights[0].clip
    plain = [sight.plain for sight in sights]
    knowing = [sight.knowing or sight.plain for sight in sights]
    found = {ATTACKS[0]: _searched(case, sights, plain, steps)}
    if sights[0].knowing is not None:
        found[ATTACKS[1]] = _searched(case, sights, knowing, steps, clip)
    found[ATTACKS[2]] = _expected(case, sights, knowing, steps, clip)
    return sights[0].values, found


def _searched(
    case: Case,
    sights: Sequence[Sight],
    mismatches: Sequence[Mismatch],
    steps: int,
    clip: float | None = None,
) -> Quality:
    """The images that match best, of ones that are searched pixel by pixel."""
    members = CLIENTS if sights[0].summed else 1
    cases, pixels = len(sights), case.mean.numel()
    start = torch.rand(RESTARTS * cases, members * pixels, generator=_generator())

    def losses(rows: Tensor, at: Tensor) -> Tensor:
        guesses = at.view(-1, members, pixels)
        return mismatched(case, mismatches, rows % cases, guesses, clip=clip)

    return quality(case, best_ends(losses, start, steps).view(-1, members, pixels))


def best_ends(losses: Losses, start: Tensor, steps: int) -> Tensor:
    """The better end of the two searches of each case, whose starts are the rows of two blocks."""
    ends, values = minimized(losses, start, steps)
    best = values.view(RESTARTS, -1).argmin(0)
    return ends.view(RESTARTS, len(best), -1)[best, torch.arange(len(best))]


def _expected(
    case: Case,
    sights: Sequence[Sight],
    mismatches: Sequence[Mismatch],
    steps: int,
    clip: float | None,
) -> Quality:
    """The likeliest images among ones that are normal with the moments of other images."""
    members = CLIENTS if sights[0].summed else 1
    cases, pixels = len(sights), case.mean.numel()
    start = torch.randn(cases, members * pixels, generator=_generator()) / 10
    sharpness = torch.tensor([each.values / 2 / max(each.error, FLOOR) for each in sights])

    def images(at: Tensor) -> Tensor:
        found: Tensor = case.mean + at.view(-1, members, pixels) @ case.root.T
        return found

    def losses(rows: Tensor, at: Tensor) -> Tensor:
        apart = mismatched(case, mismatches, rows, images(at), clip=clip)
        return apart * sharpness[rows] + at.square().sum(1) / 2

    return quality(case, images(minimized(losses, start, steps)[0]))


def mismatched(
    case: Case,
    mismatches: Sequence[Mismatch],
    rows: Tensor,
    guesses: Tensor,
    labels: Tensor | None = None,
    clip: float | None = None,
) -> Tensor:
    """The mismatches of guesses of shape ``(k, members, pixels)`` in some cases.

    Args:
        case: of all.
        mismatches: of each case.
        rows: the cases of the guesses, shape ``(k,)``.
        guesses: images.
        labels: guesses of these, as probabilities of shape ``(k, members, classes)``; else known.
        clip: the norm to which each one's gradient is cut before their mean; None for whole ones.
    """
    inputs = guesses.unflatten(2, case.images.shape[2:])
    labels = case.labels[rows, : guesses.shape[1]] if labels is None else labels
    if clip is None:
        gradients = case.flat.gradients(case.weights[rows], inputs, labels)
    else:
        each = case.flat.sample_gradients(case.weights[rows], inputs, labels)
        gradients = (each * (clip / each.norm(dim=2, keepdim=True)).clamp(max=1)).mean(1)
    pairs = zip(rows.tolist(), gradients, strict=True)
    return torch.stack([mismatches[row](gradient) for row, gradient in pairs])


def quality(case: Case, guesses: Tensor) -> Quality:
    """The means over the members, each with the best guess of its label."""
    rows = []
    for options, truths, labels in zip(guesses.clamp(0, 1), case.images, case.labels, strict=True):
        shaped = options.unflatten(1, truths.shape[1:])
        known = labels[: len(shaped)]
        pairs = [
            (max(shaped[known == label], key=partial(_closeness, truth=truth)), truth)
            for truth, label in zip(truths, known, strict=False)
        ]
        rows.append(
            [
                np.mean([psnr(guess, truth, 1.0) for guess, truth in pairs]),
                np.mean([ssim(guess, truth, 1.0) or 0.0 for guess, truth in pairs]),
                np.mean([snr(guess, truth) for guess, truth in pairs]),
            ]
        )
    return Quality(*(list(map(float, column)) for column in zip(*rows, strict=True)))


def _closeness(guess: Tensor, truth: Tensor) -> float:
    return psnr(guess, truth, 1.0)


def mean_image(case: Case) -> Quality:
    """The guess without any gradient."""
    return quality(case, case.mean.expand(len(case.images), 1, -1))


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
