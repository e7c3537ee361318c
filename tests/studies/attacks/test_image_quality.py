"""PSNR, SNR and SSIM are what their sources define."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from studies.attacks.image_quality import MAX_PSNR, psnr, snr, ssim


def test_psnr_is_relative_to_the_range() -> None:
    """An error of a tenth of the range everywhere is 20 dB, and none is 120."""
    image = torch.rand(1, 8, 8)
    assert psnr(image * 255 + 25.5, image * 255, 255.0) == pytest.approx(20, abs=1e-3)
    assert psnr(image, image, 1.0) == MAX_PSNR


def test_snr_is_relative_to_the_image() -> None:
    """An error of a tenth of each value is 20 dB, whatever the range is."""
    image = torch.rand(1, 8, 8)
    assert snr(image * 1.1, image) == pytest.approx(20, abs=1e-3)
    assert snr(image * 110, image * 100) == pytest.approx(20, abs=1e-3)
    assert snr(image, image) == MAX_PSNR


def test_ssim_is_the_definition_window_by_window() -> None:
    """Means, variances and covariance of each 7 x 7 window, by loops."""
    x, y = torch.rand(2, 2, 9, 10, dtype=torch.float64).unbind()
    found = []
    for channel in range(2):
        for i in range(3):
            for j in range(4):
                a, b = (t[channel, i : i + 7, j : j + 7].numpy() for t in (x, y))
                covariance = ((a - a.mean()) * (b - b.mean())).mean()
                c1, c2 = 0.02**2, 0.06**2
                above = (2 * a.mean() * b.mean() + c1) * (2 * covariance + c2)
                below = (a.mean() ** 2 + b.mean() ** 2 + c1) * (a.var() + b.var() + c2)
                found.append(above / below)
    assert ssim(x, y, 2.0) == pytest.approx(np.mean(found))
    assert ssim(x, x, 2.0) == pytest.approx(1)
    assert ssim(x[0, 0], y[0, 0], 1.0) is None
