"""Measure what a fifth of the clients can do to an average, with and without a rule against it.

Attackers flip labels (y to 9 - y), turn signs, send noise, or know all honest updates and send
their mean less one deviation, coordinate by coordinate. The
product's rule is told nothing; the rivals are told how many attack. Kin are clients of one cluster
by supports at the first weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.federation import claims
from benchmarks.report import Findings, Row, Table
from demo.cohort import Cohort, Weights
from modelkin.core.clustering.linkage import Division, groups
from modelkin.core.packed import PackedSupport
from modelkin.core.selection.selection import select_support
from modelkin.core.similarity.matrix import matrix
from modelkin.integrations.federation.kin_robust import KinJudge, KinRobust
from studies.federations import Federation
from studies.measures import Paired, mean_of, paired
from studies.settings import Setting

LIBRARIES = ("numpy", "torch", "scikit-learn")

CLIENTS, ATTACKERS = 20, 4
ROUNDS, EPOCHS, RATE = 15, 1, 0.03
SEEDS: Final = range(10, 15)
"""The limits of the rule were chosen on other seeds, 0 to 2."""

IID, MIXED, TURNED = "IID", "Dir(0.3)", "rotations"
SPLITS: Final = {
    IID: "even (IID)",
    MIXED: "mixed, Dir(0.3)",
    TURNED: "in four groups that turn images, a model for each cluster",
}
NONE, LABELS, SIGNS, NOISE, SMALL = "nobody attacks", "labels", "signs", "noise", "small"
ATTACKS: Final = {
    NONE: "nobody attacks",
    LABELS: "labels flipped",
    SIGNS: "signs turned",
    f"{SIGNS} x10": "signs, times 10",
    f"{NOISE} x10": "noise, times 10",
    SMALL: "small changes",
}
FEDAVG, MEDIAN, TRIMMED, KRUM, MULTI_KRUM, KIN = (
    "FedAvg", "median", "trimmed mean", "Krum", "multi-Krum", "kin",
)  # fmt: skip
RULES: Final = (FEDAVG, MEDIAN, TRIMMED, KRUM, MULTI_KRUM, KIN)

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.int64]
Found = dict[tuple[str, str, str], list[float]]
"""Figures of all seeds, by split, attack, and rule or what is counted."""


# --- the rivals ----------------------------------------------------------------------------------


def coordinate_median(updates: Floats) -> Floats:
    """The median of each coordinate of updates ``(n, M)``."""
    found: Floats = np.median(updates, axis=0)
    return found


def trimmed_mean(updates: Floats, cut: int) -> Floats:
    """The mean of each coordinate without its ``cut`` largest and ``cut`` smallest values."""
    found: Floats = np.sort(updates, axis=0)[cut : len(updates) - cut].mean(axis=0)
    return found


def krum(updates: Floats, attackers: int, chosen: int = 1) -> Floats:
    """The mean of the updates nearest to their n - f - 2 nearest others; one of them is Krum.

    Source: Blanchard et al., "Machine learning with adversaries: Byzantine tolerant gradient
    descent", 2017.
    """
    squares = (updates**2).sum(axis=1)
    distances = squares[:, None] + squares - 2 * updates @ updates.T
    np.fill_diagonal(distances, np.inf)
    near = max(1, len(updates) - attackers - 2)
    scores = np.sort(distances, axis=1)[:, :near].sum(axis=1)
    found: Floats = updates[np.argsort(scores, kind="stable")[:chosen]].mean(axis=0)
    return found


def _combined(rule: str, updates: Floats) -> Floats:
    """The rule's step for the updates of one cluster, of whom a fifth attacks."""
    count, attackers = len(updates), round(len(updates) * ATTACKERS / CLIENTS)
    rules: dict[str, Callable[[], Floats]] = {
        FEDAVG: lambda: updates.mean(axis=0),
        MEDIAN: lambda: coordinate_median(updates),
        TRIMMED: lambda: trimmed_mean(updates, attackers),
        KRUM: lambda: krum(updates, attackers),
        MULTI_KRUM: lambda: krum(updates, attackers, max(1, count - attackers)),
    }
    return rules[rule]()


