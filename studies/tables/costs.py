"""Tables 6 and 7: what a support costs beside training, in time and in bytes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import Final

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from modelkin import Support, select_support
from modelkin.core.codecs.roaring import encode_roaring
from modelkin.torch import GradientMoment
from studies.cells import Figures
from studies.federations import Federation
from studies.hub import Hub
from studies.settings import NETWORKS, Setting, fits

__all__ = ["NAME", "figures", "settings"]

NAME: Final = "costs"

_EPOCHS: Final = 5
"""The paper's training phase."""
_BATCH: Final = 10
_RATE: Final = 0.01
_ROUNDS: Final = 5
"""Repetitions of a measurement, of which the fastest counts: machines have other work."""
_SHARE: Final = 0.1
_SEEDS: Final = 3


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """All networks that read the data, with few seeds: bytes hardly depend on them."""
    del network
    for each in (found for found in NETWORKS if fits(data, found)):
        for seed in seeds[:_SEEDS]:
            yield Setting(data, each, seed=seed)


def figures(setting: Setting, hub: Hub) -> Figures:
    """Seconds of one client's training, importance and selection; bytes of its support."""
    del hub  # nothing is asked of a service
    federation = Federation.of(setting)
    x, y = federation.samples[0], federation.labels[0]
    importance = federation.importance_of(x, y)
    support = select_support(importance, fraction=_SHARE)
    seconds = {
        "training": _fastest(lambda: _trained(federation.model, x, y, observed=False)),
        "training with the moments of its gradients": _fastest(
            lambda: _trained(federation.model, x, y, observed=True)
        ),
        "importance of each sample": _fastest(lambda: federation.importance_of(x, y)),
        "selection": _fastest(lambda: select_support(importance, fraction=_SHARE)),
    }
    return {"seconds": seconds, "bytes": _bytes(support)}


def _bytes(support: Support) -> dict[str, float]:
    m, k = support.num_parameters, support.k
    log_sets = math.lgamma(m + 1) - math.lgamma(k + 1) - math.lgamma(m - k + 1)
    return {
        "weights as float32": 4.0 * m,
        "indices as int32": 4.0 * k,
        "a bit a parameter": math.ceil(m / 8),
        "Roaring": len(encode_roaring(support.indices, m)),
        "modelkin": len(support.to_bytes()),
        "the entropy of any K of M": log_sets / math.log(2) / 8,
        "a signature of 256": len(support.signature().to_bytes()),
    }


def _trained(model: nn.Module, x: torch.Tensor, y: torch.Tensor, *, observed: bool) -> None:
    own = deepcopy(model)
    optimizer = torch.optim.SGD(own.parameters(), lr=_RATE, momentum=0.9)
    with GradientMoment(own, optimizer) if observed else nullcontext():
        for _ in range(_EPOCHS):
            for at in range(0, len(y), _BATCH):
                optimizer.zero_grad()
                loss = cross_entropy(own(x[at : at + _BATCH]), y[at : at + _BATCH])
                torch.autograd.backward(loss)
                optimizer.step()


def _fastest(work: Callable[[], object]) -> float:
    took = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)
