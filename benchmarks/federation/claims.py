"""What a cap on claimed samples takes from honest clients, and what it leaves to one that lies.

Labels are dealt to clients label by label, in shares of Dir(alpha): so clients have as unequal
numbers of samples as labels. Nothing is trained; the weights are the product's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.report import Table
from modelkin.federation.layouts import MOST_EXACT
from modelkin.integrations.federation.kin_robust import KinRobust, Verdicts
from modelkin.integrations.federation.node_weights import RoundMembers, node_weights
from studies.measures import mean_of

DRAWS: Final = 200
CLIENTS, CLASSES, SAMPLES = 20, 10, 180
"""Samples are of each class."""
CAPS: Final = (2.0, 5.0, 10.0, None)
ALPHAS: Final = (0.1, 0.3)


@dataclass(frozen=True, slots=True)
class Capped:
    """What a cap does to one draw of clients.

    Attributes:
        taken: the share of all samples that no longer weighs, where all are honest.
        clients: the share of honest clients that are capped.
        liar: the share of the mean of a client that claims as much as may be claimed.
    """

    taken: float
    clients: float
    liar: float


def table() -> Table:
    """Each cap on both splits, over all draws."""
    rows = []
    for alpha in ALPHAS:
        drawn = [claims_of(alpha, seed) for seed in range(DRAWS)]
        for cap in CAPS:
            found = [capped(claims, cap) for claims in drawn]
            figures = [[each.taken, each.clients, each.liar] for each in found]
            means = [mean_of(column) for column in np.transpose(figures)]
            rows.append([f"Dir({alpha}): {_words(cap)}", *means])
    return Table(
        f"Caps on claims of samples, as multiples of the median ({DRAWS} draws of {CLIENTS} "
        f"clients with {CLASSES * SAMPLES} samples, 95% intervals)",
        ["samples, and cap", "honest weight taken", "honest clients capped", "share of one liar"],
        rows,
    )


def claims_of(alpha: float, seed: int) -> npt.NDArray[np.int64]:
    """How many samples each client has, ``(CLIENTS,)``."""
    rng = np.random.default_rng([seed, round(100 * alpha)])
    shares = rng.dirichlet(np.full(CLIENTS, alpha), CLASSES)
    dealt = [rng.multinomial(SAMPLES, each) for each in shares]
    return np.asarray(np.sum(dealt, axis=0), np.int64)


def capped(claims: Sequence[int] | npt.NDArray[np.int64], cap: float | None) -> Capped:
    """What the product's cap does to clients with so many samples, of whom the last may lie."""
    honest = _weights([int(each) for each in claims], cap)
    lying = _weights([*(int(each) for each in claims[:-1]), MOST_EXACT], cap)
    own = np.asarray(claims, np.float64)
    return Capped(
        taken=float(1 - honest.sum() / own.sum()),
        clients=float((honest < own).mean()),
        liar=float(lying[-1] / lying.sum()),
    )


def _weights(claims: Sequence[int], cap: float | None) -> npt.NDArray[np.float64]:
    limits = None if cap is None else KinRobust(heaviest=cap)
    verdicts: Verdicts[int] = Verdicts(limits=limits)
    weigh = verdicts.rule(node_weights("examples"), common=True)
    found = weigh(range(len(claims)), RoundMembers({}, dict(enumerate(claims)))).values
    return np.array([found[client] for client in range(len(claims))])


def _words(cap: float | None) -> str:
    return "no cap" if cap is None else f"cap {cap:g}"
