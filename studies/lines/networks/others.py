"""A diffusion transformer, a graph network and a network for sounds."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, mse_loss, relu, scaled_dot_product_attention

from studies.lines.material import digits, neighbours, sounds
from studies.lines.networks.architecture import Architecture, Batch
from studies.lines.networks.images import classified, labelled
from studies.lines.networks.transformers import of_transformers

__all__ = ["AUDIO", "DIFFUSION", "GRAPH"]

_WIDTH: Final = 128
_PATCH: Final = 4
_HEADS: Final = 4


class _Block(nn.Module):
    """A layer whose norms are scaled and shifted by the time, as in DiT."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.modulation = nn.Linear(_WIDTH, 6 * _WIDTH)
        self.qkv, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, hidden), nn.Linear(hidden, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH, elementwise_affine=False)

    def forward(self, patches: Tensor, time: Tensor) -> Tensor:
        shift, scale, gate, *of_hidden = self.modulation(time)[:, None].chunk(6, dim=-1)
        normed = self.norm(patches) * (1 + scale) + shift
        split = self.qkv(normed).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)
        patches = patches + gate * self.out(mixed)
        normed = self.norm(patches) * (1 + of_hidden[1]) + of_hidden[0]
        changed: Tensor = patches + of_hidden[2] * self.down(gelu(self.up(normed)))
        return changed


class _Diffusion(nn.Module):
    def __init__(self, depth: int = 3, hidden: int = 512) -> None:
        super().__init__()
        self.enter = nn.Linear(_PATCH**2, _WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(16, _WIDTH))
        self.time = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.SiLU(), nn.Linear(_WIDTH, _WIDTH))
        self.digit = nn.Embedding(10, _WIDTH)
        self.layers = nn.ModuleList(_Block(hidden) for _ in range(depth))
        self.leave = nn.Linear(_WIDTH, _PATCH**2)

    def forward(self, patches: Tensor, time: Tensor, digit: Tensor) -> Tensor:
        rates = torch.exp(-math.log(1000) * torch.arange(_WIDTH // 2) / (_WIDTH // 2))
        angles = 1000 * time[:, None] * rates
        told = self.time(torch.cat([angles.sin(), angles.cos()], dim=1)) + self.digit(digit)
        inner = self.enter(patches) + self.positions
        for layer in self.layers:
            inner = layer(inner, told)
        noise: Tensor = self.leave(inner)
        return noise


def _diffused(draw: np.random.Generator, other: bool) -> Batch:
    images, labels = labelled(16, 32, draw, other)
    patches = images.unfold(2, _PATCH, _PATCH).unfold(3, _PATCH, _PATCH).reshape(32, 16, -1)
    noise = torch.tensor(draw.standard_normal(patches.shape), dtype=torch.float32)
    time = torch.tensor(draw.uniform(0, 1, 32), dtype=torch.float32)
    angle = time[:, None, None] * math.pi / 2
    return angle.cos() * patches + angle.sin() * noise, time, labels, noise


class _Graph(nn.Module):
    """GraphSAGE: each layer reads a node, and the mean of its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 192, 192, 192)
        pairs = list(pairwise(widths))
        self.own = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.around = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairs)
        self.head = nn.Linear(192, 10)

    def forward(self, nodes: Tensor) -> Tensor:
        edges = neighbours(5)
        for own, around in zip(self.own, self.around, strict=True):
            nodes = relu(own(nodes) + around(nodes[edges].mean(dim=1)))
        logits: Tensor = self.head(nodes)
        return logits


def _nodes(draw: np.random.Generator, other: bool) -> Batch:
    """All nodes with a third of their pixels hidden, and those whose labels are asked for."""
    images, labels = digits(other, 8)
    seen = torch.tensor(draw.random((len(images), 64)) > 1 / 3)
    asked = torch.tensor(draw.integers(0, len(labels), 256))
    return images.flatten(1) * seen, asked, labels[asked]


def _of_asked(network: Any, batch: Batch) -> Tensor:
    return cross_entropy(network(batch[0])[batch[1]], batch[2])


def _audio(**sizes: int) -> nn.Module:
    names = {"depth": "num_hidden_layers", "hidden": "intermediate_size"}
    usual: dict[str, Any] = {
        "hidden_size": _WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": _HEADS,
        "intermediate_size": 384,
        "conv_dim": (128, 128, 128),
        "conv_kernel": (10, 3, 3),
        "conv_stride": (5, 3, 2),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
        "classifier_proj_size": 128,
        "num_labels": 10,
        "apply_spec_augment": False,
        "layerdrop": 0.0,
    }
    given = usual | {names[key]: size for key, size in sizes.items()}
    return of_transformers("Wav2Vec2ForSequenceClassification", given)


DIFFUSION: Final = Architecture(
    "diffusion transformer",
    "DiT of 16 patches, width 128, 3 layers",
    _Diffusion,
    _diffused,
    lambda network, batch: mse_loss(network(*batch[:3]), batch[3]),
    depth=3,
    layers=r"layers\.(\d+)\.",
    rows_of_units=("up.weight", "up.bias"),
    columns_of_units=("down.weight",),
    hidden=512,
)
GRAPH: Final = Architecture(
    "graph network",
    "GraphSAGE over the five nearest digits of each, 3 layers of 192",
    _Graph,
    _nodes,
    _of_asked,
    head=("head.weight", "head.bias"),
)
AUDIO: Final = Architecture(
    "audio",
    "wav2vec 2: 3 one-dimensional convolutions, then 2 layers of width 128",
    _audio,
    lambda draw, other: sounds(draw, other, 8, 1500),
    classified,
    depth=2,
    layers=r"encoder\.layers\.(\d+)\.",
    head=("projector.weight", "projector.bias", "classifier.weight", "classifier.bias"),
    rows_of_units=("intermediate_dense.weight", "intermediate_dense.bias"),
    columns_of_units=("output_dense.weight",),
    hidden=384,
)
