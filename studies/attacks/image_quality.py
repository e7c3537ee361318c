"""How near a guess is to an input: PSNR and SNR, and SSIM of images."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

__all__ = ["MAX_PSNR", "psnr", "snr", "ssim"]

MAX_PSNR = 120.0
"""The PSNR of an exact reconstruction: squared errors below 1e-12 of the range are rounding."""
SSIM_WINDOW = 7


def psnr(guess: Tensor, truth: Tensor, value_range: float) -> float:
    """The peak signal-to-noise ratio in dB, at most ``MAX_PSNR``."""
    error = float((guess.double() - truth.double()).square().mean()) / value_range**2
    return MAX_PSNR if error < 1e-12 else min(MAX_PSNR, -10 * math.log10(error))


def snr(guess: Tensor, truth: Tensor) -> float:
    """The power of an input over that of the error, in dB, at most ``MAX_PSNR``."""
    power = max(float(truth.double().square().mean()), torch.finfo(torch.float64).tiny)
    return psnr(guess, truth, math.sqrt(power))


def ssim(guess: Tensor, truth: Tensor, value_range: float) -> float | None:
    """The mean structural similarity of two images, 1 for equal ones.

    Windows of 7 x 7 and the constants of the source; channels count alike.

    Args:
        guess: an image of shape ``(channels, height, width)`` or ``(height, width)``.
        truth: likewise.
        value_range: the largest difference of two values.

    Returns:
        None for inputs that are not images, or smaller than a window.

    Source: Wang, Bovik, Sheikh and Simoncelli, Image Quality Assessment (2004).
    """
    if truth.dim() not in (2, 3) or min(truth.shape[-2:]) < SSIM_WINDOW:
        return None
    x, y = (image.double().reshape(-1, 1, *image.shape[-2:]) for image in (guess, truth))

    def mean(image: Tensor) -> Tensor:
        return avg_pool2d(image, SSIM_WINDOW, stride=1)

    mean_x, mean_y = mean(x), mean(y)
    spread_x, spread_y = mean(x * x) - mean_x**2, mean(y * y) - mean_y**2
    common = mean(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * value_range) ** 2, (0.03 * value_range) ** 2
    above = (2 * mean_x * mean_y + c1) * (2 * common + c2)
    below = (mean_x**2 + mean_y**2 + c1) * (spread_x + spread_y + c2)
    return float(torch.mean(above / below))
