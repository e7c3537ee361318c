"""Compare the signature schemes: time, accuracy, and banding.

The default scheme was chosen by these figures; see ``docs/method.md``. Accuracy is measured on
pairs of supports of known overlap, with one seed per trial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data import uniform_support
from benchmarks.harness import Contender, Race, fastest_read, race, use_kernels
from benchmarks.report import Findings, Row, Table, at_least, at_most, duration
from benchmarks.retrieval.peers import installed
from modelkin import Support
from modelkin.core.kernels import fast
from modelkin.core.sketching.banding import Banding, collision_probability
from modelkin.core.sketching.schemes import permutations

LIBRARIES = ("numpy", "numba", "rensa")

H = 256
SIZES = (100_000, 1_000_000, 9_000_000)
QUICK_SIZES = (3_000,)
DENSITY = 0.096
TRIALS = {50: 4000, 200: 4000, 1_000: 4000, 10_000: 4000, 100_000: 2000, 1_000_000: 500}
QUICK_TRIALS = {50: 40, 2_000: 20}
OVERLAP = 0.5
"""S of the pairs, which makes their J a third."""
BATCH_SIZE = 50
"""Trials that share a pair, because making one takes longer than signing it."""
BANDINGS = (Banding(128, 2), Banding(85, 3), Banding(64, 4))

AFFINE, FAST, RENSA = "affine32", "fss32", "rensa R-MinHash, pre-hashed"

Indices = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The equal values of two signatures, trial by trial.

    Attributes:
        jaccard: of the two supports, exactly.
        equal: bool, shape ``(trials, H)``.
    """

    jaccard: float
    equal: npt.NDArray[np.bool_]

    def error(self) -> tuple[float, float]:
        """The mean squared error of J over ``J (1 - J) / h``, and its own standard error."""
        squares = (self.equal.mean(axis=1) - self.jaccard) ** 2
        squares /= self.jaccard * (1 - self.jaccard) / H
        return float(squares.mean()), float(squares.std() / math.sqrt(squares.size))

    def meeting(self, banding: Banding) -> float:
        """The share of trials in which the two supports shared a bucket."""
        bands = self.equal[:, : banding.num_values].reshape(-1, banding.bands, banding.rows)
        return float(np.mean(np.any(np.all(bands, axis=2), axis=1)))


def run(quick: bool) -> Findings:
    """Measure time, then accuracy, then banding."""
    use_kernels("fast")
    found = Findings([])
    for k in QUICK_SIZES if quick else SIZES:
        rows, table = _times(k, 2 if quick else 9)
        found.rows.extend(rows)
        found.tables.append(table)
    trials = QUICK_TRIALS if quick else TRIALS
    agreements = {key: each for k in trials for key, each in _agreements(k, trials[k]).items()}
    found.rows.append(_worst(agreements))
    found.tables.extend([_accuracy(trials, agreements), _bands(trials, agreements)])
    return found


def _times(k: int, rounds: int) -> tuple[list[Row], Table]:
    support = uniform_support(round(k / DENSITY), DENSITY)
    reads = fastest_read(support.indices)
    contenders = [
        *reads,
        Contender(AFFINE, partial(support.signature, num_perm=H, scheme=AFFINE)),
        Contender(FAST, partial(support.signature, num_perm=H, scheme=FAST)),
    ]
    if installed("rensa"):
        contenders.append(Contender(RENSA, _by_rensa(support)))
    result = race(contenders, rounds)
    read = result.fastest([each.name for each in reads])
    names = [read, *(each.name for each in contenders[len(reads) :])]
    return _judged(support.k, result, read), _table(support.k, result, names)


def _judged(k: int, result: Race, read: str) -> list[Row]:
    ours = duration(result.seconds(FAST).median)

    def beside(name: str) -> str:
        return f"{name}: {duration(result.seconds(name).median)}"

    what = f"fss32, K = {k:,}, h = {H}"
    rows = [at_most(f"{what}: over one read", ours, beside(read), result.ratio(FAST, read), 5)]
    if installed("rensa"):
        target = 1.5 if k >= 1_000_000 else 1
        ratio = result.ratio(RENSA, FAST)
        rows.append(at_least(f"{what}: time", ours, beside(RENSA), ratio, target))
    return rows


