"""Kinds of importance beside the empirical Fisher's mean: robust estimators, and other Fishers.

Sources: the paper's remark C.4 names robust estimators. The improved empirical Fisher is that of
Wu et al., "An improved empirical Fisher approximation for natural gradient descent", NeurIPS 2024,
equation 14: the squares of a sample are divided by the squared length of its gradient by logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from demo.cohort import Cohort, stack
from modelkin import select_support
from studies.cells import Figures
from studies.federations import Federation, Floats
from studies.hub import Hub
from studies.measures import Oracle, others, ranking
from studies.settings import Setting, grid

__all__ = [
    "BRIGHT",
    "CLEAN",
    "COMMON",
    "DATA",
    "EMPIRICAL",
    "IMPROVED",
    "KINDS",
    "MISLABELLED",
    "NAME",
    "TRAINED",
    "TRUE",
    "clipped",
    "figures",
    "median_of_means",
    "row",
    "settings",
    "squares_of",
    "trained",
    "trimmed_mean",
    "variants",
]

Rows = npt.NDArray[np.float32]
Order = npt.NDArray[np.int64]
_Key = tuple[str, str]
"""The data and the kind of an importance."""

NAME: Final = "importances"
_EPOCHS: Final = 5
COMMON: Final = "before training"
TRAINED: Final = f"after {_EPOCHS} epochs"
CLEAN: Final = "as they are"
MISLABELLED: Final = "a tenth mislabelled"
BRIGHT: Final = "a tenth overexposed"
DATA: Final = (CLEAN, MISLABELLED, BRIGHT)
EMPIRICAL: Final = "empirical Fisher"
TRUE: Final = "true Fisher"
_MEDIAN, _TRIMMED, _CLIPPED = "median of means", "trimmed mean", "clipped gradients"
_DRAWN: Final = "true Fisher, one label drawn"
IMPROVED: Final = "improved empirical Fisher"
KINDS: Final = (EMPIRICAL, _MEDIAN, _TRIMMED, _CLIPPED, TRUE, _DRAWN, IMPROVED)

_SEEDS: Final = 5
_BLOCKS: Final = 9
_CUT: Final = 1 / 8
"""At each end of a trimmed mean."""
_CORRUPTED: Final = 0.1
_BRIGHTER: Final = 10
_RESAMPLES: Final = 8
_WATCHED: Final = 4
"""Clients whose stability is estimated."""
_NEAREST: Final = 8
_FLOATS: Final = 2**22
"""Derivatives of logits that are held at once."""
_TINY: Final = 1e-30


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits."""
    return grid(seeds[:_SEEDS], data, network)


def row(weights: str, data: str, kind: str) -> str:
    """The name of a row."""
    return f"{weights}, {data}: {kind}"


def figures(setting: Setting, _: Hub) -> Figures:
    """Recall, stability and overlaps of supports of each kind, also where samples are corrupted.

    Kinds are compared with each other, which the service refuses; so S is computed here.
    """
    dealt = Federation.of(setting)
    oracle = Oracle(dealt.mixes)
    found: Figures = {}
    for weights, federation in ((COMMON, dealt), (TRAINED, trained(dealt))):
        importances, stabilities = _importances(federation)
        inside = {key: _inside(rows) for key, rows in importances.items()}
        for (data, kind), own in inside.items():
            empirical = _overlaps(own, inside[data, EMPIRICAL])
            found[row(weights, data, kind)] = {
                "R@8": oracle.recall(ranking(_overlaps(own, own)), _NEAREST),
                "rho": stabilities[data, kind],
                "S with clean": float(np.diag(_overlaps(own, inside[CLEAN, kind])).mean()),
                "S with empirical": float(np.diag(empirical).mean()),
                "R@8 among empirical": oracle.recall(ranking(empirical), _NEAREST),
            }
    return found


def trained(federation: Federation) -> Federation:
    """The same at common weights that were trained on the samples of all clients."""
    samples, labels = federation.samples.flatten(0, 1), federation.labels.flatten()
    weights = stack([federation.model])
    generator = torch.Generator().manual_seed(federation.setting.seed)
    Cohort(federation.model, samples[None], labels[None]).train(weights, _EPOCHS, generator)
    return federation.at(weights, 0)


