"""Tables that no training made are known by their order or by their few values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelkin.core.fingerprints.tables import LineSample, has_few_values, is_structured

DRAW = np.random.default_rng(0)


def angles(positions: int, width: int) -> Any:
    return np.arange(positions)[:, None] / 10000 ** (np.arange(width // 2) * 2 / width)


def sines(positions: int, width: int) -> Any:
    return np.concatenate([np.sin(angles(positions, width)), np.cos(angles(positions, width))], 1)


def mel_filters(bands: int, frequencies: int) -> Any:
    edges, k = np.linspace(0, frequencies**0.5, bands + 2) ** 2, np.arange(frequencies)
    rising = (k - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - k) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(rising, falling), 0, None)


def hippo(n: int) -> Any:
    i = np.arange(n)
    below = np.sqrt((2 * i[:, None] + 1) * (2 * i + 1.0))
    return np.where(i[:, None] > i, below, np.diag(i + 1.0))


SQUARE = np.arange(128.0)
WAVE = 2 * np.pi * np.arange(400) / 400
TIME = np.linspace(-1, 1, 251)
SINES_2D = sines(24, 128)
ORDERED = {
    "sinusoids": sines(512, 256),
    "interleaved": np.stack([np.sin(angles(512, 256)), np.cos(angles(512, 256))], 2).reshape(
        512, 256
    ),
    "images": np.concatenate([np.repeat(SINES_2D, 24, 0), np.tile(SINES_2D, (24, 1))], 1),
    "rotary": np.cos(np.concatenate(2 * [angles(2048, 64)], 1)),
    "timesteps": sines(1000, 256),
    "dct": np.cos(np.pi * (np.arange(256)[:, None] + 0.5) * np.arange(256) / 256),
    "stft": np.cos(np.arange(201)[:, None] * WAVE) * np.hanning(400),
    "gabor": np.array([np.exp(-8 * TIME**2) * np.cos(6 * f * TIME) for f in range(1, 81)]),
    "mel": mel_filters(128, 513),
    "hippo": hippo(256),
    "alibi": -np.abs(SQUARE[:, None] - SQUARE),
    "mask": np.tril(np.ones((128, 128))),
}
TRAINED_LIKE = {
    "normal": DRAW.standard_normal((300, 200)),
    "uniform": DRAW.uniform(-1, 1, (128, 64)),
    "low rank": DRAW.standard_normal((300, 4)) @ DRAW.standard_normal((4, 300)),
    "heavy tails": DRAW.standard_t(2, (300, 300)),
    "channels": DRAW.standard_normal((300, 300)) * DRAW.lognormal(0, 2, 300),
    "outlier": DRAW.standard_normal((300, 300)) + 100 * (np.arange(300) == 7),
    "8 bits": np.round(30 * DRAW.standard_normal((1000, 1024))),
    "4 bits": np.clip(np.round(2.5 * DRAW.standard_normal((1000, 1024))), -8, 7),
}
FEW = {
    "ternary": DRAW.integers(-1, 2, (300, 300)),
    "identity": np.eye(128),
    "ones": np.ones((128, 128)),
}


@pytest.mark.parametrize("noise", [0, 0.1])
@pytest.mark.parametrize("name", ORDERED)
def test_a_fixed_table_is_structured(name: str, noise: float) -> None:
    """In full, and where training, or rounding, has added a tenth of noise to it."""
    table = ORDERED[name]
    added = noise * table.std() * np.random.default_rng(1).standard_normal(table.shape)
    assert is_structured(LineSample.of((table + added).astype(np.float32)))


@pytest.mark.parametrize("name", TRAINED_LIKE)
def test_weights_are_neither(name: str) -> None:
    """Random ones of many kinds, and quantised ones, whichever way they are stored."""
    for matrix in (TRAINED_LIKE[name], TRAINED_LIKE[name].T):
        sample = LineSample.of(np.ascontiguousarray(matrix, np.float32))
        assert (False, False) == (is_structured(sample), has_few_values(sample))


@pytest.mark.parametrize("name", FEW)
def test_few_values_are_known(name: str) -> None:
    """Where the largest magnitudes of a line cannot be told apart."""
    assert has_few_values(LineSample.of(FEW[name].astype(np.float32)))
