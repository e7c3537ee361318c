"""Measure weights of clients by what they add, beside numbers of samples and equal weights.

All rules get the same clients, first weights and batches, on splits where labels are even, skewed,
in groups, or rare; each client trains as many steps, however few samples it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.report import Findings, Row, Table
from demo.cohort import Cohort
from demo.data import CLASSES, deal_images
from modelkin.core.clustering.linkage import Division
from modelkin.core.kinship.cover import greedy_cover
from modelkin.core.packed import PackedSupport
from modelkin.core.selection.selection import select_support
from modelkin.core.similarity.matrix import matrix
from modelkin.core.support import Support
from modelkin.integrations.federation.node_weights import RoundMembers, node_weights
from studies.federations import Federation
from studies.measures import Paired, mean_of, paired
from studies.networks.small import common_model
from studies.samples import samples_of
from studies.settings import Setting

LIBRARIES = ("numpy", "torch", "scikit-learn")

SEEDS: Final = 5
ROUNDS: Final = 15
EPOCHS: Final = 2
CLIENTS: Final = 20
RARE: Final = 3
"""Clients with two labels that no other client has."""
MANY, FEW = 60, 20
"""Samples of a client, and of a client with rare labels."""
LIE: Final = 50

SAMPLES, EQUAL, COVER, RARITY = "samples", "equal", "cover", "rarity"
GREEDY: Final = "cover, greedily"
LIED: Final = f"samples, one client claims {LIE} times its own"
FRESH: Final = "cover, by each round's supports"
PRODUCT: Final = (SAMPLES, EQUAL, COVER, RARITY)
RULES: Final = (*PRODUCT, GREEDY)

ONE, CLUSTERS = "one model", "clusters"
IID, SKEWED, MIXED = "IID", "Dir(0.1)", "Dir(0.3)"
LABELS, NOISY = "labels", "noisy labels"
RARE_LABELS, GARBAGE = "rare labels", "labels by chance"
WORDS: Final = {
    IID: "even: IID",
    SKEWED: "skewed: Dir(0.1)",
    MIXED: "mixed: Dir(0.3)",
    LABELS: "in four groups",
    NOISY: "in four groups, beside 40% of any label",
    RARE_LABELS: f"two labels of {RARE} of {CLIENTS} clients alone, with {FEW} of {MANY} samples",
    GARBAGE: f"even, but by chance for {RARE} of {CLIENTS} clients",
}
IN_GROUPS: Final = {LABELS: 4, NOISY: 4, RARE_LABELS: 2}
"""Scenarios whose clusters have models, too, and how many clusters."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Found = dict[tuple[str, ...], list[float]]
"""Figures of all seeds, by what is measured, the scenario, the way and the rule."""


@dataclass(frozen=True)
class Case:
    """Clients with their supports at the first weights.

    Attributes:
        federation: of the clients.
        claims: how many samples each has, ``(N,)``.
        special: which clients are unlike most, ``(N,)``.
        supports: one a client, of one size.
    """

    federation: Federation
    claims: Integers
    special: npt.NDArray[np.bool_]
    supports: Sequence[Support]


def run(quick: bool) -> Findings:
    """Train all federations under all rules."""
    torch.set_num_threads(1)  # as everywhere in these benchmarks
    found: Found = defaultdict(list)
    rounds = 2 if quick else ROUNDS
    for scenario, seed in product(WORDS, range(1 if quick else SEEDS)):
        case = case_of(scenario, seed)
        _measure(found, scenario, ONE, case, np.zeros(CLIENTS, np.int64), rounds)
        if scenario in IN_GROUPS:
            similarity = matrix([PackedSupport.pack(each) for each in case.supports])
            clusters, _ = Division(n_clusters=IN_GROUPS[scenario]).groups(similarity)
            _measure(found, scenario, CLUSTERS, case, clusters, rounds)
    return Findings([] if quick else judged(found), tables(found))


def case_of(scenario: str, seed: int) -> Case:
    """The clients of a scenario, each tested on samples of its own labels that no client has."""
    claims, special = np.full(CLIENTS, MANY), np.arange(CLIENTS) < RARE
    setting = Setting("digits", "mlp", scenario, CLIENTS, seed)
    if scenario in (LABELS, NOISY):
        federation = Federation.planted(setting)
    elif scenario == RARE_LABELS:
        federation, claims = _rare(setting), np.where(special, FEW, MANY)
    else:
        split = IID if scenario == GARBAGE else scenario
        federation = Federation.of(replace(setting, split=split)).tested_by_clients()
    if scenario == GARBAGE:
        generator = torch.Generator().manual_seed(seed)
        labels = federation.labels.clone()
        labels[:RARE] = torch.randint(CLASSES, labels[:RARE].shape, generator=generator)
        federation = replace(federation, labels=labels)
    chosen = [select_support(each) for each in federation.importances]
    k = int(np.median([each.k for each in chosen]))
    supports = [select_support(each, k=k) for each in federation.importances]
    return Case(federation, claims, special, supports)


