"""Measure what a data subspace shows of the samples, and what noise costs.

A reader has the fingerprint, and samples like those of the client. It asks whether a sample was
among them, which classes the client has, and what these look like; it turns a secretly rotated
fingerprint back; and it tests a noisy one for a canary.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, roc_auc_score

from benchmarks.dfl2g.measures import fitted
from benchmarks.dfl2g.rotation import turned_back
from benchmarks.report import Findings, Row, Table
from demo.planted import CLASSES, GROUPS, Data, images
from modelkin import FewSamplesWarning, Subspace, fit_subspace
from modelkin.core.clustering.linkage import average_linkage, cut
from modelkin.core.privacy.gaussian import gaussian_sigma
from modelkin.core.subspaces.affinity import affinities, affinity
from modelkin.core.subspaces.basis import unit_rows
from modelkin.core.subspaces.noise import noisy_moment
from modelkin.core.subspaces.subspace import CONSTANT, Compare

LIBRARIES = ("numpy", "scipy", "scikit-learn")

DATA: Final[tuple[Data, ...]] = ("digits", "synthetic")
SAMPLES: Final = (3, 5, 10, 20, 50, 100)
"""The samples of each of the two classes that a client has."""
RANKS: Final = {"1 a class": 1, "3 a class": 3, "5 a class": 5, "10 of all": None}
DEFAULT: Final = "by default"
"""One direction for each twenty samples, three a class at most."""
SIZES: Final[Mapping[Data, tuple[int, ...]]] = {"digits": (60,), "synthetic": (60, 200, 1000)}
EPSILONS: Final = (1, 2, 4, 8, 16, 32)
CANARY_EPSILONS: Final = (0.5, 1.0, 4.0)
LABELS_OF: Final = ((0, 1, 2), (3, 4, 5), (6, 7), (8, 9))

SEEDS, TRIALS, RUNS = 3, 8, 20_000
NOISE_SEEDS: Final[Mapping[int, int]] = {60: 3, 200: 3, 1000: 10}
"""By the samples of a client; those are many for which a gate is set."""
OTHERS, LEAST_OTHERS = 100, 10
"""Samples of a class that were not in it, which the attack is tried on."""
DELTA = 1e-5

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Images = npt.NDArray[np.float32]
Found = dict[tuple[Any, ...], list[float]]


def run(quick: bool) -> Findings:
    """Attack fingerprints, then cluster noisy ones."""
    found: Found = defaultdict(list)
    for seed in range(1 if quick else SEEDS):
        for data in DATA[:1] if quick else DATA:
            _memberships(found, data, seed, SAMPLES[1:3] if quick else SAMPLES)
            found["classes", data].append(_classes_held(data, seed))
            before, after = turned_back(data, seed)
            found["turned", data].append(before)
            found["turned back", data].append(after)
    for data in DATA[:1] if quick else DATA:
        for size in SIZES[data]:
            for seed in range(1 if quick else NOISE_SEEDS[size]):
                _noises(found, data, size, seed, EPSILONS[-2:] if quick else EPSILONS)
    means = {key: float(np.mean(values)) for key, values in found.items()}
    canaries = {each: canary_epsilon(each, 2_000 if quick else RUNS) for each in CANARY_EPSILONS}
    rows = [] if quick else _judged(means)
    return Findings(rows + _canaries(canaries, judged=not quick), _tables(means))


# --- membership -----------------------------------------------------------------------------------


def _memberships(found: Found, data: Data, seed: int, samples: tuple[int, ...]) -> None:
    drawn, labels = images(data, seed)
    x = drawn.reshape(len(drawn), -1).astype(np.float64)
    rng = np.random.default_rng([seed, 21])
    for count in samples:
        for _ in range(TRIALS):
            pools = [
                rng.permutation(np.flatnonzero(labels == label))
                for label in rng.choice(CLASSES, 2, replace=False)
            ]
            members = np.concatenate([pool[:count] for pool in pools])
            others = np.concatenate([pool[count : count + OTHERS] for pool in pools])
            if len(others) < 2 * LEAST_OTHERS:
                continue
            for name, made in _fingerprints(x[members], labels[members]).items():
                area = membership_area(made, x, labels, members, others)
                found["membership", data, name, count].append(area)
            found["mean", data, count].append(_mean_cosine(x[members], labels[members]))


def _fingerprints(x: Floats, labels: Integers) -> dict[str, Subspace]:
    made = {
        name: fitted(x, whole_rank=10) if rank is None else fitted(x, labels, rank=rank)
        for name, rank in RANKS.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamplesWarning)
        if labels.size >= 2 * 20:  # with fewer, no class has a direction
            made[DEFAULT] = fit_subspace(x, labels)
    return made


def membership_area(
    made: Subspace, x: Floats, labels: Integers, members: Integers, others: Integers
) -> float:
    """The AUC of the better of two attacks: by what lies in a block's span, and by its energy.

    Source of the first: Zari, Parra-Arnau, Ünsal, Strufe and Önen, "Membership inference attack
    against principal component analysis" (2022).
    """
    tried = np.concatenate([members, others])
    truth = np.repeat([True, False], [members.size, others.size])
    units = unit_rows(x[tried], CONSTANT)
    spans, energies = np.zeros(tried.size), np.zeros(tried.size)
    for block in made.of("classes" if made.labels else "whole"):
        own = labels[tried] == block.label if made.labels else np.ones(tried.size, bool)
        inside = (units[own] @ block.columns.T.astype(np.float64)) ** 2
        spans[own], energies[own] = inside.sum(axis=1), inside @ block.weights.astype(float) ** 2
    return max(float(roc_auc_score(truth, scores)) for scores in (spans, energies))


def _mean_cosine(x: Floats, labels: Integers) -> float:
    """The mean cosine of a class's first direction with its mean sample, without the constant."""
    blocks = fitted(x, labels, rank=1).of("classes")
    return float(
        np.mean([_cosine(b.columns[0, :-1], x[labels == b.label].mean(axis=0)) for b in blocks])
    )


