"""BERT-base: a transformer encoder over token ids, and a classifier of its first token.

Source: Devlin et al., BERT (2019). There is no dropout, which would make gradients random.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

__all__ = ["bert"]

_POSITIONS: Final = 512
_SEGMENTS: Final = 2
_PADDING: Final = 0
_EPSILON: Final = 1e-12
_SPREAD: Final = 0.02
"""The standard deviation of initial weights."""

Hidden = tuple[Tensor, Tensor]
"""The states ``(n, tokens, width)``, and where tokens are words and not padding ``(n, tokens)``."""


class Embeddings(nn.Module):
    """The embeddings of words, positions and segments, added and normalised.

    Args:
        vocabulary: how many token ids there are; 0 is padding.
        width: of a state.
    """

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(_POSITIONS, width)
        self.segments = nn.Embedding(_SEGMENTS, width)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, ids: Tensor) -> Hidden:
        """The states of token ids ``(n, tokens)``, all of the first segment."""
        places = torch.arange(ids.shape[-1], device=ids.device)
        first = torch.zeros_like(places)
        total = self.words(ids) + self.positions(places) + self.segments(first)
        return self.norm(total), ids != _PADDING


class Layer(nn.Module):
    """Self-attention and two linear layers, each with a shortcut, normalised afterwards.

    Args:
        width: of a state.
        heads: of attention; they share the width.
        hidden: between the linear layers.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.joined = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.last_norm = nn.LayerNorm(width, eps=_EPSILON)

    def forward(self, states: Hidden) -> Hidden:
        """States in, states out; padding is not attended to."""
        x, words = states
        x = self.norm(x + self.joined(self._attended(x, words)))
        return self.last_norm(x + self.narrow(gelu(self.wide(x)))), words

    def _attended(self, x: Tensor, words: Tensor) -> Tensor:
        q, k, v = (self._split(each(x)) for each in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(~words[..., None, None, :], float("-inf"))
        found: Tensor = scores.softmax(-1) @ v
        return found.transpose(-2, -3).flatten(-2)

    def _split(self, x: Tensor) -> Tensor:
        """From ``(n, tokens, width)`` to ``(n, heads, tokens, width of a head)``."""
        split: Tensor = x.unflatten(-1, (self.heads, -1))
        return split.transpose(-2, -3)


class Pooler(nn.Module):
    """A linear layer and a tanh of the first token's state.

    Args:
        width: of a state.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, states: Hidden) -> Tensor:
        """One state of each text, ``(n, width)``."""
        found: Tensor = self.dense(states[0][..., 0, :])
        return found.tanh()


def bert(
    classes: int,
    *,
    vocabulary: int = 30_522,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
) -> nn.Sequential:
    """BERT-base and a linear classifier; 109,482,240 parameters without the classifier.

    Args:
        classes: how many labels there are.
        vocabulary: how many token ids there are.
        width: of a state; the layers between have four times that.
        layers: how many.
        heads: of attention in each layer.
    """
    model = nn.Sequential(
        Embeddings(vocabulary, width),
        *(Layer(width, heads, 4 * width) for _ in range(layers)),
        Pooler(width),
        nn.Linear(width, classes),
    )
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=_SPREAD)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return model
