"""What is trained of a LLaMA-like base alone: a mixture of experts, and a narrower stream."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from studies.lines.derivatives import Derivative
from studies.lines.trained import Trained
from studies.lines.zoo import Tensors, loaded, tensors_of

__all__ = ["upcycled"]

_EXPERTS: Final = 4
_CHOSEN: Final = 2
_WIDTH: Final = 192


class _Experts(nn.Module):
    """Four copies of a network of a layer, of which two are chosen for each token."""

    def __init__(self, mlp: nn.Module, width: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(copy.deepcopy(mlp) for _ in range(_EXPERTS))
        self.gate = nn.Linear(width, _EXPERTS, bias=False)

    def forward(self, inner: Tensor) -> Tensor:
        best = self.gate(inner).softmax(-1).topk(_CHOSEN, -1)
        shares = best.values / best.values.sum(-1, keepdim=True)
        weights = torch.zeros(*inner.shape[:-1], _EXPERTS).scatter(-1, best.indices, shares)
        parts = [expert(inner) for expert in self.experts]
        return torch.stack(
            [w[..., None] * p for w, p in zip(weights.unbind(-1), parts, strict=True)]
        ).sum(0)


def upcycled(trained: Trained) -> Iterator[Derivative]:
    """Each of them."""
    yield _mixture(trained)
    yield _narrower_stream(trained)


def _mixture(trained: Trained) -> Derivative:
    def make() -> Tensors:
        network: Any = loaded(trained.architecture.build(), trained.base())
        torch.manual_seed(19)
        for layer in network.model.layers:
            layer.mlp = _Experts(layer.mlp, network.config.hidden_size)
        trained.train(network, steps=30, rate=0.3, seed=19)
        return tensors_of(network)

    tensors = trained.kept("mixture of experts", make)
    origins: dict[str, tuple[str, ...]] = {
        name: () for name in tensors if name.endswith("mlp.gate.weight")
    }
    for name in tensors:
        if ".experts." in name:
            origins[name] = (re.sub(r"\.experts\.\d+", "", name),)
    return Derivative("mixture of experts", tensors, origins)


def _narrower_stream(trained: Trained) -> Derivative:
    """192 of 256 places of the stream: those with the greatest weights."""

    def make() -> Tensors:
        base = trained.base()
        readers = [v for k, v in base.items() if v.ndim == 2 and v.shape[1] == 256]
        power = sum(np.square(values).sum(axis=0) for values in readers)
        kept = np.sort(np.argsort(-power)[:_WIDTH])
        writers = ("o_proj.weight", "down_proj.weight")
        narrow = {
            k: np.ascontiguousarray(v[kept] if v.ndim == 1 or k.endswith(writers) else v[:, kept])
            for k, v in base.items()
        }
        network = loaded(trained.architecture.build(width=_WIDTH), narrow)
        trained.train(network, steps=40, rate=0.3, seed=21, other=False)
        return tensors_of(network)

    return Derivative("192 of 256 places of the stream", trained.kept("stream", make))