def _cosine(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    return float(abs(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def _classes_held(data: Data, seed: int) -> float:
    """The AUC of which classes forty clients have, three each, by ``whole`` and public samples.

    A client has 36 samples; a fifth of the data is public.
    """
    drawn, labels = images(data, seed)
    rng = np.random.default_rng([seed, 22])
    public = np.arange(len(labels)) < len(labels) // 5
    known = [fitted(drawn[public & (labels == label)], whole_rank=5) for label in range(CLASSES)]
    truth, scores = np.zeros((40, CLASSES), bool), np.zeros((40, CLASSES))
    for client in range(40):
        own = rng.choice(CLASSES, 3, replace=False)
        truth[client, own] = True
        chosen = [rng.choice(np.flatnonzero(~public & (labels == c)), 12, False) for c in own]
        made = fitted(drawn[np.concatenate(chosen)])
        scores[client] = [affinity(made, each, compare="whole") for each in known]
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    return float(roc_auc_score(truth.ravel(), scores.ravel()))


# --- noise ----------------------------------------------------------------------------------------


def _noises(found: Found, data: Data, size: int, seed: int, epsilons: tuple[int, ...]) -> None:
    """Groups by labels and by rotations under noise; clients draw samples that others have too."""
    drawn, labels = images(data, seed)
    groups = np.arange(12 if size == 1000 else 24) % GROUPS
    for scenario in ("labels", "rotations"):
        rng = np.random.default_rng([seed, size, 23])
        clients = []
        for group in groups:
            among = np.isin(labels, LABELS_OF[group]) if scenario == "labels" else labels >= 0
            own = rng.choice(np.flatnonzero(among), size)
            turns = 0 if scenario == "labels" else int(group)
            clients.append((np.rot90(drawn[own], turns, axes=(1, 2)), labels[own]))
        for epsilon in epsilons:
            for compare in get_args(Compare):
                made = [_noisy(x, y, epsilon, compare, rng) for x, y in clients]
                distances = 1.0 - affinities(made, compare)
                np.fill_diagonal(distances, 0.0)
                near = cut(average_linkage(distances), GROUPS)
                score = float(adjusted_rand_score(groups, near))
                found["noise", data, scenario, size, compare, epsilon].append(score)


def _noisy(
    x: Images, labels: Integers, epsilon: float, compare: Compare, rng: np.random.Generator
) -> Subspace:
    if compare == "whole":
        return fit_subspace(x, epsilon=epsilon, rng=rng)
    return fit_subspace(x, labels, rank=1, epsilon=epsilon, classes=range(CLASSES), rng=rng)


def canary_epsilon(epsilon: float, runs: int) -> float:
    """The lower bound on epsilon by a test for one canary, at 99.9% confidence.

    The attacker knows all other samples and the canary, and tests along its direction.
    """
    rng = np.random.default_rng(3)
    others = rng.normal(size=(10, 3))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    both = np.concatenate([others, np.eye(3)[:1]])
    sigma, expected = gaussian_sigma(epsilon, DELTA), others.T @ others
    without, within = (
        np.array([(noisy_moment(rows, sigma, rng) - expected)[0, 0] for _ in range(runs)])
        for rows in (others, both)
    )
    margin = math.sqrt(math.log(1000) / (2 * runs))
    bounds = [0.0]
    for threshold in np.linspace(-2, 3, 41) * sigma:
        hits, errors = (within > threshold).mean() - margin, (without > threshold).mean() + margin
        if hits > DELTA:
            bounds.append(math.log((hits - DELTA) / errors))
    return max(bounds)


# --- judged ---------------------------------------------------------------------------------------


def _judged(means: Mapping[tuple[Any, ...], float]) -> list[Row]:
    rows = []
    for data in DATA:
        area = means["membership", data, "3 a class", 5]
        limit = means["membership", data, DEFAULT, 20]
        rows.append(
            Row(
                f"AUC of membership, 5 samples a class, 3 directions: {data}",
                f"{area:.3f}",
                f"20 samples, {DEFAULT} one direction: {limit:.3f}",
                "",
                "≥ 0.9",
                area >= 0.9,
            )
        )
    left = _default_classes()
    rows.append(
        Row(
            "classes with 5 samples that fit_subspace describes by default",
            f"{left}",
            "with samples_per_direction=1: 10",
            "",
            "none",
            left == 0,
        )
    )
    for scenario in ("labels", "rotations"):
        whole, classes = (
            means["noise", "synthetic", scenario, 1000, each, 1] for each in ("whole", "classes")
        )
        rows.append(
            Row(
                f"ARI at epsilon 1, 1,000 samples, by whole: {scenario}",
                f"{whole:.3f}",
                f"by classes: {classes:.3f}",
                "",
                "≥ 0.95",
                whole >= 0.95,
            )
        )
    return rows


def _canaries(shown: Mapping[float, float], *, judged: bool) -> list[Row]:
    """The rows of a test for one canary, above nothing and below the claim."""
    return [
        Row(
            f"epsilon that a test for one canary shows: {epsilon:g} claimed",
            f"{seen:.2f}",
            f"the claim: {epsilon:g}",
            "",
            f"> 0, < {epsilon:g}" if judged else "",
            0 < seen < epsilon if judged else None,
        )
        for epsilon, seen in shown.items()
    ]


def _default_classes() -> int:
    """How many of ten classes with five samples each the default policy lets through."""
    drawn, labels = images("digits", 0)
    own = np.concatenate([np.flatnonzero(labels == label)[:5] for label in range(CLASSES)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamplesWarning)
        return len(fit_subspace(drawn[own], labels[own]).labels)


# --- tables ---------------------------------------------------------------------------------------


def _tables(means: Mapping[tuple[Any, ...], float]) -> list[Table]:
    counts = _seen(means, "membership", 3)
    epsilons = _seen(means, "noise", 5)
    data = _seen(means, "classes", 1)

    def line(name: str, keys: list[tuple[Any, ...]]) -> list[str]:
        return [
            name,
            *(f"{round(means[key], 2) + 0.0:.2f}" if key in means else "" for key in keys),
        ]

    membership = [
        line(f"{each}, {name}", [("membership", each, name, count) for count in counts])
        for each in data
        for name in (*RANKS, DEFAULT)
    ]
    membership += [
        line(f"{each}: cosine with the class mean", [("mean", each, count) for count in counts])
        for each in data
    ]
    noise = [
        line(
            f"{each}, {scenario}, {size:,}, by {compare}",
            [("noise", each, scenario, size, compare, epsilon) for epsilon in epsilons],
        )
        for each, scenario, size, compare in dict.fromkeys(
            key[1:5] for key in means if key[0] == "noise"
        )
    ]
    other = [
        [
            each,
            f"{means['classes', each]:.3f}",
            f"{means['turned', each]:.2f}",
            f"{means['turned back', each]:.2f}",
        ]
        for each in data
    ]
    return [
        Table(
            "AUC of who was among the samples, by samples of a class and directions; and the "
            "cosine of a class's first direction with its mean sample",
            ["", *(f"{count} samples" for count in counts)],
            membership,
        ),
        Table(
            "What else a reader with public samples learns: AUC of which classes a client has, "
            "from whole alone; cosine of a secretly rotated class's first direction with its mean "
            "sample, as it is and turned back",
            ["data", "classes held", "rotated", "turned back"],
            other,
        ),
        Table(
            "Adjusted Rand index of four groups at their known number under noise, by epsilon, "
            f"with delta {DELTA:g}; by classes half of epsilon is for the whole",
            ["data, groups, samples", *(f"{each:g}" for each in epsilons)],
            noise,
        ),
    ]


def _short(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def _seen(means: Mapping[tuple[Any, ...], float], kind: str, at: int) -> list[Any]:
    """The values of a part of the keys, in order."""
    return list(dict.fromkeys(key[at] for key in means if key[0] == kind))
