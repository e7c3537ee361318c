"""The methods whose receivers are attacked: what is trained, and who looks at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.eris.baselines import Local, noised, pruned
from benchmarks.eris.convergence import ALL, Way
from benchmarks.eris.receivers import SUM, Averaged, Exchange, OfAko, OfQDPSGD, OfShatter

__all__ = ["GLOBAL", "TRAININGS", "Start", "Training", "of_noise"]

CLIP = 1.0
SIGMAS: Final = {0.03: 1.0, 0.1: 0.7, 0.3: 0.5, 1.0: 0.25}
"""Noises of all values, and the most accurate server rate of 1, 0.7, 0.5 and 0.25 with each."""

SOTERIA_SIGMAS: Final = {0.0: 1.0, 0.01: 1.0, 0.03: 0.7, 0.1: 0.5, 0.3: 0.5}
THINNED_RATES: Final = {"one": 0.7, "own": 1.0}
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


def of_noise(sigma: float) -> Training:
    """All values, with noise of sigma: to a server, in shards, and in sums."""
    noise = f", sigma = {sigma:g}"
    return Training(
        _averaged((1, 50), sigma=sigma, rate=SIGMAS[sigma]),
        {
            ("LDP", f"LDP{noise}"): ("A = 1",),
            ("ERIS, one of 50 shards", f"ERIS, A = 50{noise}"): ("A = 50", SUM),
            ("ERIS, sums", f"ERIS, sums{noise}"): (SUM,),
        },
    )


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
        change: Local = lambda updates: updates  # noqa: E731
        if sigma:
            change = noised(change, CLIP, sigma, seed)
        if withheld:
            change = pruned(change, withheld)
        return Averaged(
            size, clients, shards, change=change, way=way, rate=rate, sums=sums, seed=seed
        )

    return start


def _thinned(masks: str, words: str, shards: int) -> Training:
    family, start = (
        f"c = 16, {words}",
        _averaged((shards,), Way(16, masks), rate=THINNED_RATES[masks]),
    )
    views: Views = {(f"ERIS, {family}", f"ERIS, A = {shards}, {family}"): (f"A = {shards}", SUM)}
    if masks == "one" and shards == 10:
        views["ERIS, sums, c = 16", f"ERIS, sums, {family}"] = (SUM,)
    return Training(start, views)


def _soteria(sigma: float) -> Training:
    rate = SOTERIA_SIGMAS[sigma]
    start = _averaged((1,), Way(20, "own"), rate=rate, sigma=sigma, sums=False)
    return Training(start, {("SoteriaFL", f"SoteriaFL, c = 20, sigma = {sigma:g}"): ("A = 1",)})


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
    *(
        _thinned(*kind, shards)
        for kind in (("one", "one mask"), ("own", "own masks, shifts"))
        for shards in (10, 20)
    ),
    *map(of_noise, SIGMAS),
    *map(_soteria, SOTERIA_SIGMAS),
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
    Training(
        lambda _size, _clients, seed: OfQDPSGD(seed),
        {("Q-DPSGD-1", "Q-DPSGD-1, 7 levels, no noise"): ("peer",)},
    ),
)
"""All of them; the first is FedAvg's, and has the models alone too."""
