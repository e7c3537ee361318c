"""Measure who is found to be like whom, by data alone, and where newcomers are placed.

Clients have planted groups: by labels with 40% of any label in each, by how images are turned or
drawn, or by what labels mean. Groups are found at their known number, and with the number free.
Newcomers have 20 samples, of classes that clients have or of classes that none has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import adjusted_rand_score

from benchmarks.dfl2g.algorithms import ALGORITHMS, HIERARCHICAL
from benchmarks.dfl2g.measures import (
    BY_CLASS,
    EQ_11,
    FLAT,
    NAMES,
    PACFL,
    SUPPORT,
    WHOLE,
    Measure,
    measures,
)
from benchmarks.report import Findings, Row, Table, duration
from demo.data import jensen_shannon, recall
from demo.planted import CONCEPTS, GROUPS, Clients, Data, newcomers, plant
from modelkin.core.clustering.linkage import groups

LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn")

SEEDS: Final[Mapping[Data, int]] = {"digits": 10, "synthetic": 5}
PLANTED: Final = ("noisy labels", *CONCEPTS)
MIXED: Final = {"dirichlet 0.1": 0.92, "dirichlet 0.3": 0.88}
"""The least R@8 by classes on digits."""
SHIFTS: Final = ("rotations", "styles")
CLUSTERED: Final = (BY_CLASS, WHOLE, PACFL, FLAT, EQ_11)
"""The measures that are clustered by other algorithms, too."""
NEAREST, VOTES = 8, 10

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Found = dict[tuple[Any, ...], list[float]]
"""Values of all seeds, by what was measured, the data, the scenario and the name."""


def run(quick: bool) -> Findings:
    """Cluster clients by each measure, and place newcomers."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    found: Found = defaultdict(list)
    seeds: Mapping[Data, int] = {"digits": 1} if quick else SEEDS
    for data, count in seeds.items():
        for seed in range(count):
            _clusterings(found, data, seed, quick=quick)
            _newcomers(found, data, seed, quick=quick)
    means = {key: float(np.mean(values)) for key, values in found.items()}
    rows = [] if quick else judged(means)
    return Findings(rows, tables(means, seeds))


# --- measured -------------------------------------------------------------------------------------


def _clusterings(found: Found, data: Data, seed: int, *, quick: bool) -> None:
    for scenario in ("iid", "rotations") if quick else ("iid", *PLANTED):
        clients = plant(scenario, data=data, seed=seed)
        for name, measure in measures(clients, seed).items():
            at = (data, scenario, name)
            if measure.similarity is not None:
                labels = groups(measure.similarity, num_perm=measure.num_perm)[0]
                found["free", *at].append(_agreement(clients, labels))
                found["one", *at].append(float(labels.max() == 0))
            if scenario != "iid":
                for how in ALGORITHMS if name in CLUSTERED else (HIERARCHICAL,):
                    labels = ALGORITHMS[how](measure, GROUPS, seed)
                    what = "known" if how == HIERARCHICAL else how
                    found[what, *at].append(_agreement(clients, labels))
    for scenario in ("dirichlet 0.1",) if quick else MIXED:
        clients = plant(scenario, data=data, num_clients=40, seed=seed)
        for name, measure in measures(clients, seed).items():
            found["recall", data, scenario, name].append(_recall(clients, measure.distances))
            if measure.bytes is not None and measure.seconds is not None:
                found["bytes", data, scenario, name].append(measure.bytes)
                found["seconds", data, scenario, name].append(measure.seconds)


def _agreement(clients: Clients, labels: Integers) -> float:
    return float(adjusted_rand_score(clients.groups, labels))


def _recall(clients: Clients, distances: Floats) -> float:
    """R@8 beside the nearest by true label distributions."""
    truth, found = jensen_shannon(clients.mixes), []
    for client, row in enumerate(distances):
        order = np.argsort(row, kind="stable")
        nearest = order[order != client][:NEAREST].tolist()
        found.append(recall(nearest, truth, client))
    return float(np.mean(found))


