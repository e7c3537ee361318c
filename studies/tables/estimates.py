"""Estimates of a support: resamples, averages over steps, signatures and buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from demo.cohort import Cohort, Weights
from modelkin import Banding, select_support
from modelkin.core.estimators import jaccard_of, standard_error
from modelkin.core.sketching.banding import collision_probability
from modelkin.torch import fisher_resamples
from studies.cells import Figures
from studies.federations import RATE_B, Federation, Floats, flat
from studies.hub import Hub
from studies.measures import Oracle, others, ranking
from studies.settings import Setting, grid
from studies.tables.retrieval import EPOCHS, supports_of

__all__ = ["BANDINGS", "NAME", "PER_STEP", "RESAMPLES", "VALUES", "figures", "settings"]

NAME: Final = "estimates"
RESAMPLES: Final = (2, 4, 8, 16)
VALUES: Final = (16, 64, 256, 1024)
BANDINGS: Final = (Banding(64, 2), Banding(64, 4), Banding(32, 8))
"""The bandings of signatures of 256 values."""

_SEEDS: Final = 5
_ALL: Final = 64
"""Resamples whose stability counts as the true one."""
_WATCHED: Final = 8
"""Clients whose stability is estimated."""
_PER_BATCH: Final = 4
PER_STEP: Final = (0.8, 0.95, 0.99)
_PER_EPOCH: Final = 0.8
"""The paper's."""
_NEAREST: Final = 8


def settings(seeds: Sequence[int], data: str, network: str) -> Iterator[Setting]:
    """Both Dirichlet splits."""
    return grid(seeds[:_SEEDS], data, network)


def figures(setting: Setting, hub: Hub) -> Figures:
    """The error of a stability by r, and recall by averages, by h and by bandings."""
    federation = Federation.of(setting)
    return {
        **dict(_stabilities(federation)),
        **dict(_averages(federation, hub)),
        **dict(_signatures(federation, hub)),
        **dict(_candidates(federation, hub)),
    }


def _stabilities(federation: Federation) -> Iterator[tuple[str, dict[str, float]]]:
    """How far rho of r resamples is from that of many, beside the paper's bound at 95%."""
    overlaps = [_overlaps(federation, client) for client in range(_WATCHED)]
    true = [_rho(each, slice(None)) for each in overlaps]
    yield "stability", {"rho": float(np.mean(true))}
    for r in RESAMPLES:
        errors = [
            _rho(each, slice(first, first + r)) - expected
            for each, expected in zip(overlaps, true, strict=True)
            for first in range(0, _ALL, r)
        ]
        bound = np.sqrt(np.log(2 / 0.05) / (2 * r))
        yield (
            f"rho of {r} resamples",
            {
                "RMSE": float(np.sqrt(np.square(errors).mean())),
                "95% of errors below": float(np.quantile(np.abs(errors), 0.95)),
                "Proposition D.2": float(bound),
            },
        )


def _overlaps(federation: Federation, client: int) -> Floats:
    """S of all pairs of the resamples of one client."""
    dataset = TensorDataset(federation.samples[client], federation.labels[client])
    torch.manual_seed(federation.setting.seed)
    loader = DataLoader(dataset, batch_size=_PER_BATCH, shuffle=True)
    _, rows = fisher_resamples(
        federation.model, cross_entropy, loader, resamples=_ALL, seed=federation.setting.seed
    )
    k = round(0.1 * rows.shape[1])
    inside = torch.zeros_like(rows)
    for row, own in zip(inside, rows, strict=True):
        row[torch.as_tensor(select_support(own.numpy(), k=k).indices.astype(np.int64))] = 1
    return np.asarray((inside @ inside.T / k).numpy(), np.float64)


def _rho(overlaps: Floats, own: slice) -> float:
    """Eq. 1."""
    return float(others(overlaps[own, own]).mean())


