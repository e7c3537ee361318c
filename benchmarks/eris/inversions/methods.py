"""Measure which images can be had from what each method sends of the gradient of one sample.

The setting of the shards: digits of 16 x 16, the network of DLG. All methods are attacked alike:

- *as sent*: what was sent is taken for values of the gradient, and what was not is left out;
- *knowing the method*: values are weighed by their rounding, gradients of guesses are clipped, and
  what was not sent is not larger (Top-k) or not smaller (PriPrune) than all that was;
- *and other images*: the same, and images are normal with the moments of others of their kind.

PSNR and SNR in dB. The best attack is the one of the largest mean PSNR.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from scipy import stats

from benchmarks.eris.data import digits
from benchmarks.eris.inversions.attacks import (
    ATTACKS,
    Case,
    Quality,
    attacked,
    mean_image,
    prepared,
)
from benchmarks.eris.inversions.labels import searched
from benchmarks.eris.inversions.senders import SENDERS
from benchmarks.eris.inversions.shards import SIDE
from benchmarks.report import Findings, Row, Table

LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn")

IMAGES, STEPS = 5, 80
SHARDS: Final = (1, 2, 10, 50)

Found = dict[str, tuple[int, dict[str, Quality]]]
"""The values that a receiver has, and what each attack makes of them, by method."""


def run(quick: bool) -> Findings:
    """Attack every method, then labels."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    data, steps = digits(SIDE), 1 if quick else STEPS
    case = prepared(data, 2 if quick else IMAGES)
    found = {each.name: attacked(case, each, steps) for each in SENDERS}
    tables = [_by_method(case, found), _by_label(case, found, data.classes, steps)]
    return Findings(_judged(found, judged=not quick), tables)


def _judged(found: Found, *, judged: bool) -> list[Row]:
    def row(name: str, attack: str, beside: str, target: float) -> Row:
        ours, theirs = (_mean(found[name][1][each].psnr) for each in (attack, beside))
        return Row(
            f"an image from {name}, {attack}",
            f"{ours:.1f} dB",
            f"{beside}: {theirs:.1f} dB",
            f"{ours - theirs:+.1f} dB",
            f"≥ {target:+g} dB" if judged else "",
            ours - theirs >= target if judged else None,
        )

    return [
        row("DP-SGD, clip 1, sigma = 0.0001", ATTACKS[1], ATTACKS[0], 10),
        row("QSGD, 4 levels", ATTACKS[1], ATTACKS[0], 2),
        row("ERIS, A = 50", ATTACKS[2], ATTACKS[0], 10),
    ]


def _by_method(case: Case, found: Found) -> Table:
    rows = [_row(name, values, qualities) for name, (values, qualities) in found.items()]
    chance = mean_image(case)
    rows.append(["the mean image", "0", "", "", "", *_cells(chance)])
    return Table(
        f"Images of {SIDE * SIDE} numbers from one sample's gradient of a LeNet with M = "
        f"{case.flat.size:,}, by what is sent: mean PSNR of {len(case.images)} images by attack; "
        f"of the best one with 95% intervals, and SSIM and SNR",
        ["method", "values", *ATTACKS, "best", "SSIM", "SNR"],
        rows,
    )


def _row(name: str, values: int, qualities: dict[str, Quality]) -> list[str]:
    means = {attack: _mean(each.psnr) for attack, each in qualities.items()}
    shown = [f"{means[attack]:.1f}" if attack in means else "" for attack in ATTACKS]
    best = qualities[max(means, key=lambda attack: means[attack])]
    return [name, f"{values:,}", *shown, *_cells(best)]


def _cells(quality: Quality) -> list[str]:
    psnr = f"{_mean(quality.psnr):.1f} ± {_half_width(quality.psnr):.1f}"
    return [psnr, f"{_mean(quality.ssim):.2f}", f"{_mean(quality.snr):.1f}"]


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def _half_width(values: list[float]) -> float:
    """Of the 95% interval of the mean."""
    scale = float(stats.t.ppf(0.975, len(values) - 1))
    return scale * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _by_label(case: Case, found: Found, classes: int, steps: int) -> Table:
    rows = []
    for shards in SHARDS:
        labels = searched(case, shards, classes, steps)
        known = found.get("FedAvg" if shards == 1 else f"ERIS, A = {shards}")
        rows.append(
            [
                str(shards),
                f"{labels.values:,}",
                f"{labels.read:.0%}",
                f"{_mean(known[1][ATTACKS[0]].psnr):.1f}" if known else "",
                f"{labels.found:.0%}",
                f"{_mean(labels.images.psnr):.1f}",
            ]
        )
    return Table(
        "Labels from one of A shards of a gradient, and mean PSNR of images: iDLG reads the label "
        "off the last layer's values, DLG searches it together with the image",
        ["A", "values", "iDLG: labels", "PSNR", "DLG: labels", "PSNR of DLG"],
        rows,
    )