def _newcomers(found: Found, data: Data, seed: int, *, quick: bool) -> None:
    for shift in SHIFTS[:1] if quick else SHIFTS:
        for known in (True, False):
            clients, arriving = newcomers(shift, known=known, data=data, seed=seed)
            for name, measure in measures(_together(clients, arriving), seed).items():
                if name == BY_CLASS and not known:
                    continue  # they have no class in common
                for how, place in (("centroid", by_centroid), ("votes", by_votes)):
                    right = place(measure, clients.groups) == arriving.groups
                    found["placed", data, shift, known, name, how].append(float(right.mean()))


def _together(clients: Clients, arriving: Clients) -> Clients:
    return Clients(
        clients.samples + arriving.samples,
        clients.labels + arriving.labels,
        np.concatenate([clients.groups, arriving.groups]),
        np.concatenate([clients.mixes, arriving.mixes]),
    )


def by_centroid(measure: Measure, own: Integers) -> Integers:
    """The group with the nearest centroid of each newcomer; newcomers stand behind the clients.

    ``d2(x, C) = mean d2(x, i) - mean d2(i, j) / 2``, with i and j in C, holds for squared
    distances; 1 - S is half of one.

    Args:
        measure: of all clients and newcomers.
        own: the group of each client.
    """
    squares = measure.distances**2 if measure.similarity is None else 2 * measure.distances
    n = own.size
    to_groups = [
        squares[n:, :n][:, own == group].mean(axis=1)
        - squares[:n, :n][np.ix_(own == group, own == group)].mean() / 2
        for group in range(GROUPS)
    ]
    return np.asarray(np.argmin(to_groups, axis=0))


def by_votes(measure: Measure, own: Integers) -> Integers:
    """The group with most votes of the ten nearest, by how much nearer than the next they are."""
    found = []
    for row in measure.distances[own.size :, : own.size]:
        order = np.argsort(row, kind="stable")
        weights = row[order[VOTES]] - row[order[:VOTES]]
        weights = weights if weights.any() else np.ones(VOTES)
        found.append(np.bincount(own[order[:VOTES]], weights, GROUPS).argmax())
    return np.array(found)


# --- judged ---------------------------------------------------------------------------------------


def judged(means: Mapping[tuple[Any, ...], float]) -> list[Row]:
    """The bounds that hold for modelkin, and those above which Eq. 11 would be worth another look.

    Args:
        means: over the seeds, by what was measured.
    """
    rows = []
    for how in ("known", "free"):
        for data, scenarios in (
            ("digits", PLANTED if how == "known" else PLANTED[:4]),
            ("synthetic", ("noisy labels", "rotations", "permuted labels")),
        ):
            rows += [
                _least(means, (how, data, scenario, BY_CLASS), 0.95, f"ARI by classes, {how}")
                for scenario in scenarios
            ]
    for scenario, least in (("rotations", 0.95), ("styles", 0.95), ("swapped labels", 0.85)):
        rows.append(
            _least(means, ("free", "digits", scenario, SUPPORT), least, "ARI by supports, free")
        )
    for name in (BY_CLASS, WHOLE, SUPPORT):
        rows.append(_least(means, ("one", "digits", "iid", name), 1.0, f"one cluster, {name}"))
    for scenario, least in MIXED.items():
        rows.append(_least(means, ("recall", "digits", scenario, BY_CLASS), least, "R@8"))
    for shift in SHIFTS:
        for known, name, least in ((True, BY_CLASS, 0.95), (False, WHOLE, 0.8)):
            what = f"placed right, {'kin' if known else 'classes that no client has'}"
            key = ("placed", "digits", shift, known, name, "centroid")
            rows.append(_least(means, key, least, what))
    for data in SEEDS:
        for scenario in PLANTED:
            ours, theirs = (means["known", data, scenario, name] for name in (BY_CLASS, EQ_11))
            figure = f"ARI by Eq. 11 as printed, known: {data}, {scenario}"
            beside = f"by classes: {ours:.2f}"
            rows.append(Row(figure, f"{theirs:.2f}", beside, "", "≤ 0.4", theirs <= 0.4))
    return rows


