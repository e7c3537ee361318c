"""Measure what a running mean of a cluster does while newcomers arrive, in random orders.

A newcomer joins the cluster of the nearest mean, which then counts it (DFL2G, Algorithm 1), or
leaves it as it is. Beside how many are placed right stands for how many the order decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.dfl2g.clusters import SHIFTS
from benchmarks.dfl2g.measures import BY_CLASS, EQ_11, WHOLE, fitted, printed_basis
from benchmarks.report import Findings, Row, Table
from demo.planted import GROUPS, Clients, Data, newcomers
from modelkin.core.subspaces.affinity import affinities

LIBRARIES = ("numpy", "scipy", "scikit-learn")

SEEDS: Final[Mapping[Data, int]] = {"digits": 5, "synthetic": 3}
CLIENTS: Final = (24, 8)
NEWCOMERS: Final = 40
ORDERS: Final = 20
KEPT, RUNNING = "means as clustered", "running means"
NOWHERE: Final = -1

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Found = dict[tuple[Any, ...], list[float]]
"""Values of all seeds, by what was measured, the data, the setting, the measure and the means."""


def run(quick: bool) -> Findings:
    """Place newcomers in all orders, with and without running means."""
    seeds: Mapping[Data, int] = {"digits": 1} if quick else SEEDS
    orders = 2 if quick else ORDERS
    found: Found = defaultdict(list)
    settings = list(product(CLIENTS, SHIFTS, (True, False)))
    for data, count in seeds.items():
        for seed, (clients, shift, known) in product(range(count), settings):
            parties = newcomers(
                shift, known=known, data=data, seed=seed, num_clients=clients,
                num_newcomers=NEWCOMERS,
            )  # fmt: skip
            _measure(found, (data, clients, shift, known), parties, seed, orders)
    means = {key: float(np.mean(values)) for key, values in found.items()}
    return Findings([] if quick else judged(means), tables(means, list(seeds), settings))


def _measure(
    found: Found, at: tuple[Any, ...], parties: tuple[Clients, Clients], seed: int, orders: int
) -> None:
    own, right = (each.groups for each in parties)
    rng = np.random.default_rng([seed, 31])
    drawn = [rng.permutation(right.size) for _ in range(orders)]
    for name, products in inner_products(parties, seed).items():
        if name == BY_CLASS and not at[-1]:
            continue  # they have no class in common
        for how in (KEPT, RUNNING):
            placed = np.array(
                [
                    arrive(products, own, order, running=how == RUNNING, any_is=name == EQ_11)
                    for order in (drawn if how == RUNNING else drawn[:1])
                ]
            )
            shares = (placed == right).mean(axis=1)
            found["right", *at, name, how].append(float(shares.mean()))
            if how == RUNNING:
                found["spread", *at, name].append(float(np.ptp(shares)))
                found["order", *at, name].append(float((placed != placed[0]).any(axis=0).mean()))


def inner_products(parties: tuple[Clients, Clients], seed: int) -> dict[str, Floats]:
    """Inner products of all clients and newcomers, by measure: S, or those of bases as printed."""
    samples = [x for each in parties for x in each.samples]
    labels = [y for each in parties for y in each.labels]
    rng = np.random.default_rng([seed, 11])
    printed = np.stack([printed_basis(x, rng).ravel() for x in samples])
    return {
        BY_CLASS: affinities(
            [fitted(x, y) for x, y in zip(samples, labels, strict=True)], "classes"
        ),
        WHOLE: affinities([fitted(x) for x in samples], "whole"),
        EQ_11: printed @ printed.T,
    }


def arrive(
    products: Floats, own: Integers, order: Integers, *, running: bool, any_is: bool = False
) -> Integers:
    """The cluster of each newcomer, -1 for none, as they arrive in this order.

    Args:
        products: of clients, and newcomers behind them.
        own: the cluster of each client.
        order: of the newcomers.
        running: whether those that are placed move the mean of their cluster, and of all.
        any_is: whether the nearest mean is taken however far it is; else the mean of all, where
            that is as near, speaks for no cluster.
    """
    member = np.zeros((GROUPS + 1, len(products)))
    for group in range(GROUPS):
        member[group, : own.size] = own == group
    member[GROUPS, : own.size] = 1.0  # the mean of all
    found = np.full(order.size, NOWHERE)
    for newcomer in order:
        x = own.size + newcomer
        weights = member / member.sum(axis=1, keepdims=True)
        between = weights @ products
        squares = products[x, x] - 2 * between[:, x] + (between * weights).sum(axis=1)
        nearest = int(np.argmin(squares[:GROUPS]))
        if not any_is and squares[nearest] >= squares[GROUPS]:
            continue
        found[newcomer] = nearest
        if running:
            member[[nearest, GROUPS], x] = 1.0
    return found


def judged(means: Mapping[tuple[Any, ...], float]) -> list[Row]:
    """The product's assignments, where newcomers are kin: neither way may lose."""
    rows = []
    for name, shift in product((BY_CLASS, WHOLE), SHIFTS):
        at = ("digits", CLIENTS[0], shift, True, name)
        kept, ran = (means["right", *at, how] for how in (KEPT, RUNNING))
        rows.append(
            Row(
                f"kin placed right, running means: {name}, {shift}",
                f"{ran:.3f}",
                f"{KEPT}: {kept:.3f}",
                f"{ran - kept:+.3f}",
                "no gain or loss beyond 0.05",
                abs(ran - kept) <= 0.05,
            )
        )
    return rows


def tables(
    means: Mapping[tuple[Any, ...], float],
    data: Iterable[Data],
    settings: list[tuple[int, str, bool]],
) -> list[Table]:
    """What was placed right, and what the order decides; digits before synthetic images."""
    columns = list(dict.fromkeys((shift, known) for _, shift, known in settings))
    heads = [f"{shift}, {'kin' if known else 'no client has'}" for shift, known in columns]

    def cells(what: str, clients: int, *rest: str) -> list[str]:
        return [
            " / ".join(
                f"{means[key]:.2f}"
                for each in data
                if (key := (what, each, clients, *column, *rest)) in means
            )
            for column in columns
        ]

    names = (BY_CLASS, WHOLE, EQ_11)
    right = [
        [f"{clients} clients, {name}, {how}", *cells("right", clients, name, how)]
        for clients, name, how in product(CLIENTS, names, (KEPT, RUNNING))
    ]
    order = [
        [f"{clients} clients, {name}, {said}", *cells(what, clients, name)]
        for clients, name, (what, said) in product(
            CLIENTS, names, (("order", "newcomers"), ("spread", "share placed right"))
        )
    ]
    return [
        Table(
            f"{NEWCOMERS} newcomers with 20 samples arrive one by one: the share in their own of "
            f"four clusters, not in another or none",
            ["clusters of, by", *heads],
            right,
        ),
        Table(
            f"What the order decides with running means, in {ORDERS} random orders: the share of "
            f"newcomers that are not in the same cluster in all of them, and how far the best "
            f"order is above the worst",
            ["clusters of, by", *heads],
            order,
        ),
    ]
