"""Tables that many networks store and none has trained: of positions, transforms and filters."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.float32]


def _angles(positions: int, width: int) -> Any:
    return np.arange(positions)[:, None] / 10000 ** (np.arange(width // 2) * 2 / width)


def sines(positions: int, width: int) -> Any:
    """The positions of a transformer, sines first."""
    angles = _angles(positions, width)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1)


def _interleaved_sines(positions: int, width: int) -> Any:
    angles = _angles(positions, width)
    return np.stack([np.sin(angles), np.cos(angles)], 2).reshape(positions, width)


def _sines_of_images(side: int, width: int) -> Any:
    one = sines(side, width // 2)
    return np.concatenate([np.repeat(one, side, 0), np.tile(one, (side, 1))], 1)


def _rotary(wave: Any, positions: int, width: int) -> Any:
    return wave(np.concatenate(2 * [_angles(positions, width)], 1))


def _mel_filters(bands: int, frequencies: int) -> Any:
    edges, k = np.linspace(0, frequencies**0.5, bands + 2) ** 2, np.arange(frequencies)
    rising = (k - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - k) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(rising, falling), 0, None)


def _hippo(n: int) -> Any:
    i = np.arange(n)
    below = np.sqrt((2 * i[:, None] + 1) * (2 * i + 1.0))
    return np.where(i[:, None] > i, below, np.diag(i + 1.0))


def _gabor(filters: int, width: int) -> Any:
    time = np.linspace(-1, 1, width)
    return np.array([np.exp(-8 * time**2) * np.cos(6 * f * time) for f in range(1, filters + 1)])


def _gabor_images(side: int) -> Any:
    """64 kernels of one channel, of eight directions and eight frequencies."""
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    return np.array(
        [
            [np.exp(-3 * (x**2 + y**2)) * np.cos(f * (x * np.cos(turn) + y * np.sin(turn)))]
            for turn in np.arange(8) * np.pi / 8
            for f in range(2, 18, 2)
        ]
    )


def _stft(frequencies: int, width: int) -> Any:
    waves = np.arange(frequencies)[:, None] * 2 * np.pi * np.arange(width) / width
    return np.cos(waves) * np.hanning(width)


def _dct(n: int) -> Any:
    return np.cos(np.pi * (np.arange(n)[:, None] + 0.5) * np.arange(n) / n)


def _hadamard(n: int) -> Any:
    return np.ones((1, 1)) if n == 1 else np.kron([[1, 1], [1, -1]], _hadamard(n // 2))


def _bilinear(channels: int) -> Any:
    """The kernels that enlarge each channel by itself."""
    tent = 1 - np.abs(np.arange(4) - 1.5) / 2
    return np.eye(channels)[:, :, None, None] * np.outer(tent, tent)


_PLACES = np.arange(128.0)
ORDERED: Final[dict[str, Table]] = {
    name: np.asarray(values, np.float32)
    for name, values in {
        "sinusoids": sines(512, 256),
        "long sinusoids": sines(1500, 384),
        "interleaved": _interleaved_sines(512, 256),
        "images": _sines_of_images(24, 256),
        "rotary": _rotary(np.cos, 2048, 64),
        "wide rotary": _rotary(np.sin, 4096, 128),
        "timesteps": sines(1000, 256),
        "dct": _dct(256),
        "stft": _stft(201, 400),
        "gabor": _gabor(80, 251),
        "gabor images": _gabor_images(17),
        "mel": _mel_filters(128, 513),
        "hippo": _hippo(256),
        "alibi": -np.abs(_PLACES[:, None] - _PLACES),
        "mask": np.tril(np.ones((128, 128))),
    }.items()
}
"""Tables whose neighbours, or frequencies, show that nothing was trained."""
FEW: Final[dict[str, Table]] = {
    name: np.asarray(values, np.float32)
    for name, values in {
        "ternary": np.random.default_rng(0).integers(-1, 2, (300, 300)),
        "identity": np.eye(128),
        "one-hot": np.eye(100)[np.arange(1000) * 7 % 100],
        "hadamard": _hadamard(128),
        "zeros": np.zeros((128, 128)),
        "ones": np.ones((128, 128)),
        "bilinear": _bilinear(96),
    }.items()
}
"""Tables of so few values that no line has a largest one."""
