"""The baselines of averages in shards: other ways to train without showing updates.

Each is the method of its source as far as it decides what is learned; none of them moves bytes
here. The product has none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.eris.data import Clients
from benchmarks.eris.networks import Flat
from modelkin.federation.shards.quantization import BUCKET

__all__ = [
    "DPSRM", "QDPSGD", "SDMDSGD", "Ako", "Alone", "Mixing", "Shatter", "noised", "pruned",
    "rounded", "trained_alone",
]  # fmt: skip

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
Generator = np.random.Generator
Local = Callable[[Tensor], Tensor]


def noised(local: Local, clip: float, sigma: float, seed: int) -> Local:
    """Local differential privacy: updates clipped to a norm, with noise of sigma times it.

    Source: Sun, Qian and Chen, "LDP-FL: practical private aggregation in federated learning with
    local differential privacy", 2021.
    """
    rng = np.random.default_rng(seed)

    def clipped(weights: Tensor) -> Tensor:
        updates: Floats = local(weights).numpy()
        norms = np.linalg.norm(updates, axis=1, keepdims=True)
        noise = sigma * clip * rng.standard_normal(updates.shape).astype(np.float32)
        return torch.from_numpy((updates * np.minimum(1, clip / norms) + noise).astype(np.float32))

    return clipped


def pruned(local: Local, share: float) -> Local:
    """PriPrune: a share of each update is withheld, that of the largest values.

    Source: Chu et al., "PriPrune: quantifying and preserving privacy in pruned federated
    learning", 2024.
    """

    def cut(weights: Tensor) -> Tensor:
        updates = local(weights).numpy()
        bound = np.quantile(np.abs(updates), 1 - share, axis=1, keepdims=True)
        return torch.from_numpy(np.where(np.abs(updates) > bound, np.float32(0), updates))

    return cut


class Mixing(Protocol):
    """A rule that makes the models of the next round, where each client has one of its own."""

    def __call__(self, trained: Floats, before: Floats, number: int, rng: Generator) -> Floats:
        """The models after a round.

        Args:
            trained: after the local steps, shape ``(n, M)``.
            before: before them.
            number: of the round, from 0.
            rng: of the round's choices.
        """


def trained_alone(
    flat: Flat, data: Clients, mix: Mixing, *, rounds: int, rate: float, steps: int, seed: int
) -> float:
    """The mean accuracy of clients with models of their own, after some rounds."""
    rng, models = np.random.default_rng(seed), flat.start.expand(data.count, -1).clone()
    for number in range(rounds):
        trained = flat.stepped(models, data, rate, steps)
        mixed = mix(trained.numpy(), models.numpy(), number, rng)
        models = torch.from_numpy(mixed.astype(np.float32))
    return float(np.mean([flat.accuracy(model, data) for model in models]))


class Alone:
    """No exchange at all."""

    def __call__(self, trained: Floats, before: Floats, number: int, rng: Generator) -> Floats:
        del before, number, rng
        return trained


class Shatter:
    """Chunks of each model go to the neighbours of virtual nodes, in a random graph a chunk.

    Source: Biswas et al., "Noiseless privacy-preserving decentralized learning", 2025.
    """

    def __init__(self, chunks: int = 16, degree: int = 4) -> None:
        self._chunks, self._degree = chunks, degree
        self.near: list[tuple[Places, list[set[int]]]] = []
        """The coordinates of each chunk, and who had it from whom in the last round."""

    def __call__(self, trained: Floats, before: Floats, number: int, rng: Generator) -> Floats:
        del before, number
        mixed, chunks = trained.copy(), np.array_split(np.arange(trained.shape[1]), self._chunks)
        self.near = [(at, self._graph(len(trained), rng)) for at in chunks]
        for at, graph in self.near:
            for client, near in enumerate(graph):
                mixed[client, at] = trained[[client, *near]][:, at].mean(axis=0)
        return mixed

    def _graph(self, count: int, rng: Generator) -> list[set[int]]:
        """Sums of random rings, until each client has that many neighbours."""
        near: list[set[int]] = [set() for _ in range(count)]
        while min(map(len, near)) < min(self._degree, count - 1):
            order = rng.permutation(count).tolist()
            for one, other in zip(order, order[1:] + order[:1], strict=True):
                near[one].add(other)
                near[other].add(one)
        return near


class Ako:
    """Each round a client sends one part of its update to all others; what is left adds up.

    Source: Watcharapichat et al., "Ako: decentralised deep learning with partial gradient
    exchange", 2016.
    """

    def __init__(self, parts: int = 5) -> None:
        self._parts = parts
        self._left: Floats | None = None
        self.sent: dict[int, tuple[Places, Floats]] = {}
        """The coordinates and values that each client sent in the last round."""

    def __call__(self, trained: Floats, before: Floats, number: int, rng: Generator) -> Floats:
        del rng
        count, updates = len(trained), trained - before
        left = updates if self._left is None else self._left + updates
        mixed = before + updates / count
        part = np.arange(trained.shape[1]) * self._parts // trained.shape[1]
        for sender in range(count):
            at = np.flatnonzero(part == (number + sender) % self._parts)
            self.sent[sender] = at, left[sender, at]
            others = np.delete(np.arange(count), sender)
            mixed[np.ix_(others, at)] += left[sender, at] / count
            left[sender, at] = 0
        self._left = left
        return mixed.astype(np.float32)


class QDPSGD:
    """Q-DPSGD-1: models drawn to the quantized models of others, and a step, without noise.

    Source: Ding et al., "Differentially private and communication efficient collaborative
    learning", 2021.
    """

    def __init__(self, drawn: float = 0.5, levels: int = 7) -> None:
        self.drawn, self._levels = drawn, levels
        self.sent: Floats | None = None
        """The models that all sent to all in the last round, shape ``(n, M)``."""

    def __call__(self, trained: Floats, before: Floats, number: int, rng: Generator) -> Floats:
        del number
        count, gradients = len(trained), before - trained
        near = [rounded(model, self._levels, rng)[0] for model in before]
        self.sent = sent = np.stack(near)
        share = self.drawn / count
        kept = (1 - self.drawn + share) * before - share * sent
        mixed = kept + self.drawn * sent.mean(axis=0) - self.drawn * gradients
        return np.asarray(mixed, np.float32)


def rounded(values: Floats, levels: int, rng: Generator) -> tuple[Floats, Floats]:
    """QSGD: values rounded at random to steps of their bucket's largest, and each one's step."""
    padded = np.pad(values, (0, -values.size % BUCKET)).reshape(-1, BUCKET)
    scale = np.maximum(np.abs(padded).max(axis=1, keepdims=True), np.float32(1e-30))
    steps = padded / scale * levels
    low = np.floor(steps)
    near = (low + (rng.random(steps.shape) < steps - low)) * scale / levels
    step = np.broadcast_to(scale / levels, near.shape)
    cut = (np.asarray(each.reshape(-1)[: values.size], np.float32) for each in (near, step))
    return next(cut), next(cut)


class SDMDSGD:
    """SDM-DSGD: each client sends random coordinates of its step to the mean and to less loss.

    The step goes part of the way, and what is sent of it is scaled so that its mean is all of it.
    Clients hold the models of all others by what these sent. Here each is the neighbour of all.

    Source: Zhang et al., "Private and communication-efficient edge learning: a sparse differential
    Gaussian-masking distributed SGD approach", 2020.
    """

    def __init__(self, rate: float = 1.0, kept: float = 0.2, drawn: float = 0.2) -> None:
        self.drawn, self._rate, self._kept = drawn, rate, kept
        self.sent: dict[int, tuple[Places, Floats]] = {}
        """The coordinates and values, before they are scaled, of each client's last message."""

    def __call__(self, trained: Floats, before: Floats, number: int, rng: Generator) -> Floats:
        del number
        towards = before.mean(axis=0) - before + np.float32(self._rate) * (trained - before)
        steps, mixed = np.float32(self.drawn) * towards, before.copy()
        for sender, step in enumerate(steps):
            at = np.flatnonzero(rng.random(len(step)) < self._kept)
            self.sent[sender] = at, step[at]
            mixed[sender, at] += step[at] / np.float32(self._kept)
        return mixed


