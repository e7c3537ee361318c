"""Measure the affine32 signature beside datasketch's, which is equal, and rensa's, which is not."""

from __future__ import annotations

import importlib.util
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import datasketch
import numpy as np

from benchmarks.data import uniform_support
from benchmarks.harness import Contender, Race, race, use_kernels
from benchmarks.report import Findings, Row, Table, at_least, duration, range_of, version
from modelkin import Support

LIBRARIES = ("numpy", "numba", "datasketch", "rensa")

H = 256
BATCH = 1024
"""Integers a call of update_batch. datasketch is fastest if the temporary of a call, a megabyte,
stays in the second-level cache, and far slower if malloc returns it every time.
"""
LARGE_BATCH = 100_000
"""A batch that a user without this knowledge would choose."""
SIZES = [(9_000_000, 93_750_000), (800_000, 8_333_333)]
QUICK_SIZES = [(3_000, 40_000)]

LIST = "datasketch, update_batch of ints"
LARGE = f"datasketch, update_batch of {LARGE_BATCH:,} ints"
ARRAY = "datasketch, update_batch of arrays"
RENSA = "rensa R-MinHash, pre-hashed"


def run(quick: bool) -> Findings:
    """Measure each K in a race of its own."""
    findings = [_one_size(k, m, 2 if quick else 7) for k, m in (QUICK_SIZES if quick else SIZES)]
    return Findings([row for rows, _ in findings for row in rows], [table for _, table in findings])


def _one_size(k: int, num_parameters: int, rounds: int) -> tuple[list[Row], Table]:
    support = uniform_support(num_parameters, k / num_parameters)
    contenders = _contenders(support)
    result = race(contenders, rounds)
    what = f"affine32, K = {support.k:,}, h = {H}"
    rows = [
        _exactness(what, support),
        *(
            at_least(
                f"{what}: time",
                duration(result.seconds("modelkin, numba").median),
                f"{other}: {duration(result.seconds(other).median)}",
                result.ratio(other, "modelkin, numba"),
                50,
            )
            for other in (LIST, LARGE)
        ),
        Row(
            f"{what}: time",
            duration(result.seconds("modelkin, numba").median),
            f"{ARRAY}: {duration(result.seconds(ARRAY).median)}",
            range_of(result.ratio(ARRAY, "modelkin, numba")),
        ),
    ]
    return rows, _table(what, support.k, contenders, result)


def _contenders(support: Support) -> list[Contender]:
    numbers, blocks = (
        support.indices.tolist(),
        np.array_split(support.indices, -(-support.k // BATCH)),
    )
    slow = 5 if support.k > 1_000_000 else None
    sign = partial(support.signature, num_perm=H)
    contenders = [
        Contender("modelkin, numba", sign, partial(use_kernels, "fast")),
        Contender("modelkin, numpy", sign, partial(use_kernels, "reference"), slow),
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
    """Compare all values, of both kernels, with datasketch's."""
    theirs = _by_list(support.indices.tolist()).hashvalues
    equal = []
    for which in ("reference", "fast"):
        use_kernels(which)
        equal.append(np.count_nonzero(support.signature(num_perm=H).values == theirs))
    ours = f"{min(equal)} of {H} values equal, numba and numpy"
    return Row(f"{what}: values", ours, version("datasketch"), "", "bit-exact", min(equal) == H)


def _table(what: str, k: int, contenders: list[Contender], result: Race) -> Table:
    rows = []
    for each in contenders:
        seconds = result.seconds(each.name)
        a_hash = "" if each.name == RENSA else f"{seconds.median / k / H * 1e9:.3f}"
        spread = f"{duration(seconds.least)} – {duration(seconds.most)}"
        ratio = result.ratio(each.name, "modelkin, numba").median
        rows.append([each.name, duration(seconds.median), spread, a_hash, f"{ratio:.3g}×"])
    columns = ["one thread each", "median", "least – most", "ns a hash", "of modelkin's"]
    return Table(f"{what[0].upper()}{what[1:]}", columns, rows)
