"""The methods whose receivers are attacked: what is trained, and who looks at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.eris.baselines import DPSRM, Local, noised, pruned
from benchmarks.eris.convergence import ALL, Way
from benchmarks.eris.leakage.receivers import (
    SUM,
    Averaged,
    Exchange,
    OfAko,
    OfDPSRM,
    OfQDPSGD,
    OfSDMDSGD,
    OfShatter,
)

__all__ = ["GLOBAL", "TRAININGS", "Start", "Training", "with_any"]

CLIP = 1.0
SIGMAS: Final = {0.03: 1.0, 0.1: 0.7, 0.3: 0.5, 1.0: 0.25}
"""Noises of all values, and the most accurate server rate of 1, 0.7, 0.5 and 0.25 with each."""

SOTERIA_SIGMAS: Final = {0.0: 1.0, 0.01: 1.0, 0.03: 0.7, 0.1: 0.5, 0.3: 0.5}
CDP_SIGMAS: Final = {0.01: 1.0, 0.03: 0.7, 0.1: 0.5}
SDM_SIGMAS: Final = {0.0: 4.0, 0.03: 2.0}
DPSRM_SIGMAS: Final = {1.0: 0.5, 3.0: 0.25}
THINNED_RATES: Final = {
    "one": {0.0: 0.7, 0.03: 0.7, 0.1: 0.5},
    "own": {0.0: 1.0, 0.03: 0.7, 0.1: 0.25},
}
GLOBAL = "global models alone"

Start = Callable[[int, int, int], Exchange]
"""A method for M, n and a seed."""


Views = dict[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True)
class Training:
    """A training, and the methods that it is by who looks at it.

    Attributes:
        start: the exchange.
        views: of each method's receiver, by family and name. All have their models too.
    """

    start: Start
    views: Views


def _of_noise(sigma: float) -> Training:
    """All values, with noise of sigma: to a server, in shards, and in sums."""
    noise = _noise(sigma)
    return Training(
        _averaged((1, 50), sigma=sigma, rate=SIGMAS[sigma]),
        {
            ("LDP", f"LDP{noise}"): ("A = 1",),
            ("ERIS, one of 50 shards", f"ERIS, A = 50{noise}"): ("A = 50", SUM),
            ("ERIS, sums", f"ERIS, sums{noise}"): (SUM,),
        },
    )


def _noise(sigma: float) -> str:
    return f", sigma = {sigma:g}" if sigma else ""


def _averaged(
    shards: tuple[int, ...],
    way: Way = ALL,
    *,
    rate: float = 1.0,
    sigma: float = 0.0,
    withheld: float = 0.0,
    sums: bool = True,
) -> Start:
    def start(size: int, clients: int, seed: int) -> Exchange:
        change = _changed(sigma, seed)
        if withheld:
            change = pruned(change, withheld)
        return Averaged(
            size, clients, shards, change=change, way=way, rate=rate, sums=sums, seed=seed
        )

    return start


def _changed(sigma: float, seed: int) -> Local:
    """Updates as they are, or clipped and with noise."""
    return noised(lambda updates: updates, CLIP, sigma, seed) if sigma else lambda updates: updates


def _thinned(masks: str, words: str, shards: int, sigma: float = 0.0) -> Training:
    family, noise = f"c = 16, {words}", _noise(sigma)
    rate = THINNED_RATES[masks][sigma]
    start = _averaged((shards,), Way(16, masks), rate=rate, sigma=sigma)
    name = f"ERIS, A = {shards}, {family}{noise}"
    views: Views = {(f"ERIS, {family}", name): (f"A = {shards}", SUM)}
    if masks == "one" and (shards == 10 or sigma):
        views["ERIS, sums, c = 16", f"ERIS, sums, {family}{noise}"] = (SUM,)
    return Training(start, views)


def _compressed(family: str, c: int, sigma: float, rate: float, *, shift: bool) -> Training:
    """One value in c of each client's own, with noise, to a server."""
    way = Way(c, "own", shift)
    start = _averaged((1,), way, rate=rate, sigma=sigma, sums=False)
    return Training(start, {(family, f"{family}, c = {c}, sigma = {sigma:g}"): ("A = 1",)})


def _dp_srm(sigma: float) -> Training:
    def start(size: int, clients: int, seed: int) -> Exchange:
        del size, clients
        return OfDPSRM(DPSRM_SIGMAS[sigma], DPSRM(sigma, CLIP, seed))

    return Training(start, {("DP-SRM", f"DP-SRM, sigma = {sigma:g} of the sum"): (SUM,)})


def _sdm_dsgd(sigma: float) -> Training:
    def start(size: int, clients: int, seed: int) -> Exchange:
        del size, clients
        return OfSDMDSGD(seed, _changed(sigma, seed), SDM_SIGMAS[sigma])

    return Training(start, {("SDM-DSGD", f"SDM-DSGD, c = 5, sigma = {sigma:g}"): ("peer",)})


def _q_dpsgd(sigma: float) -> Training:
    def start(size: int, clients: int, seed: int) -> Exchange:
        del size, clients
        return OfQDPSGD(seed, _changed(sigma, seed))

    words = f"sigma = {sigma:g}" if sigma else "no noise"
    return Training(start, {("Q-DPSGD-1", f"Q-DPSGD-1, 7 levels, {words}"): ("peer",)})


MASKS: Final = (("one", "one mask"), ("own", "own masks, shifts"))

TRAININGS: Final = (
    Training(
        _averaged((1, 10, 50)),
        {
            ("FedAvg", "FedAvg"): ("A = 1",),
            ("ERIS, one of 10 shards", "ERIS, A = 10"): ("A = 10", SUM),
            ("ERIS, one of 50 shards", "ERIS, A = 50"): ("A = 50", SUM),
            ("ERIS, sums", "ERIS, sums"): (SUM,),
            ("global models", GLOBAL): (),
        },
    ),
    *(_thinned(*kind, shards) for kind in MASKS for shards in (10, 20)),
    *map(_of_noise, SIGMAS),
    *(_thinned(*kind, 20, sigma) for kind in MASKS for sigma in THINNED_RATES[kind[0]] if sigma),
    *(
        _compressed("SoteriaFL", 20, sigma, rate, shift=True)
        for sigma, rate in SOTERIA_SIGMAS.items()
    ),
    *(_compressed("CDP-SGD", 20, sigma, rate, shift=False) for sigma, rate in CDP_SIGMAS.items()),
    *map(_sdm_dsgd, SDM_SIGMAS),
    *map(_dp_srm, DPSRM_SIGMAS),
    *(
        Training(
            _averaged((1,), withheld=share, sums=False),
            {("PriPrune", f"PriPrune, {share:.0%}"): ("A = 1",)},
        )
        for share in (0.01, 0.05, 0.1)
    ),
    Training(
        lambda _size, _clients, seed: OfShatter(seed),
        {("Shatter", "Shatter, 16 chunks, 4 neighbours"): ("peer",)},
    ),
    Training(lambda _size, _clients, seed: OfAko(seed), {("Ako", "Ako, 5 parts"): ("peer",)}),
    *map(_q_dpsgd, (0.0, 0.1)),
)
"""All of them; the first is FedAvg's, and has the models alone too."""


def with_any(*names: str) -> tuple[Training, ...]:
    """The trainings that have one of these methods."""
    return tuple(each for each in TRAININGS if {name for _, name in each.views} & {*names})
