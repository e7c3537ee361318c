"""Measure supports on the wire: bits an index, and the time to write and read, digest included."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyroaring
import zstandard

from benchmarks.data import clustered_support, uniform_support
from benchmarks.harness import Contender, Race, Spread, race, use_kernels
from benchmarks.report import Findings, Row, Table
from modelkin import Support

LIBRARIES = ("numpy", "numba", "zstandard", "pyroaring")

M = 11_000_000
QUICK_M = 60_000
DENSITIES = (0.001, 0.01, 0.05, 0.096, 0.12)
TYPICAL = 0.096

ENCODERS = ("encode, numba", "encode, numpy", "encode, Roaring")
DECODERS = ("decode, numba", "decode, numpy", "decode, Roaring")


@dataclass(frozen=True, slots=True)
class Measured:
    """One support: the bits that an index takes in each form, the nanoseconds in each race."""

    name: str
    uniform: bool
    density: float
    bits: dict[str, float]
    nanoseconds: dict[str, Spread]

    @property
    def over_bound(self) -> float:
        """The excess of the native format over the bound, as a share."""
        return self.bits["modelkin"] / self.bits["bound"] - 1


def run(quick: bool) -> Findings:
    """Measure uniform supports at five densities, and one whose indices are clustered."""
    m, rounds = (QUICK_M, 2) if quick else (M, 9)
    uniform = [
        _measured(f"uniform, {density:.1%}", True, uniform_support(m, density), rounds)
        for density in DENSITIES
    ]
    clustered = _measured(f"clustered, {TYPICAL:.1%}", False, clustered_support(m, TYPICAL), rounds)
    return Findings(_judged(uniform, clustered), _tables([*uniform, clustered], m))


def _measured(name: str, uniform: bool, support: Support, rounds: int) -> Measured:
    data, roaring = support.to_bytes(), _roaring(support)
    assert Support.from_bytes(data) == support
    raw = support.indices.tobytes()
    sizes = {
        "modelkin": len(data),
        "Roaring": len(roaring),
        "bitmap": support.num_parameters / 8,
        "int32, zstd 1": len(zstandard.compress(raw, 1)),
        "int32, zstd 3": len(zstandard.compress(raw, 3)),
        "int32": len(raw),
    }
    bits = {form: 8 * size / support.k for form, size in sizes.items()}
    bits["bound"] = _bound(support)
    result = _raced(support, data, roaring, rounds)
    nanoseconds = {
        each: result.seconds(each).times(1e9 / support.k) for each in (*ENCODERS, *DECODERS)
    }
    return Measured(name, uniform, support.density, bits, nanoseconds)


def _bound(support: Support) -> float:
    """log2 C(M, K) / K: no code spends fewer bits an index on all supports of one size."""
    m, k = support.num_parameters, support.k
    logarithm = math.lgamma(m + 1) - math.lgamma(k + 1) - math.lgamma(m - k + 1)
    return logarithm / math.log(2) / k


def _roaring(support: Support) -> bytes:
    """pyroaring from its fastest input, an array.array, in its smallest form."""
    bitmap = pyroaring.BitMap(array("I", support.indices.tobytes()))
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def _from_roaring(data: bytes) -> Any:
    return np.frombuffer(pyroaring.BitMap.deserialize(data).to_array(), np.uint32)


def _raced(support: Support, data: bytes, roaring: bytes, rounds: int) -> Race:
    fast, plain = partial(use_kernels, "fast"), partial(use_kernels, "reference")
    write: Callable[[], Any] = support.to_bytes
    read: Callable[[], Any] = partial(Support.from_bytes, data)
    return race(
        [
            Contender("encode, numba", write, fast),
            Contender("encode, numpy", write, plain),
            Contender("encode, Roaring", partial(_roaring, support)),
            Contender("decode, numba", read, fast),
            Contender("decode, numpy", read, plain),
            Contender("decode, Roaring", partial(_from_roaring, roaring)),
        ],
        rounds,
    )


def _judged(uniform: list[Measured], clustered: Measured) -> list[Row]:
    dense = [each for each in uniform if each.density >= 0.0099]
    longest = max(dense, key=lambda each: each.over_bound)
    typical = next(each for each in uniform if each.name == f"uniform, {TYPICAL:.1%}")
    return [
        _against_bound(longest, "≤ 1.5% over", 0.015, ", the longest of 1% to 12%"),
        _against_bound(clustered, "below the bound", 0.0, ""),
        _smaller(typical, "int32", 6.5),
        _smaller(typical, "Roaring", 1.8),
        _decoded("numba", [*dense, clustered], 5),
        _decoded("numpy", [*dense, clustered], 12),
    ]


def _against_bound(each: Measured, target: str, most: float, note: str) -> Row:
    return Row(
        f"bits an index, {each.name}{note}",
        f"{each.bits['modelkin']:.2f}",
        f"log2 C(M, K) / K: {each.bits['bound']:.2f}",
        f"{each.over_bound:+.1%}",
        target,
        each.over_bound <= most,
    )


def _smaller(each: Measured, peer: str, target: float) -> Row:
    ratio = each.bits[peer] / each.bits["modelkin"]
    return Row(
        f"bits an index, {each.name}",
        f"{each.bits['modelkin']:.2f}",
        f"{peer}: {each.bits[peer]:.2f}",
        f"{ratio:.2f}×",
        f"≥ {target:g}×",
        ratio >= target,
    )


def _decoded(which: str, supports: list[Measured], most: float) -> Row:
    """Judge the slowest of them by the target."""
    name = f"decode, {which}"
    slowest = max(supports, key=lambda each: each.nanoseconds[name].median)
    spread = slowest.nanoseconds[name]
    roaring = slowest.nanoseconds["decode, Roaring"].median
    return Row(
        f"decode with {which}, digest verified, the slowest of 1% to 12%: {slowest.name}",
        f"{spread.median:.2f} ns an index ({spread.least:.2f}–{spread.most:.2f})",
        f"Roaring, nothing verified: {roaring:.2f} ns",
        f"{spread.median / roaring:.2g}×",
        f"≤ {most:g} ns",
        spread.median <= most,
    )


def _tables(supports: list[Measured], m: int) -> list[Table]:
    forms = ["bound", "modelkin", "Roaring", "bitmap", "int32, zstd 1", "int32, zstd 3", "int32"]
    sizes = [
        [each.name, *(f"{each.bits[form]:.2f}" for form in forms), f"{each.over_bound:+.1%}"]
        for each in supports
    ]
    times = [
        [each.name, *(f"{each.nanoseconds[name].median:.2f}" for name in (*ENCODERS, *DECODERS))]
        for each in supports
    ]
    return [
        Table(
            f"Bits an index, M = {m:,} (Roaring with runs optimised)",
            ["support", *forms, "modelkin over the bound"],
            sizes,
        ),
        Table("Nanoseconds an index", ["support", *ENCODERS, *DECODERS], times),
    ]
