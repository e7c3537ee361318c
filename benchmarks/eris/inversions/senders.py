"""What each method shows its receiver of the gradient of one client, and of how it was made.

All of it is of one round, in which each client has one sample and all start from the same weights.
In that round CDP-SGD sends what SoteriaFL sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.eris.baselines import DPSRM, noised, pruned, rounded
from benchmarks.eris.inversions.shards import seen_places
from benchmarks.eris.leakage.receivers import Exchange, OfAko, OfQDPSGD, OfShatter
from studies.attacks.knowledge import (
    Mismatch,
    between,
    clipped,
    larger_unseen,
    matching,
    smaller_unseen,
)

__all__ = ["CLIENTS", "SENDERS", "Sender", "Sight"]

CLIENTS: Final = 10

RATE: Final = 0.5
"""Of the step that peers see."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a receiver can hold the gradient of its guess against.

    Attributes:
        values: how many numbers it got.
        plain: the mismatch of who takes them for the gradient's.
        knowing: of who knows how they were made; None where that is no more.
        error: the mismatch of the truth that the best of both expects.
        summed: whether they are of the mean over all clients.
        clip: the norm to which clients' gradients were cut before that; None for whole ones.
    """

    values: int
    plain: Mismatch
    knowing: Mismatch | None = None
    error: float = 0.0
    summed: bool = False
    clip: float | None = None


See = Callable[[Tensor, int], Sight]
"""From the gradients of all clients, shape ``(n, M)``, and a seed; the first is attacked."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A method with its strength, and what it shows."""

    name: str
    see: See


def _values(
    values: Tensor, at: Tensor, knowing: Mismatch | None = None, error: float = 0.0
) -> Sight:
    return Sight(len(at), matching(values, at), knowing, error)


def _everything(values: Tensor) -> Tensor:
    return torch.arange(len(values))


def _quantized(gradients: Tensor, seed: int, *, levels: int) -> Sight:
    """QSGD: who knows it weighs each value by its bucket's step."""
    values, steps = map(
        torch.from_numpy, rounded(gradients[0].numpy(), levels, np.random.default_rng(seed))
    )
    at, power = _everything(values), float((values / steps).square().sum())
    return _values(values, at, matching(values, at, steps), len(at) / 6 / power)


def _uniform(gradients: Tensor, _seed: int, *, levels: int) -> Sight:
    """The nearest of some steps from the least to the largest value: half a step off at most."""
    gradient = gradients[0]
    least, step = gradient.min(), (gradient.max() - gradient.min()) / (levels - 1)
    values, at = least + step * ((gradient - least) / step).round(), _everything(gradient)
    return _values(values, at, between(values - step / 2, values + step / 2, at))


def _largest(gradients: Tensor, _seed: int, *, withheld: float) -> Sight:
    gradient = gradients[0]
    at = gradient.abs().topk(round(len(gradient) * (1 - withheld))).indices
    return _values(gradient[at], at, smaller_unseen(gradient[at], at))


def _pruned(gradients: Tensor, _seed: int, *, withheld: float) -> Sight:
    values = pruned(lambda all_: all_, withheld)(gradients[:1])[0]
    at = values.nonzero().ravel()
    return _values(values[at], at, larger_unseen(values[at], at))


def _noised(
    gradients: Tensor, seed: int, *, clip: float, sigma: float, shards: int = 1, one_in: int = 1
) -> Sight:
    values = noised(lambda all_: all_, clip, sigma, seed)(gradients[:1])[0]
    at = seen_places(len(values), shards, one_in, seed)
    error = len(at) * (clip * sigma) ** 2 / float(values[at].square().sum())
    return _values(values[at], at, clipped(values[at], at, clip), error)


def _shard(gradients: Tensor, seed: int, *, shards: int, one_in: int = 1) -> Sight:
    at = seen_places(gradients.shape[1], shards, one_in, seed)
    return _values(gradients[0, at], at)


def _summed(gradients: Tensor, seed: int, *, shards: int) -> Sight:
    at = seen_places(gradients.shape[1], shards, 1, seed)
    return Sight(len(at), matching(gradients.mean(0)[at], at), summed=True)