class DPSRM:
    """DP-SRM: a mean that keeps a part of itself, so that only what is new in it needs noise.

    Each client clips its update less the kept part of its last one. They are summed in secret, and
    noise in proportion to the norm is added once. Batches are the whole data of a client here.

    Source: Wang et al., "Efficient privacy-preserving stochastic nonconvex optimization", 2023.

    Attributes:
        kept: the part.
        new: what the last round added to it, with its noise.
    """

    def __init__(self, sigma: float, clip: float, seed: int, kept: float = 0.7) -> None:
        self.kept, self._clip, self._sigma = kept, clip, sigma
        self._rng = np.random.default_rng(seed)
        self._last: Floats | None = None
        self._mean: Floats | None = None
        self.new = np.zeros(0, np.float32)

    def __call__(self, updates: Floats) -> Floats:
        """The mean after the clients' updates of a round, shape ``(n, M)``."""
        fresh, clip = updates, self._clip
        if self._last is not None:
            fresh, clip = updates - np.float32(self.kept) * self._last, clip * (1 - self.kept)
        norms = np.linalg.norm(fresh, axis=1, keepdims=True)
        clipped = fresh * np.minimum(1, clip / norms)
        noise = self._sigma * clip / len(updates) * self._rng.standard_normal(updates.shape[1])
        self.new = (clipped.mean(axis=0) + noise).astype(np.float32)
        kept = 0 if self._mean is None else np.float32(self.kept) * self._mean
        self._last, self._mean = updates, np.asarray(self.new + kept, np.float32)
        return self._mean