def _averages(federation: Federation, hub: Hub) -> Iterator[tuple[str, dict[str, float]]]:
    """R@8 by the average of squared gradients over eight local epochs, by its unit."""
    oracle = Oracle(federation.mixes)
    for number, (name, rows) in enumerate(_moments(federation).items()):
        supports = supports_of(federation, rows, "10%")
        space_name = f"{federation.setting.name}-average-{number}"
        with hub.space(space_name, supports, rows.shape[1]) as space:
            yield f"average, {name}", {"R@8": oracle.recall(space.order(), _NEAREST)}


def _moments(federation: Federation) -> dict[str, npt.NDArray[np.float32]]:
    """Averages of the squared gradients of batches, of each client, ``(N, M)``."""
    found = {f"{beta} a step": _zeros(federation) for beta in PER_STEP}
    epoch, by_epoch, plain = (_zeros(federation) for _ in range(3))
    steps = federation.labels.shape[1] // 10
    seen = 0

    def observe(gradients: Weights) -> None:
        nonlocal seen, epoch
        rows = flat(gradients).astype(np.float32) ** 2
        for beta in PER_STEP:
            mean = found[f"{beta} a step"]
            mean *= beta
            mean += (1 - beta) * rows
        np.add(plain, rows, out=plain)
        np.add(epoch, rows, out=epoch)
        seen += 1
        if seen % steps == 0:
            np.multiply(by_epoch, _PER_EPOCH, out=by_epoch)
            np.add(by_epoch, (1 - _PER_EPOCH) * epoch / steps, out=by_epoch)
            epoch[:] = 0

    cohort = Cohort(federation.model, federation.samples, federation.labels)
    generator = torch.Generator().manual_seed(federation.setting.seed)
    cohort.train(federation.start, EPOCHS, generator, rate=RATE_B, on_step=observe)
    return {**found, f"{_PER_EPOCH} an epoch": by_epoch, "of all steps alike": plain}


def _zeros(federation: Federation) -> npt.NDArray[np.float32]:
    return np.zeros(federation.importances.shape, np.float32)


def _signatures(federation: Federation, hub: Hub) -> Iterator[tuple[str, dict[str, float]]]:
    """R@8 and the error of S by h, beside what theory expects of it."""
    oracle, m = Oracle(federation.mixes), federation.importances.shape[1]
    supports = supports_of(federation, federation.importances, "10%")
    with hub.space(f"{federation.setting.name}-exact", supports, m) as space:
        exact = space.matrix()
    for h in VALUES:
        signatures = {name: each.signature(num_perm=h) for name, each in supports.items()}
        name = f"{federation.setting.name}-h{h}"
        with hub.space(name, signatures, m, num_perm=h) as space:
            estimates = space.matrix()
        expected = [standard_error(jaccard_of(s), h) ** 2 for s in others(exact).ravel()]
        yield (
            f"signature of {h}",
            {
                "R@8": oracle.recall(ranking(estimates), _NEAREST),
                "RMSE": float(np.sqrt(((others(estimates) - others(exact)) ** 2).mean())),
                "expected RMSE": float(np.sqrt(np.mean(expected))),
            },
        )


def _candidates(federation: Federation, hub: Hub) -> Iterator[tuple[str, dict[str, float]]]:
    """Models that share a bucket with one, as the service counts them and as Theorem E.3 has it."""
    m = federation.importances.shape[1]
    supports = supports_of(federation, federation.importances, "10%")
    for number, banding in enumerate(BANDINGS):
        name = f"{federation.setting.name}-bands-{number}"
        with hub.space(name, supports, m, banding=banding) as space:
            similarity = others(space.matrix())
            counted = space.candidates(_NEAREST)
        expected = [
            sum(collision_probability(jaccard_of(s), banding) for s in row) for row in similarity
        ]
        yield (
            str(banding),
            {
                "candidates": float(counted.mean()),
                "Theorem E.3": float(np.mean(expected)),
                "RMSE over clients": float(np.sqrt(np.mean((counted - expected) ** 2))),
            },
        )