def _rare(setting: Setting) -> Federation:
    """Clients of eight labels, and some with few samples of the other two."""
    held = samples_of(setting)
    first = 2 * (setting.seed % (CLASSES // 2))

    def counts(stock: Integers, *, rng: np.random.Generator) -> Integers:
        del stock, rng
        found = np.zeros((CLIENTS, CLASSES), np.int64)
        found[:RARE, first : first + 2] = FEW // 2
        common = np.delete(np.arange(CLASSES), [first, first + 1])
        for client in range(RARE, CLIENTS):
            found[client, common] = MANY // common.size
            found[client, np.roll(common, client)[: MANY % common.size]] += 1
        return found

    split = deal_images(held.values.astype(np.float32), held.labels, counts, setting.seed)
    images, labels = torch.as_tensor(split.images), torch.as_tensor(split.labels)
    # Few samples are repeated, so that each client makes as many steps.
    own = np.stack([np.resize(each, MANY) for each in split.clients])
    rng, test = np.random.default_rng(setting.seed), split.test
    tests = np.stack(
        [
            rng.choice(test[np.isin(split.labels[test], np.flatnonzero(mix))], 60)
            for mix in split.mixes
        ]
    )
    model = common_model(setting.network, images.shape[1:], CLASSES, setting.seed)
    groups = np.zeros(CLIENTS, np.int64)
    return Federation(
        setting, model, images[own], labels[own], split.mixes, groups, images[tests], labels[tests]
    )


def _rules(scenario: str, way: str) -> tuple[str, ...]:
    if way == CLUSTERS:
        return PRODUCT
    further = {RARE_LABELS: (FRESH, LIED), GARBAGE: (FRESH,)}
    return (*RULES, *further.get(scenario, ()))


def _measure(
    found: Found, scenario: str, way: str, case: Case, clusters: Integers, rounds: int
) -> None:
    trained: dict[bytes, Floats] = {}  # where claims are alike, so are two rules
    for rule in _rules(scenario, way):
        shares = shares_of(rule, case, clusters)
        key = rule.encode() if rule == FRESH else shares.tobytes()
        if key not in trained:
            trained[key] = _trained(case, shares, rounds, fresh=rule == FRESH)
        accuracies = trained[key]
        at = (scenario, way, rule)
        found["mean", *at].append(float(accuracies.mean()))
        found["worst", *at].append(float(np.sort(accuracies)[: CLIENTS // 10].mean()))
        found["special", *at].append(float(accuracies[case.special].mean()))
        found["others", *at].append(float(accuracies[~case.special].mean()))
        found["largest", *at].append(float(shares.max()))
        found["share", *at].append(float(shares[0, case.special].sum()))


def shares_of(rule: str, case: Case, clusters: Integers) -> Floats:
    """How much of each client's model is in whose, ``(N, N)``; rows sum to 1."""
    shares = np.zeros((CLIENTS, CLIENTS))
    claims = case.claims.copy()
    if rule == LIED:
        claims[-1] *= LIE
    for cluster in np.unique(clusters):
        own = np.flatnonzero(clusters == cluster).tolist()
        if rule == GREEDY:
            weights = _greedy([case.supports[node] for node in own])
        else:
            known: RoundMembers[int] = RoundMembers(
                {}, dict(enumerate(claims.tolist())), dict(enumerate(case.supports))
            )
            name = {SAMPLES: "examples", LIED: "examples", FRESH: COVER}.get(rule, rule)
            values = node_weights(name)(own, known).shares
            weights = np.array([values[node] for node in own])
        shares[np.ix_(own, own)] = weights / weights.sum()
    return shares


def _greedy(supports: Sequence[Support]) -> Floats:
    """What each adds to those before it, in the order in which each next one adds most."""
    union = np.unique(np.concatenate([each.indices for each in supports]))
    bits = np.stack([np.isin(union, each.indices) for each in supports])
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 64)))
    rows = np.packbits(padded, axis=1, bitorder="little").view(np.uint64)
    weights = np.zeros(len(supports))
    for step in greedy_cover(rows, union.size, len(supports)):
        weights[step.row] = step.explained
    return weights


def _trained(case: Case, shares: Floats, rounds: int, *, fresh: bool) -> Floats:
    """The accuracy of each client's mean model after all rounds.

    Args:
        case: the clients.
        shares: how much of each client's model is in whose.
        rounds: how many.
        fresh: whether the one model's shares are taken anew in each round, at its weights.
    """
    federation, k = case.federation, case.supports[0].k
    cohort = Cohort(federation.model, federation.samples, federation.labels)
    weights, mixing = federation.start, torch.as_tensor(shares, dtype=torch.float32)
    one = np.zeros(CLIENTS, np.int64)
    for number in range(rounds):
        if fresh and number:
            there = federation.at(weights, 0)
            now = replace(case, supports=[select_support(own, k=k) for own in there.importances])
            mixing = torch.as_tensor(shares_of(COVER, now, one), dtype=torch.float32)
        generator = torch.Generator().manual_seed(federation.setting.seed * 1000 + number)
        cohort.train(weights, EPOCHS, generator)
        for name, values in weights.items():
            weights[name] = torch.tensordot(mixing, values, dims=1)
    found = cohort.accuracies(weights, federation.test_samples, federation.test_labels)
    return np.asarray(found.numpy(), np.float64)


def _against(found: Mapping[tuple[str, ...], list[float]], what: str, *at: str) -> Paired:
    """A rule less samples, seed by seed."""
    scenario, way, rule = at
    return paired(found[what, scenario, way, rule], found[what, scenario, way, SAMPLES])


def judged(found: Mapping[tuple[str, ...], list[float]]) -> list[Row]:
    """Where weights by what clients add should help, and where they should do no harm."""
    rows = []
    for rule in (COVER, RARITY):
        gain = _against(found, "special", RARE_LABELS, ONE, rule)
        rows.append(
            Row(
                f"clients with rare labels, one model: {rule}",
                f"{np.mean(found['special', RARE_LABELS, ONE, rule]):.3f}",
                f"samples: {np.mean(found['special', RARE_LABELS, ONE, SAMPLES]):.3f}",
                gain.spread,
                "above 0",
                gain.is_above(0),
            )
        )
        for scenario in (IID, MIXED):
            change = _against(found, "mean", scenario, ONE, rule)
            rows.append(
                Row(
                    f"all clients, {WORDS[scenario]}: {rule}",
                    f"{np.mean(found['mean', scenario, ONE, rule]):.3f}",
                    f"samples: {np.mean(found['mean', scenario, ONE, SAMPLES]):.3f}",
                    change.spread,
                    "above -0.01",
                    change.is_above(-0.01),
                )
            )
    return rows


def tables(found: Mapping[tuple[str, ...], list[float]]) -> list[Table]:
    """Accuracies with intervals, and differences from FedAvg on the same seeds."""
    one = [(scenario, ONE) for scenario in WORDS]
    many = [(scenario, CLUSTERS) for scenario in IN_GROUPS]
    return [
        _table("The mean accuracy of clients under one model", found, "mean", one, RULES),
        _table("The same of the two clients with the lowest", found, "worst", one, RULES),
        _table("Clients under a model for each cluster", found, "mean", many, PRODUCT),
        Table(
            "Clients with rare labels, and with labels by chance: their share of the one model, "
            "and accuracies",
            ["labels, and weights", "their share", "their accuracy", "of the others", "of all"],
            [
                [
                    f"{scenario}: {rule}",
                    f"{np.mean(found['share', scenario, ONE, rule]):.3f}",
                    *(
                        mean_of(found[what, scenario, ONE, rule])
                        for what in ("special", "others", "mean")
                    ),
                ]
                for scenario, rule in product((RARE_LABELS, GARBAGE), (*RULES, FRESH, LIED))
                if ("share", scenario, ONE, rule) in found
            ],
        ),
        Table(
            "The largest share of one client in a mean of 20: the mean over seeds, and the most",
            ["labels", *RULES],
            [
                [
                    WORDS[scenario],
                    *(
                        f"{np.mean(shares):.3f}, {np.max(shares):.3f}"
                        for rule in RULES
                        for shares in [found["largest", scenario, ONE, rule]]
                    ),
                ]
                for scenario in WORDS
            ],
        ),
    ]


def _table(
    title: str,
    found: Mapping[tuple[str, ...], list[float]],
    what: str,
    places: Sequence[tuple[str, str]],
    rules: Sequence[str],
) -> Table:
    seeds = len(found[what, *places[0], SAMPLES])
    return Table(
        f"{title}, by samples, and how much others are above it: {seeds} seeds, 95% intervals",
        ["labels", *rules],
        [
            [
                WORDS[scenario],
                mean_of(found[what, scenario, way, SAMPLES]),
                *(_against(found, what, scenario, way, rule).spread for rule in rules[1:]),
            ]
            for scenario, way in places
        ],
    )
