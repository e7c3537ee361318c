"""How near the inversions come to the clients' inputs, by what an aggregator sees."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from modelkin.torch.privacy.simulation import Round, Samples, View
from studies.attacks.completion import (
    InputLayer,
    complete,
    find_input_layer,
    row_ratios,
)
from studies.attacks.image_quality import psnr, ssim
from studies.attacks.inversion import invert

__all__ = ["Quality", "Reconstruction"]

MATCHING: Final = "matching"
COMPLETION: Final = "completion"


@dataclass(frozen=True, slots=True)
class Quality:
    """The median over the inputs that were attacked; of images SSIM too."""

    psnr: float
    ssim: float | None


class Reconstruction:
    """Attacks on the gradients of single samples: one of each client, alone or in a sum of all.

    Args:
        round_: its clients and their first samples.
        prior: samples that the attacker has; their mean is its guess without any gradient.
        examples: how many clients are attacked where each is seen alone.
        steps: of each search.
        seed: of the partition and of the starts.

    Attributes:
        gradients: of each client's sample, of shape ``(n, M)``.
    """

    def __init__(
        self, round_: Round, prior: Samples, *, examples: int, steps: int, seed: int
    ) -> None:
        self._network, self._firsts = round_.network, round_.firsts
        self._examples, self._steps, self._seed = examples, steps, seed
        self._range = (
            float(min(round_.firsts.inputs.min(), prior.inputs.min())),
            float(max(round_.firsts.inputs.max(), prior.inputs.max())),
        )
        self._prior = prior.inputs.mean(0)
        self._layer = find_input_layer(round_.network, round_.firsts.inputs[:1])
        self.gradients = torch.stack(
            [
                self._network.gradient(inputs[None], target[None])
                for inputs, target in zip(round_.firsts.inputs, round_.firsts.targets, strict=True)
            ]
        )

    @property
    def numbers(self) -> int:
        """How many numbers an input has."""
        return self._prior.numel()

    def chance(self) -> Quality:
        """The attacker's guess without any gradient: the mean of samples like these."""
        return self._quality([[self._prior] for _ in self._firsts.inputs], self._firsts.inputs)

    def of(self, view: View) -> dict[str, Quality]:
        """The quality by attack; without an attack that does not apply to the network."""
        attacked = self._sum if view.conceal else self._each
        found = {MATCHING: attacked(view, self._matched)}
        if self._layer is not None:
            found[COMPLETION] = attacked(view, self._completed)
        return found

    def _each(self, view: View, attack: Callable[..., list[list[Tensor]]]) -> Quality:
        guesses = []
        for client in range(min(self._examples, len(self.gradients))):
            at = self._positions(view, client % view.shards)
            one = slice(client, client + 1)
            guesses += attack(self.gradients[client][at], at, self._firsts.targets[one])
        return self._quality(guesses, self._firsts.inputs)

    def _sum(self, view: View, attack: Callable[..., list[list[Tensor]]]) -> Quality:
        at = self._positions(view, 0)
        guesses = attack(self.gradients[:, at].mean(0), at, self._firsts.targets)
        return self._quality(guesses, self._firsts.inputs)

    def _positions(self, view: View, shard: int) -> Tensor:
        at = view.positions(self._network.size, shard, self._seed)
        return at.to(self.gradients.device)

    def _matched(self, seen: Tensor, at: Tensor, targets: Tensor) -> list[list[Tensor]]:
        """The guesses for each input: those that were searched under the same target."""
        shape = self._prior.shape
        found = invert(
            self._network,
            seen,
            at,
            targets,
            shape,
            self._range,
            steps=self._steps,
            seed=self._seed,
        )
        if found is None:
            return [[self._prior] for _ in targets]
        alike = [[torch.equal(target, other) for other in targets] for target in targets]
        return [[found[j] for j, same in enumerate(row) if same] for row in alike]

    def _completed(self, seen: Tensor, at: Tensor, targets: Tensor) -> list[list[Tensor]]:
        """One guess for a single sample; for a sum, the mixture's and each unit's for every one."""
        layer, prior = self._layer, self._prior.double().flatten()
        assert isinstance(layer, InputLayer)
        found = complete(layer, seen, at, prior)[None]
        if len(targets) > 1:
            found = torch.cat([found, row_ratios(layer, seen, at, prior)])
        shaped = found.clamp(*self._range).view(len(found), *self._prior.shape)
        return [list(shaped)] * len(targets)

    def _quality(self, guesses: list[list[Tensor]], truths: Tensor) -> Quality:
        """The medians over the inputs, each with the best of its guesses."""
        value_range = self._range[1] - self._range[0] or 1.0
        ratios, structures = [], []
        for options, truth in zip(guesses, truths, strict=False):
            best = max(options, key=lambda guess: psnr(guess, truth, value_range))
            ratios.append(psnr(best, truth, value_range))
            structures.append(ssim(best, truth, value_range))
        known = [value for value in structures if value is not None]
        return Quality(statistics.median(ratios), statistics.median(known) if known else None)
