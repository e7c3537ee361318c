"""Measure affine32 signatures, probed and hashed, beside datasketch's and one read of the indices.

datasketch's values are equal, rensa's are not.
"""

from __future__ import annotations

import importlib.util
import operator
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasketch
import numpy as np

from benchmarks.data import uniform_support
from benchmarks.harness import Contender, Race, fastest_read, race, use_kernels
from benchmarks.plots import Curve, draw_curves
from benchmarks.report import Findings, Row, Table, at_least, at_most, duration, version
from modelkin import Support
from modelkin.core.kernels import fast
from modelkin.core.packed import PackedSupport
from modelkin.core.sketching.probe_tables import Permutations, make_table

LIBRARIES = ("numpy", "numba", "datasketch", "rensa")

H = 256
DENSITY = 0.096
BATCH = 1024
"""Integers a call of update_batch. datasketch is fastest if the temporary of a call, a megabyte,
stays in the second-level cache, and far slower if malloc returns it every time.
"""
LARGE_BATCH = 100_000
"""A batch that a user without this knowledge would choose."""
SIZES = [(9_000_000, 93_750_000, 3_000), (800_000, 8_333_333, 500)]
"""K, M, and how many times faster than datasketch a signature should be."""
QUICK_SIZES = [(3_000, 40_000, 1)]
CURVE = (1_000, 10_000, 100_000, 800_000, 9_000_000)
"""K of the plot, at the density of SIZES."""
PLOT = Path(__file__).parents[2] / "docs" / "benchmarks" / "signatures.svg"
READ = "one read of the indices"

PROBED = "modelkin, probed in the indices"
PACKED = "modelkin, probed in the packed form"
NUMPY = "modelkin, numpy, probed in the indices"
DIRECT = "modelkin, every index hashed"
TABLE = "modelkin, the probe table, made once a space"

LIST = "datasketch, update_batch of ints"
LARGE = f"datasketch, update_batch of {LARGE_BATCH:,} ints"
ARRAY = "datasketch, update_batch of arrays"
RENSA = "rensa R-MinHash, pre-hashed"


def run(quick: bool) -> Findings:
    """Measure each K in a race of its own."""
    findings = [_one_size(*size, 2 if quick else 7) for size in (QUICK_SIZES if quick else SIZES)]
    if not quick:
        draw_curves(PLOT, curves(CURVE), "indices of the support, K", "a signature of 256 values")
    return Findings([row for rows, _ in findings for row in rows], [table for _, table in findings])


def _one_size(k: int, num_parameters: int, target: float, rounds: int) -> tuple[list[Row], Table]:
    support = uniform_support(num_parameters, k / num_parameters)
    contenders, reads = _contenders(support), fastest_read(support.indices)
    _settle(support)
    result = race([*contenders, *reads], rounds)
    what = f"affine32, K = {support.k:,}, h = {H}"
    peer = result.fastest([LIST, LARGE, ARRAY])
    read = result.fastest([each.name for each in reads])
    rows = [
        _exactness(what, support),
        at_least(
            f"{what}: time",
            duration(result.seconds(PROBED).median),
            f"{peer}: {duration(result.seconds(peer).median)}",
            result.ratio(peer, PROBED),
            target,
        ),
        *(
            at_most(
                f"{what}: {ours.split(', ')[1]}, over one read",
                duration(result.seconds(ours).median),
                f"{read}: {duration(result.seconds(read).median)}",
                result.ratio(ours, read),
                1,
            )
            for ours in (PROBED, PACKED)
        ),
    ]
    return rows, _table(what, [each.name for each in (*contenders, *reads)], result)


def curves(sizes: Sequence[int]) -> list[Curve]:
    """The time of each way to a signature, and of one read, at several K."""
    times: dict[str, list[float]] = {}
    for k in sizes:
        support = uniform_support(int(k / DENSITY), DENSITY)
        _settle(support)
        ways = {each.name: each for each in _contenders(support)}
        contenders = [ways[name] for name in (PROBED, PACKED, DIRECT, LIST)]
        reads = fastest_read(support.indices)
        result = race([*contenders, *reads], 3)
        for each in contenders:
            times.setdefault(each.name, []).append(result.seconds(each.name).median)
        fastest = result.fastest([each.name for each in reads])
        times.setdefault(READ, []).append(result.seconds(fastest).median)
    return [Curve(name, sizes, seconds) for name, seconds in times.items()]