def _least(
    means: Mapping[tuple[Any, ...], float], key: tuple[Any, ...], least: float, what: str
) -> Row:
    value = means[key]
    ours = f"{value:.3f}"
    beside = means.get((*key[:3], PACFL))
    peer = "" if beside is None else f"{PACFL}: {beside:.2f}"
    return Row(f"{what}: {key[1]}, {key[2]}", ours, peer, "", f"≥ {least:g}", value >= least)


# --- tables ---------------------------------------------------------------------------------------


def tables(means: Mapping[tuple[Any, ...], float], seeds: Mapping[Any, int]) -> list[Table]:
    """All means, digits before synthetic images.

    Args:
        means: over the seeds, by what was measured.
        seeds: how many of each data set.
    """
    drawn = ", ".join(f"{count} seeds of {data}" for data, count in seeds.items())
    planted_ = tuple(dict.fromkeys(key[2] for key in means if key[0] == "known"))

    def cell(what: str, scenario: str, name: str, shown: Callable[[float], str] = _short) -> str:
        return _cells(means, [(what, data, scenario, name) for data in seeds], shown)

    def by_name(columns: Callable[[str], Iterable[str]]) -> list[list[str]]:
        return [[name, *columns(name)] for name in NAMES]

    mixed = tuple(dict.fromkeys(key[2] for key in means if key[0] == "recall"))
    first = mixed[0]
    return [
        Table(
            f"Adjusted Rand index at the known number of groups, four; {drawn}",
            ["by", *planted_],
            by_name(lambda name: [cell("known", each, name) for each in planted_]),
        ),
        _by_algorithm(planted_, cell),
        Table(
            "Adjusted Rand index with the number of groups free, and in how many seeds clients "
            "with alike data are one cluster; without a similarity of 0 to 1 none is chosen",
            ["by", *planted_, "alike: one cluster"],
            by_name(
                lambda name: [
                    *(cell("free", each, name) for each in planted_),
                    cell("one", "iid", name, lambda value: f"{value:.0%}"),
                ]
            ),
        ),
        Table(
            "R@8 of 40 clients whose labels are mixed by Dirichlet, beside the nearest by true "
            "labels; what a client sends, and the time to make it",
            ["by", *mixed, "bytes", "time"],
            by_name(
                lambda name: [
                    *(cell("recall", each, name) for each in mixed),
                    cell("bytes", first, name, lambda value: f"{value:,.0f}"),
                    cell("seconds", first, name, duration),
                ]
            ),
        ),
        _placed(means, seeds),
    ]


def _by_algorithm(planted_: Iterable[str], cell: Callable[[str, str, str], str]) -> Table:
    scenarios = list(planted_)
    rows = []
    for name in CLUSTERED:
        for how in ALGORITHMS:
            what = "known" if how == HIERARCHICAL else how
            rows.append([f"{name}, {how}", *(cell(what, each, name) for each in scenarios)])
    title = (
        "The same by other clusterings: K-means on points as far apart, and the graph of the five "
        "nearest, cut in four"
    )
    return Table(title, ["by", *scenarios], rows)


def _placed(means: Mapping[tuple[Any, ...], float], seeds: Mapping[Any, int]) -> Table:
    shifts = tuple(dict.fromkeys(key[2] for key in means if key[0] == "placed"))
    columns = [(shift, known) for known in (True, False) for shift in shifts]
    rows = []
    for name in NAMES:
        for how in ("centroid", "votes"):
            cells = [
                _cells(means, [("placed", data, *each, name, how) for data in seeds], _short)
                for each in columns
            ]
            rows.append([f"{name}, {how}", *cells])
    heads = [f"{shift}, {'kin' if known else 'no client has'}" for shift, known in columns]
    title = "Newcomers with 20 samples that are placed in their own group; chance is 0.25"
    return Table(title, ["by", *heads], rows)


def _cells(
    means: Mapping[tuple[Any, ...], float],
    keys: Iterable[tuple[Any, ...]],
    shown: Callable[[float], str],
) -> str:
    """Digits and synthetic images, with a slash between them; empty where nothing was measured."""
    return " / ".join(shown(means[key]) for key in keys if key in means)


def _short(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00
