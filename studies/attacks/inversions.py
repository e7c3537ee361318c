"""Attack the inputs of a simulated round: a row for each shape of the round and attack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from modelkin.torch.privacy.simulation import Round, Samples, View, with_global
from studies.attacks.reconstruction import Reconstruction

__all__ = ["InversionRow", "inversions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InversionRow:
    """One attack on inputs, where each client trains on a single sample.

    Attributes:
        shards: A.
        one_in: c.
        conceal: whether the aggregator has the sum over all clients alone.
        attack: ``"matching"`` (iDLG on what is seen) or ``"completion"`` (of rank one).
        psnr: the median in dB; 120 is exact.
        ssim: the median, 1 for equal images; None for inputs that are not images.
        global_psnr: of the same attack by any client, which has two global models in a row.
        global_ssim: likewise.
        chance_psnr: of the mean of samples like these, a guess without any gradient.
        chance_ssim: likewise.
    """

    shards: int
    one_in: int
    conceal: bool
    attack: str
    psnr: float
    ssim: float | None
    global_psnr: float
    global_ssim: float | None
    chance_psnr: float
    chance_ssim: float | None


@torch.inference_mode(False)
def inversions(
    round_: Round,
    prior: Samples,
    views: Sequence[View],
    *,
    examples: int = 4,
    steps: int = 250,
    seed: int = 1,
) -> Iterator[InversionRow]:
    """Attack the inputs of a simulated round by the gradients of single samples.

    Args:
        round_: its clients and their first samples, which must be real numbers.
        prior: samples that the attacker has.
        views: the shapes to attack.
        examples: clients whose single sample is reconstructed where each is seen alone.
        steps: of each search for inputs.
        seed: of the partition and of the starts.
    """
    attacks = Reconstruction(round_, prior, examples=examples, steps=steps, seed=seed)
    chance = attacks.chance()
    found = with_global(views, attacks.of)
    for view in views:
        for attack, quality in found[view].items():
            shown = found[view.of_global_model][attack]
            yield InversionRow(
                shards=view.shards,
                one_in=view.one_in,
                conceal=view.conceal,
                attack=attack,
                psnr=quality.psnr,
                ssim=quality.ssim,
                global_psnr=shown.psnr,
                global_ssim=shown.ssim,
                chance_psnr=chance.psnr,
                chance_ssim=chance.ssim,
            )