def _table(k: int, result: Race, names: Sequence[str]) -> Table:
    rows, read = [], names[0]
    for name in names:
        seconds = result.seconds(name)
        spread = f"{duration(seconds.least)} – {duration(seconds.most)}"
        ratio = result.ratio(name, read).median
        rows.append([name, duration(seconds.median), spread, f"{ratio:.3g}×"])
    columns = ["one thread each", "median", "least – most", "of one read of the indices"]
    return Table(f"Signatures of K = {k:,}, h = {H}", columns, rows)


def _by_rensa(support: Support) -> Callable[[], Any]:
    import rensa

    hashes, ends = support.indices.astype(np.uint64), [0, support.k]
    return partial(rensa.RMinHash.digest_matrix_from_flat_token_hashes, hashes, ends, H, 1)


def _agreements(k: int, trials: int) -> dict[tuple[str, int], Agreement]:
    """The same pairs and seeds for both schemes."""
    rng, shared = np.random.default_rng(k), round(OVERLAP * k)
    equal = {name: np.empty((trials, H), np.bool_) for name in (AFFINE, FAST)}
    for seed in range(trials):
        if seed % BATCH_SIZE == 0 or k <= 1_000:
            pair = _pair(k, shared, rng)
        drawn: Any = permutations(AFFINE, H, seed)
        signed = [fast.minhash32(indices, *drawn) for indices in pair]
        equal[AFFINE][seed] = signed[0] == signed[1]
        signed = [fast.fss32(indices, H, seed) for indices in pair]
        equal[FAST][seed] = signed[0] == signed[1]
    return {(name, k): Agreement(shared / (2 * k - shared), each) for name, each in equal.items()}


def _pair(k: int, shared: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Two supports of k indices with a common part, in a space of a hundred times k parameters."""
    union = 2 * k - shared
    drawn = rng.permutation(np.unique(rng.integers(0, 100 * union, union * 21 // 20 + 20)))
    some = drawn[:union].astype(np.uint32)
    return np.sort(some[:k]), np.sort(some[k - shared :])


def _worst(agreements: dict[tuple[str, int], Agreement]) -> Row:
    errors = {k: each.error() for (name, k), each in agreements.items() if name == FAST}
    k = max(errors, key=lambda k: errors[k][0])
    ratio, own = errors[k]
    return Row(
        f"fss32: squared error of J over J (1 - J) / h, the greatest of K = {min(errors):,} to "
        f"{max(errors):,}",
        f"{ratio:.3f} ± {own:.3f}, at K = {k:,}",
        "MinHash in theory: 1",
        "",
        "≤ 1.05, but for twice its standard error",
        ratio - 2 * own <= 1.05,
    )


def _accuracy(trials: dict[int, int], agreements: dict[tuple[str, int], Agreement]) -> Table:
    rows = []
    for k, count in trials.items():
        cells = [agreements[name, k].error() for name in (AFFINE, FAST)]
        rows.append([f"{k:,}", f"{count:,}", *(f"{error:.2f} ± {own:.2f}" for error, own in cells)])
    columns = ["K", "seeds", AFFINE, FAST]
    return Table("Squared error of J over J (1 - J) / h, at S = 0.5", columns, rows)


def _bands(trials: dict[int, int], agreements: dict[tuple[str, int], Agreement]) -> Table:
    rows = []
    for k, count in trials.items():
        for banding in BANDINGS:
            curve = collision_probability(agreements[FAST, k].jaccard, banding)
            met = [agreements[name, k].meeting(banding) for name in (AFFINE, FAST)]
            spread = math.sqrt(curve * (1 - curve) / count)
            cells = [f"{share:.3f}" for share in met]
            name = f"{banding.bands} × {banding.rows}"
            rows.append([f"{k:,}", name, f"{curve:.3f} ± {spread:.3f}", *cells])
    columns = ["K", "bands × rows", "1 - (1 - J^r)^b", AFFINE, FAST]
    return Table("Share of the pairs that meet in a bucket, at S = 0.5", columns, rows)