def _settle(support: Support) -> None:
    """Sign the support until its space has its table."""
    end = time.perf_counter() + 0.1
    while time.perf_counter() < end:
        support.signature(num_perm=H)


def _contenders(support: Support) -> list[Contender]:
    numbers, blocks = (
        support.indices.tolist(),
        np.array_split(support.indices, -(-support.k // BATCH)),
    )
    slow = 5 if support.k > 1_000_000 else None
    sign, quickly = partial(support.signature, num_perm=H), partial(use_kernels, "fast")
    packed = PackedSupport.pack(support)
    drawn = Permutations("affine32", support.num_parameters, H, 1)
    contenders = [
        Contender(PROBED, sign, quickly),
        Contender(PACKED, partial(packed.signature, num_perm=H), quickly),
        Contender(NUMPY, sign, partial(use_kernels, "reference")),
        Contender(DIRECT, partial(_hash_all, support, drawn), quickly),
        Contender(TABLE, partial(make_table, drawn, drawn.depth(support.k)), quickly),
        Contender(LIST, partial(_by_list, numbers), rounds=slow),
        Contender(LARGE, partial(_by_list, numbers, LARGE_BATCH), rounds=slow),
        Contender(ARRAY, partial(_by_array, blocks), rounds=slow),
    ]
    if importlib.util.find_spec("rensa") is not None:
        contenders.append(Contender(RENSA, _by_rensa(support)))
    return contenders


def _by_list(numbers: list[int], batch: int = BATCH) -> datasketch.MinHash:
    """datasketch as documented; the list is made before the clock starts."""
    minhash = datasketch.MinHash(num_perm=H, seed=1, scheme="affine32", hashfunc=operator.index)
    for begin in range(0, len(numbers), batch):
        minhash.update_batch(numbers[begin : begin + batch])
    return minhash


def _by_array(blocks: list[Any]) -> datasketch.MinHash:
    """A whole array as one value of a batch: undocumented, but accepted, and without integers."""
    minhash = datasketch.MinHash(
        num_perm=H, seed=1, scheme="affine32", hashfunc=lambda block: block
    )
    for block in blocks:
        minhash.update_batch((block,))
    return minhash


def _by_rensa(support: Support) -> Callable[[], Any]:
    import rensa

    hashes, ends = support.indices.astype(np.uint64), [0, support.k]
    return partial(rensa.RMinHash.digest_matrix_from_flat_token_hashes, hashes, ends, H, 1)


def _exactness(what: str, support: Support) -> Row:
    """Compare all values, probed and hashed by both kernels, with datasketch's."""
    theirs = _by_list(support.indices.tolist()).hashvalues
    drawn = Permutations("affine32", support.num_parameters, H, 1)
    equal = [np.count_nonzero(_hash_all(support, drawn) == theirs)]
    for which in ("reference", "fast"):
        use_kernels(which)
        signatures = (support.signature(num_perm=H), PackedSupport.pack(support).signature(H))
        equal.extend(np.count_nonzero(each.values == theirs) for each in signatures)
    ours = f"{min(equal)} of {H} values equal, probed and hashed, numba and numpy"
    return Row(f"{what}: values", ours, version("datasketch"), "", "bit-exact", min(equal) == H)


def _hash_all(support: Support, drawn: Permutations) -> Any:
    indices: Any = support.indices
    return fast.minhash32(indices, *drawn.factors)


def _table(what: str, names: list[str], result: Race) -> Table:
    rows = []
    for name in names:
        seconds = result.seconds(name)
        spread = f"{duration(seconds.least)} – {duration(seconds.most)}"
        ratio = result.ratio(name, PROBED).median
        rows.append([name, duration(seconds.median), spread, f"{ratio:,.3g}×"])
    columns = ["one thread each", "median", "least – most", "of modelkin's"]
    return Table(f"{what[0].upper()}{what[1:]}", columns, rows)