def _new_sum(gradients: Tensor, seed: int, *, clip: float, sigma: float) -> Sight:
    """DP-SRM's first round, in which all of the sum is new."""
    values = torch.from_numpy(DPSRM(sigma, clip, seed)(gradients.numpy()))
    at, noise = _everything(values), clip * sigma / len(gradients)
    match, error = matching(values, at), len(at) * noise**2 / float(values.square().sum())
    return Sight(len(at), match, match, error, summed=True, clip=clip)


def _peer(
    gradients: Tensor, seed: int, *, start: Callable[[int], Exchange], rounds: int, share: float
) -> Sight:
    """A step of a client, followed by rounds in which nobody moves."""
    exchange, models = start(seed), torch.zeros_like(gradients)
    for number in range(rounds):
        step = -RATE * gradients if number == 0 else torch.zeros_like(gradients)
        models = exchange(models, step, number)
    seen = [each for each in exchange.seen if each.sender == 0][-1]
    return _values(seen.values / (-RATE * share), seen.at)


def _random(gradients: Tensor, seed: int) -> Sight:
    """Noise of the gradient's size."""
    drawn = torch.randn(gradients.shape[1], generator=torch.Generator().manual_seed(seed))
    return _values(drawn * gradients[0].norm() / drawn.norm(), _everything(drawn))


def _senders() -> Iterator[Sender]:
    yield Sender("FedAvg", partial(_shard, shards=1))
    for levels in (127, 16, 4):
        yield Sender(f"QSGD, {levels} levels", partial(_quantized, levels=levels))
    for levels in (16, 4):
        yield Sender(f"uniform, {levels} levels", partial(_uniform, levels=levels))
    for share in (0.9, 0.98, 0.99):
        yield Sender(f"Top-k, {share:.0%} withheld", partial(_largest, withheld=share))
    for clip, sigma in ((10.0, 1e-4), (1.0, 1e-4), (1.0, 1e-3), (1.0, 1e-2)):
        name = f"DP-SGD, clip {clip:g}, sigma = {sigma:g}"
        yield Sender(name, partial(_noised, clip=clip, sigma=sigma))
    for sigma in (0.03, 0.1):
        yield Sender(f"LDP, sigma = {sigma:g}", partial(_noised, clip=1.0, sigma=sigma))
    for share in (0.01, 0.1):
        yield Sender(f"PriPrune, {share:.0%}", partial(_pruned, withheld=share))
    for sigma in (0.0, 0.01):
        name = f"SoteriaFL, c = 20, sigma = {sigma:g}"
        yield Sender(name, partial(_noised, clip=1.0, sigma=sigma, one_in=20))
    for sigma in (0.0, 0.03):
        name = f"SDM-DSGD, c = 5, sigma = {sigma:g}"
        yield Sender(name, partial(_noised, clip=1.0, sigma=sigma, one_in=5))
    for sigma in (0.01, 1.0):
        name = f"DP-SRM, sums of {CLIENTS}, sigma = {sigma:g} of the sum"
        yield Sender(name, partial(_new_sum, clip=1.0, sigma=sigma))
    yield Sender(
        "Shatter, 16 chunks, 4 neighbours", partial(_peer, start=OfShatter, rounds=1, share=1)
    )
    yield Sender("Ako, 5 parts", partial(_peer, start=OfAko, rounds=1, share=1))
    yield Sender(
        "Q-DPSGD-1, 7 levels, no noise", partial(_peer, start=OfQDPSGD, rounds=2, share=0.5)
    )
    for shards, one_in in ((2, 1), (10, 1), (50, 1), (2, 16)):
        thinned = f", c = {one_in}" if one_in > 1 else ""
        yield Sender(f"ERIS, A = {shards}{thinned}", partial(_shard, shards=shards, one_in=one_in))
    sigma = 0.01
    noisy = partial(_noised, clip=1.0, sigma=sigma, shards=10)
    yield Sender(f"ERIS, A = 10, sigma = {sigma:g}", noisy)
    for shards in (1, 10):
        name = f"ERIS, concealed, sums of {CLIENTS}, A = {shards}"
        yield Sender(name, partial(_summed, shards=shards))
    yield Sender("noise instead of a gradient", _random)


SENDERS: Final = tuple(_senders())
