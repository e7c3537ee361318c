"""Measure what a member and an aggregator compute: beside one read of the update.

One thread. The indices of a partition are never stored: splitting draws the rotations each time.
A member splits one update each round, so it passes the shards of the round before as ``out``;
"split into new memory" shows what the system's fresh pages add to an update that malloc cannot
keep.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from benchmarks.harness import (
    Contender,
    Race,
    extra_memory,
    fastest_read,
    race,
    use_kernels,
)
from benchmarks.report import Findings, Row, Table, at_most, duration
from modelkin.federation.shards.combine import mean
from modelkin.federation.shards.fixed_point import FixedPoint
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.quantization import quantize
from modelkin.federation.shards.thinning import Thinning
from modelkin.federation.sharing import new_key, public_key
from modelkin.federation.sharing.pairwise_masks import add_keystream, pair_secret
from modelkin.federation.sharing.sealing import seal, unseal

LIBRARIES = ("numpy", "numba", "cryptography")

SIZES, QUICK_SIZES = (8_000_000, 10_000_000), (40_000,)
SHARDS, ONE_IN = 10, 16
SPLIT_READS, THIN_READS, MASK_NS = 8, 10, 2.0

Floats = npt.NDArray[np.float32]


def run(quick: bool) -> Findings:
    """Race the kernels with one read, then measure sealing and memory."""
    rows, tables = [], []
    try:
        use_kernels("auto")
        for size in QUICK_SIZES if quick else SIZES:
            update = np.random.default_rng(0).standard_normal(size).astype(np.float32)
            raced = race([*_contenders(update), *fastest_read(update)], 2 if quick else 9)
            rows += _rows(raced, update)
            tables.append(_times(raced, size))
    finally:
        use_kernels("auto")
    return Findings(rows, tables)


def _contenders(update: Floats) -> list[Contender]:
    partition, thinning = Partition(update.size, SHARDS, 7), Thinning(update.size, ONE_IN, 7)
    parts, kept = partition.split(update), thinning.take(update)
    last = np.empty_like(update)
    words = FixedPoint(8.0).encode(update, 0.1)
    private, other = new_key(), new_key()
    secret = pair_secret(private, public_key(other))
    data, info = update.tobytes(), b"bench"
    sealed = seal(data, public_key(private), info)
    return [
        Contender("split", partial(partition.split, update, last)),
        Contender("split into new memory", partial(partition.split, update)),
        Contender("join", partial(partition.join, parts)),
        Contender("thin", partial(thinning.take, update)),
        Contender("spread", partial(thinning.spread, kept)),
        Contender("quantize", partial(quantize, update, 7)),
        Contender("encode", partial(FixedPoint(8.0).encode, update, 0.1)),
        Contender("mask", partial(add_keystream, words, secret, b"label", subtract=False)),
        Contender("mean of 5", partial(mean, [update] * 5, [1.0, 2.0, 3.0, 4.0, 5.0])),
        Contender("seal", partial(seal, data, public_key(other), info)),
        Contender("unseal", partial(unseal, sealed, private, info)),
        Contender("copy", update.copy),
    ]


def _rows(raced: Race, update: Floats) -> list[Row]:
    read = raced.fastest([each.name for each in fastest_read(update)])
    one = raced.seconds(read).median
    rows = [
        at_most(
            f"M = {update.size:,}, A = {SHARDS}, c = {ONE_IN}: {name}, over one read",
            duration(raced.seconds(name).median),
            f"{read}: {duration(one)}",
            raced.ratio(name, read),
            target,
        )
        for name, target in (("split", SPLIT_READS), ("thin", THIN_READS))
    ]
    mask = raced.seconds("mask").times(1e9 / update.size).median
    rows.append(
        Row(
            f"M = {update.size:,}, A = {SHARDS}, c = {ONE_IN}: a mask, each value and neighbour",
            f"{mask:.2f} ns",
            "",
            "",
            f"≤ {MASK_NS:g} ns",
            mask <= MASK_NS,
        )
    )
    rows.append(_memory(update))
    return rows


def _memory(update: Floats) -> Row:
    """The memory that a member takes for an update beyond the shards themselves."""
    partition = Partition(update.size, SHARDS, 7)
    grown = extra_memory(lambda: partition.split(update))
    beyond = 0 if grown is None else max(0, grown - update.nbytes)
    shard = update.nbytes // SHARDS
    return Row(
        f"M = {update.size:,}, A = {SHARDS}, c = {ONE_IN}: memory of split beyond its result",
        f"{beyond / 2**20:.1f} MiB",
        f"a shard: {shard / 2**20:.1f} MiB",
        "",
        "≤ 1 shard",
        beyond <= shard,
    )


def _times(raced: Race, size: int) -> Table:
    rows = []
    for name in raced.samples:
        spread = raced.seconds(name)
        rate = 4 * size / spread.median / 1e9
        rows.append([name, duration(spread.median), duration(spread.least), f"{rate:.2f} GB/s"])
    title = (
        f"Times for M = {size:,} float32; A = {SHARDS}, c = {ONE_IN}; the rate is of the update's "
        f"bytes"
    )
    return Table(title, ["", "median", "least", "rate"], rows)