# --- the federation ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Clients, of whom some attack, and their clusters.

    Attributes:
        federation: of the clients; the labels of those who flip labels are flipped.
        attackers: who attacks, ``(N,)``.
        clusters: by supports, ``(N,)``.
        apart: whether each cluster has a model of its own.
    """

    federation: Federation
    attackers: npt.NDArray[np.bool_]
    clusters: Integers
    apart: bool

    @property
    def averaged(self) -> list[Integers]:
        """The clients of each mean."""
        if not self.apart:
            return [np.arange(CLIENTS)]
        return [np.flatnonzero(self.clusters == each) for each in np.unique(self.clusters)]

    @property
    def members(self) -> dict[int, list[int]]:
        """The clients of each cluster."""
        labels = np.unique(self.clusters).tolist()
        return {each: np.flatnonzero(self.clusters == each).tolist() for each in labels}


@cache
def case_of(split: str, seed: int, *, flipped: bool) -> Case:
    """The clients of a split; where it has groups, one client of each attacks.

    Args:
        split: one of :data:`SPLITS`.
        seed: of all that is drawn.
        flipped: whether those who attack have other labels.
    """
    rng = np.random.default_rng([seed, 7])
    setting = Setting("digits", "mlp", split, CLIENTS, seed)
    attackers, apart = np.zeros(CLIENTS, bool), split == TURNED
    if apart:
        federation = Federation.planted(setting)
        for group in np.unique(federation.groups):
            attackers[rng.choice(np.flatnonzero(federation.groups == group))] = True
    else:
        federation = Federation.of(setting)
        attackers[rng.permutation(CLIENTS)[:ATTACKERS]] = True
    if flipped:
        labels = federation.labels.clone()
        labels[torch.as_tensor(attackers)] = 9 - labels[torch.as_tensor(attackers)]
        federation = replace(federation, labels=labels)
    supports = [PackedSupport.pack(select_support(each)) for each in federation.importances]
    similarity = matrix(supports)
    clusters, _ = Division(n_clusters=4).groups(similarity) if apart else groups(similarity)
    return Case(federation, attackers, clusters.astype(np.int64), apart)


def attacked(
    attack: str, updates: Floats, attackers: npt.NDArray[np.bool_], rng: np.random.Generator
) -> Floats:
    """The updates ``(n, M)`` of the members of a mean as they arrive."""
    kind, _, scaled = attack.partition(" ")
    if kind not in (SIGNS, NOISE, SMALL) or not attackers.any() or attackers.all():
        return updates
    sent, honest = updates.copy(), updates[~attackers]
    if kind == SIGNS:
        sent[attackers] *= -1
    elif kind == NOISE:
        drawn = rng.normal(size=sent[attackers].shape)
        lengths = np.linalg.norm(sent[attackers], axis=1) / np.linalg.norm(drawn, axis=1)
        sent[attackers] = drawn * lengths[:, None]
    else:
        sent[attackers] = honest.mean(axis=0) - honest.std(axis=0)
    if scaled:
        sent[attackers] *= 10
    return sent


# --- the measurement -----------------------------------------------------------------------------


def run(quick: bool) -> Findings:
    """Train all federations under all attacks and rules."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    found: Found = defaultdict(list)
    counts: Found = defaultdict(list)
    seeds, rounds = (SEEDS[:1], 2) if quick else (SEEDS, ROUNDS)
    for split, attack, seed in product(SPLITS, ATTACKS, seeds):
        case = case_of(split, seed, flipped=attack == LABELS)
        accuracies, alarms, misses = trained(case, attack, rounds, seed)
        for rule, accuracy in accuracies.items():
            found[split, attack, rule].append(accuracy)
        counts[split, attack, "alarms"].append(alarms)
        counts[split, attack, "misses"].append(misses)
    return Findings([] if quick else judged(found), tables(found, counts))


def trained(
    case: Case, attack: str, rounds: int, seed: int
) -> tuple[dict[str, float], float, float]:
    """Train one federation under each rule, all side by side.

    Returns:
        The mean accuracy of the clients that do not attack, by rule; the share of them that the
        product's rule left out; and the share of attackers that it did not, over all rounds.
    """
    federation, count = case.federation, len(RULES)
    honest = ~case.attackers | (attack == NONE)
    cohort = Cohort(
        federation.model,
        federation.samples.repeat(count, *[1] * (federation.samples.dim() - 1)),
        federation.labels.repeat(count, 1),
    )
    shapes = {name: each.shape[1:] for name, each in federation.start.items()}
    current = np.repeat(_rows(_first(federation.start)), CLIENTS * count, axis=0)
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng([seed, 8])
    judge, alarms, misses = KinJudge[int](KinRobust()), list[float](), list[float]()
    for _ in range(rounds):
        weights = _weights(current, shapes)
        cohort.train(weights, EPOCHS, generator, rate=RATE)
        updates = _rows(weights) - current
        for at, rule in enumerate(RULES):
            rows = slice(at * CLIENTS, (at + 1) * CLIENTS)
            start, sent = current[rows], updates[rows].copy()
            for mean in case.averaged:
                sent[mean] = attacked(attack, sent[mean], case.attackers[mean], rng)
            factors: Floats = np.ones(CLIENTS)
            if rule == KIN:
                factors = _judged(judge, start, sent, case)
                alarms.append(float((factors == 0)[honest].mean()))
                misses.append(float((factors > 0)[~honest].mean()) if not honest.all() else 0.0)
            for mean in case.averaged:
                own = factors[mean]
                if rule != KIN:
                    current[rows][mean] += _combined(rule, sent[mean])
                elif own.any():
                    current[rows][mean] += np.average(sent[mean], axis=0, weights=own)
    found = _accuracies(case, cohort, _weights(current, shapes), honest)
    return found, float(np.mean(alarms)), float(np.mean(misses))


