"""Merges of models of one layout, as hubs make them, and the shares that lines tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from modelkin.core.fingerprints.merges import merge_of
from studies.cells import Figures
from studies.lines.comparing import fingerprints_of
from studies.lines.trained import Trained
from studies.lines.zoo import Tensors

__all__ = ["linear", "merge_figures", "merges"]

_SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
_KEPT: Final = 0.3
_DROPPED: Final = 0.5


def linear(first: Tensors, second: Tensors, share: float) -> Tensors:
    """Their average, of which the first has a share."""
    return {k: (share * v + (1 - share) * second[k]).astype(np.float32) for k, v in first.items()}


def _slerp(first: Tensors, second: Tensors, share: float) -> Tensors:
    """Tensor by tensor on the great circle between them; the first has a share of the angle."""
    tensors = Tensors()
    for name, values in first.items():
        a, b = values.astype(np.float64).ravel(), second[name].astype(np.float64).ravel()
        cosine = a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-30)
        angle = np.arccos(np.clip(cosine, -1, 1))
        weights = [share, 1 - share]
        if angle > 1e-4:
            weights = [float(np.sin(weight * angle) / np.sin(angle)) for weight in weights]
        mixed = weights[0] * a + weights[1] * b
        tensors[name] = mixed.reshape(values.shape).astype(np.float32)
    return tensors


def _ties(base: Tensors, tuned: Sequence[Tensors]) -> Tensors:
    """TIES: the largest changes of each, where they agree on the sign."""
    tensors = Tensors()
    for name, values in base.items():
        changes = np.stack([each[name] - values for each in tuned])
        magnitudes = np.abs(changes)
        least = np.quantile(
            magnitudes, 1 - _KEPT, axis=tuple(range(1, changes.ndim)), keepdims=True
        )
        changes = np.where(magnitudes >= least, changes, 0)
        agreed = np.where(np.sign(changes) == np.sign(changes.sum(axis=0)), changes, 0)
        count = np.maximum(np.count_nonzero(agreed, axis=0), 1)
        tensors[name] = (values + agreed.sum(axis=0) / count).astype(np.float32)
    return tensors


def _dare(base: Tensors, tuned: Sequence[Tensors], draw: np.random.Generator) -> Tensors:
    """DARE: half of each one's changes, twice as large."""
    tensors = Tensors()
    for name, values in base.items():
        changes = [
            (each[name] - values) * (draw.random(values.shape) > _DROPPED) / (1 - _DROPPED)
            for each in tuned
        ]
        tensors[name] = (values + sum(changes) / len(tuned)).astype(np.float32)
    return tensors


def merges(base: Tensors, first: Tensors, second: Tensors) -> Iterator[tuple[str, Tensors, float]]:
    """Merges of two fine-tunes: what was done, the weights, and the share of the first."""
    for share in _SHARES:
        yield f"linear {share}", linear(first, second, share), share
    for share in (0.3, 0.5):
        yield f"SLERP {share}", _slerp(first, second, share), share
    yield "TIES", _ties(base, [first, second]), 0.5
    yield "DARE", _dare(base, [first, second], np.random.default_rng(6)), 0.5


def merge_figures(trained: Trained) -> Figures:
    """The share of the first of two models that lines tell, by all keys and by default."""
    base = trained.base()
    first, second = (trained.fine_tuned(seed).tensors for seed in (11, 12))
    children = {each.name: each.tensors for each in trained.children()}
    cases = {
        name: (first, second, tensors, share)
        for name, tensors, share in merges(base, first, second)
    }
    for name, other in (("base", base), ("LoRA", children["LoRA"])):
        for share in (0.2, 0.5, 0.8):
            merged = linear(first, other, share)
            cases[f"linear {share}, with the {name}"] = (first, other, merged, share)
    cases["no merge: the base"] = (first, second, base, 0.5)
    cases["no merge: a light sibling"] = (first, second, children["light"], 0.5)
    return {name: _told(*case) for name, case in cases.items()}


def _told(first: Tensors, second: Tensors, merged: Tensors, share: float) -> dict[str, float]:
    made = [fingerprints_of(each) for each in (merged, first, second)]
    figures = {"share": share}
    for title, views in (
        ("", [each.usual for each in made]),
        (" by all keys", [each.whole for each in made]),
    ):
        answer = merge_of(*views)
        if answer is not None:
            figures[f"told{title}"] = answer.share
            figures[f"stretch{title}"] = answer.stretch
            figures[f"average{title}"] = float(answer.is_average)
    return figures
