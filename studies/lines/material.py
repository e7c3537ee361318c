"""What networks are trained on: the repository's own texts, scikit-learn's digits, and sounds.

Each comes in two halves: bases read the first, and what is made of them is trained on the other.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from sklearn.datasets import load_digits
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import interpolate

__all__ = ["TOKENS", "digits", "neighbours", "sounds", "tokens"]

TOKENS: Final = 2048
"""The size of the vocabulary."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_MOST_CHARACTERS: Final = (3_000_000, 1_500_000)
_READ: Final = (("client_sdk", "app", "workers", "tests"), ("docs", "."))
_ENDS: Final = ("*.py", "*.md")


@cache
def _texts() -> tuple[Tensor, Tensor]:
    texts = []
    for folders, end, most in zip(_READ, _ENDS, _MOST_CHARACTERS, strict=True):
        paths = sorted(
            path
            for folder in folders
            for path in (_ROOT / folder).glob(end if folder == "." else f"**/{end}")
        )
        random.Random(0).shuffle(paths)
        texts.append("\n".join(path.read_text() for path in paths)[:most])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=TOKENS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([text[:1_000_000] for text in texts], trainer)
    python, markdown = (torch.tensor(tokenizer.encode(text).ids) for text in texts)
    return python, markdown


def tokens(draw: np.random.Generator, other: bool, count: int, length: int) -> Tensor:
    """Stretches of Python, or of Markdown, shape ``(count, length)``."""
    text = _texts()[other]
    begins = draw.integers(0, len(text) - length, count)
    return torch.stack([text[begin : begin + length] for begin in begins.tolist()])


@cache
def digits(other: bool, side: int) -> tuple[Tensor, Tensor]:
    """Images of -1 to 1, ``(n, 1, side, side)``, and their labels; others are transposed."""
    read: Any = load_digits()
    images = torch.tensor(read.images, dtype=torch.float32)[:, None] / 8 - 1
    if other:
        images = images.transpose(2, 3)
    if side != images.shape[-1]:
        images = interpolate(images, (side, side), mode="bilinear")
    return images.contiguous(), torch.tensor(read.target)


@cache
def neighbours(count: int) -> Tensor:
    """The nearest other images of each, by their pixels, shape ``(n, count)``."""
    flat = digits(False, 8)[0].flatten(1)
    return torch.cdist(flat, flat).argsort(dim=1)[:, 1 : count + 1]


def sounds(
    draw: np.random.Generator, other: bool, count: int, length: int
) -> tuple[Tensor, Tensor]:
    """Chords of two tones in noise and the number of each, ``(count, length)`` and ``(count,)``.

    The other ones are two octaves and a half higher, and a third of the noise is left.
    """
    labels = draw.integers(0, 10, count)
    time = np.arange(length) / 8000
    low = (600 if other else 110) * 2 ** (labels / 12)
    phase = draw.uniform(0, 2 * np.pi, (count, 2, 1))
    frequencies = np.stack([low, low * (1.5 if other else 1.25)], axis=1)[:, :, np.newaxis]
    waves = np.sin(2 * np.pi * frequencies * time + phase).sum(axis=1)
    noise = draw.standard_normal((count, length)) * (0.2 if other else 0.6)
    return torch.tensor(waves + noise, dtype=torch.float32), torch.tensor(labels)