def _judged(judge: KinJudge[int], start: Floats, sent: Floats, case: Case) -> Floats:
    """What the product's rule multiplies the clients' weights by, ``(N,)``."""
    begun = {int(mean[0]): {"all": start[mean[0]]} for mean in case.averaged}
    starts = {int(client): begun[int(mean[0])] for mean in case.averaged for client in mean}
    models = {client: {"all": start[client] + sent[client]} for client in range(CLIENTS)}
    verdicts = judge.judge(models, starts, case.members)
    factors: Mapping[int, float] = verdicts.own if case.apart else verdicts.common
    return np.array([factors.get(client, 1.0) for client in range(CLIENTS)])


def _accuracies(
    case: Case, cohort: Cohort, weights: Weights, honest: npt.NDArray[np.bool_]
) -> dict[str, float]:
    tests = case.federation.test_samples
    found = {}
    for at, rule in enumerate(RULES):
        rows = slice(at * CLIENTS, (at + 1) * CLIENTS)
        own = {name: each[rows] for name, each in weights.items()}
        each = cohort.accuracies(own, tests, case.federation.test_labels).numpy()
        found[rule] = float(each[honest].mean())
    return found


def _first(weights: Weights) -> Weights:
    return {name: each[:1] for name, each in weights.items()}


def _rows(weights: Weights) -> npt.NDArray[np.float32]:
    """Models as rows ``(models, M)``."""
    return torch.cat([each.flatten(1) for each in weights.values()], dim=1).numpy()


def _weights(rows: npt.NDArray[np.float32], shapes: Mapping[str, Sequence[int]]) -> Weights:
    """Rows as models, copied."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    parts: Sequence[Tensor] = torch.tensor(rows).split(sizes, dim=1)
    named = zip(shapes.items(), parts, strict=True)
    return {name: part.reshape(len(rows), *shape).clone() for (name, shape), part in named}


# --- the figures ---------------------------------------------------------------------------------


def judged(found: Found) -> list[Row]:
    """What an attack leaves of the accuracy without one, and what the rule costs without one."""
    rows = []
    for split, words in SPLITS.items():
        for attack in ATTACKS:
            lost = paired(found[split, attack, KIN], found[split, NONE, FEDAVG])
            rows.append(
                Row(
                    f"accuracy of honest clients, {words}: {ATTACKS[attack]}",
                    f"{np.mean(found[split, attack, KIN]):.3f}",
                    f"FedAvg without attack: {np.mean(found[split, NONE, FEDAVG]):.3f}",
                    lost.spread,
                    "above -0.03",
                    lost.is_above(-0.03),
                )
            )
    return rows


def tables(found: Found, counts: Found) -> list[Table]:
    """Accuracies of the product's rule, what rivals differ by, and whom the rule left out."""
    seeds = len(next(iter(found.values())))
    return [
        *(_table(f"Labels {words}", split, found, seeds) for split, words in SPLITS.items()),
        Table(
            "Honest clients left out (all clients where nobody attacks), and attackers not left "
            f"out, as shares over {ROUNDS} rounds",
            ["attack", *(f"{split}, {what}" for split in SPLITS for what in ("honest", "missed"))],
            [
                [
                    words,
                    *(
                        "" if (attack, what) == (NONE, "misses") else mean_of(counts[at])
                        for split in SPLITS
                        for what in ("alarms", "misses")
                        for at in [(split, attack, what)]
                    ),
                ]
                for attack, words in ATTACKS.items()
            ],
        ),
        claims.table(),
    ]


def _table(title: str, split: str, found: Found, seeds: int) -> Table:
    def against(attack: str, rule: str) -> Paired:
        return paired(found[split, attack, rule], found[split, attack, KIN])

    return Table(
        f"{title}: the mean accuracy of honest clients with {KIN}, and how much others are above "
        f"it ({seeds} seeds, 95% intervals)",
        ["attack by 4 of 20", KIN, *RULES[:-1]],
        [
            [
                words,
                mean_of(found[split, attack, KIN]),
                *(against(attack, rule).spread for rule in RULES[:-1]),
            ]
            for attack, words in ATTACKS.items()
        ],
    )