def median_of_means(squares: Rows, blocks: int = _BLOCKS) -> Rows:
    """The median over blocks of samples, in their order, of the mean of each, ``(M,)``."""
    means = [block.mean(axis=0) for block in np.array_split(squares, min(blocks, len(squares)))]
    ordered = np.sort(means, axis=0)
    middle = ordered[(len(means) - 1) // 2 : len(means) // 2 + 1]
    return np.asarray(middle.mean(axis=0), np.float32)


def trimmed_mean(squares: Rows, cut: float = _CUT) -> Rows:
    """The mean of each parameter's squares without a share of the largest and least, ``(M,)``."""
    count = int(cut * len(squares))
    ordered = np.sort(squares, axis=0)[count : len(squares) - count]
    return np.asarray(ordered.mean(axis=0), np.float32)


def clipped(squares: Rows) -> Rows:
    """The mean over samples, each of whose gradients is cut to the median length, ``(M,)``."""
    lengths = squares.sum(axis=1)
    weights = np.minimum(1, np.median(lengths) / np.maximum(lengths, _TINY))
    return np.asarray(weights.astype(np.float32) @ squares / len(squares), np.float32)


def _mean(squares: Rows) -> Rows:
    return np.asarray(squares.mean(axis=0), np.float32)


_ROBUST: Final[dict[str, Callable[[Rows], Rows]]] = {
    _MEDIAN: median_of_means,
    _TRIMMED: trimmed_mean,
    _CLIPPED: clipped,
}
"""Of the squares of the empirical Fisher; all other kinds are plain means of their own."""


def squares_of(model: nn.Module, samples: Tensor, labels: Tensor, seed: int) -> dict[str, Rows]:
    """What each kind takes a mean of: a number for each sample and parameter, ``(n, M)``.

    Args:
        model: with logits as its outputs.
        samples: ``(n, ...)``.
        labels: ``(n,)``, at which the true Fisher does not look.
        seed: of the labels that are drawn from the model.
    """
    with torch.no_grad():
        shares = torch.softmax(model(samples), dim=1)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(shares, 1, generator=generator)[:, 0]
    found, start = [], 0
    for slopes in _slopes(model, samples, shares.shape[1]):
        own = slice(start, start + len(slopes))
        found.append(_squares(slopes, shares[own], labels[own], drawn[own]))
        start += len(slopes)
    return {kind: torch.cat([each[kind] for each in found]).numpy() for kind in found[0]}


def _squares(slopes: Tensor, shares: Tensor, labels: Tensor, drawn: Tensor) -> dict[str, Tensor]:
    """Of some samples: a gradient is the mean of slopes over labels of the model, less its own."""
    centred = slopes - torch.einsum("nc,ncm->nm", shares, slopes)[:, None]
    each = torch.arange(len(labels))
    squares = centred[each, labels] ** 2
    errors = shares.clone()
    errors[each, labels] -= 1
    lengths = errors.square().sum(dim=1).clamp_min(_TINY)
    return {
        EMPIRICAL: squares,
        TRUE: torch.einsum("nc,ncm->nm", shares, centred**2),
        _DRAWN: centred[each, drawn] ** 2,
        IMPROVED: squares / lengths[:, None],
    }


def _slopes(model: nn.Module, samples: Tensor, classes: int) -> Iterator[Tensor]:
    """The derivatives of all logits by all parameters, ``(some samples, classes, M)``."""
    weights = {name: values.detach() for name, values in model.named_parameters()}

    def logits(values: dict[str, Tensor], sample: Tensor) -> Tensor:
        found: Tensor = functional_call(model, values, (sample[None],))[0]
        return found

    derived = vmap(jacrev(logits), (None, 0))
    size = classes * sum(values.numel() for values in weights.values())
    for some in samples.split(max(1, _FLOATS // size)):
        slopes = derived(weights, some)
        yield torch.cat([slopes[name].flatten(2) for name in weights], dim=2)


def variants(
    samples: Tensor, labels: Tensor, classes: int, generator: np.random.Generator
) -> tuple[Tensor, Tensor, dict[str, Order]]:
    """A client's samples and labels with changed copies of some, and which each data set has.

    A tenth, at random, has another label, or samples ten times as large. Each data set is in random
    order, for blocks.
    """
    size = len(labels)
    picked, order = generator.permutation(size), generator.permutation(size)
    some = torch.as_tensor(picked[: round(_CORRUPTED * size)])
    moved = torch.as_tensor(generator.integers(1, classes, len(some)))
    copies = np.arange(size, size + len(some))
    rest = picked[len(some) :]
    at = {
        CLEAN: picked,
        MISLABELLED: np.concatenate([copies, rest]),
        BRIGHT: np.concatenate([copies + len(some), rest]),
    }
    return (
        torch.cat([samples, samples[some], samples[some] * _BRIGHTER]),
        torch.cat([labels, (labels[some] + moved) % classes, labels[some]]),
        {data: own[order] for data, own in at.items()},
    )


def _importances(federation: Federation) -> tuple[dict[_Key, Rows], dict[_Key, float]]:
    """The importance ``(N, M)`` of all clients, and the mean stability of the supports of some."""
    rows: dict[_Key, list[Rows]] = {key: [] for key in product(DATA, KINDS)}
    stable: dict[_Key, list[float]] = {key: [] for key in rows}
    seed, classes = federation.setting.seed, federation.mixes.shape[1]
    generator = np.random.default_rng(seed)
    clients = zip(federation.samples, federation.labels, strict=True)
    for client, dealt in enumerate(clients):
        samples, labels, at = variants(*dealt, classes, generator)
        squares = squares_of(federation.model, samples, labels, seed + client)
        draws = generator.integers(len(dealt[1]), size=(_RESAMPLES, len(dealt[1])))
        for data, kind in rows:
            own, mean = squares.get(kind, squares[EMPIRICAL])[at[data]], _ROBUST.get(kind, _mean)
            rows[data, kind].append(mean(own))
            if client < _WATCHED:
                inside = _inside(np.stack([mean(own[draw]) for draw in draws]))
                stable[data, kind].append(float(others(_overlaps(inside, inside)).mean()))
    return (
        {key: np.stack(each) for key, each in rows.items()},
        {key: float(np.mean(each)) for key, each in stable.items()},
    )


def _inside(importances: Rows) -> Floats:
    """1 where a parameter is in the support of K = 10%, else 0, ``(rows, M)``."""
    inside = np.zeros(importances.shape)
    for own, values in zip(inside, importances, strict=True):
        own[select_support(values, k=round(0.1 * len(values))).indices] = 1
    return inside


def _overlaps(ours: Floats, theirs: Floats) -> Floats:
    """S of each of ours with each of theirs."""
    sizes = ours.sum(axis=1)[:, None] + theirs.sum(axis=1)
    return np.asarray(2 * (ours @ theirs.T) / sizes)
