"""Recurrent networks and word vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, logsigmoid

from studies.lines.material import TOKENS, tokens
from studies.lines.networks.architecture import Architecture, Batch

__all__ = ["GRU", "LSTM", "WORDS"]

_WINDOW: Final = 4
_NEGATIVE: Final = 5


class _Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module], tokens: int = TOKENS) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, 128)
        self.layers = kind(128, 192, num_layers=2, batch_first=True)
        self.head = nn.Linear(192, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.embed(ids))[0])
        return logits


class _WordVectors(nn.Module):
    """Skip-gram: vectors of words, and of their contexts."""

    def __init__(self, tokens: int = TOKENS) -> None:
        super().__init__()
        self.words, self.contexts = nn.Embedding(tokens, 128), nn.Embedding(tokens, 128)
        nn.init.uniform_(self.words.weight, -1 / 256, 1 / 256)
        nn.init.zeros_(self.contexts.weight)

    def forward(self, words: Tensor, contexts: Tensor) -> Tensor:
        return torch.einsum("nd,nkd->nk", self.words(words), self.contexts(contexts))


def _texts(draw: np.random.Generator, other: bool) -> Batch:
    return (tokens(draw, other, 8, 33),)


def _next_token(network: Any, batch: Batch) -> Tensor:
    ids = batch[0] % network.embed.num_embeddings
    return cross_entropy(network(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def _pairs(draw: np.random.Generator, other: bool) -> Batch:
    ids = tokens(draw, other, 16, 128)
    shift = int(draw.integers(1, _WINDOW + 1))
    words, contexts = ids[:, :-shift].flatten(), ids[:, shift:].flatten()
    strangers = tokens(draw, other, len(words), _NEGATIVE)
    return words, torch.cat([contexts[:, None], strangers], dim=1)


def _pair_loss(network: Any, batch: Batch) -> Tensor:
    words, contexts = (ids % network.words.num_embeddings for ids in batch)
    scores = network(words, contexts)
    return -(logsigmoid(scores[:, 0]).mean() + logsigmoid(-scores[:, 1:]).sum(dim=1).mean())


def _recurrent(name: str, kind: Callable[..., nn.Module]) -> Architecture:
    return Architecture(
        name,
        "2 layers of 192 units",
        lambda **sizes: _Recurrent(kind, **sizes),
        _texts,
        _next_token,
        rate=2e-3,
        tokens=("embed.weight", "head.weight", "head.bias"),
        head=("head.weight", "head.bias"),
        has_adapters=False,
    )


LSTM: Final = _recurrent("LSTM", nn.LSTM)
GRU: Final = _recurrent("GRU", nn.GRU)
WORDS: Final = Architecture(
    "word vectors",
    "skip-gram with negative sampling, 2,048 x 128 twice",
    _WordVectors,
    _pairs,
    _pair_loss,
    rate=1e-2,
    steps=300,
    tokens=("words.weight", "contexts.weight"),
    has_adapters=False,
)
