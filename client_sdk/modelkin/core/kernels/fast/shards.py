"""The loops of ``reference_shards``, compiled: each word is read and written once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.loops import compile_loop, read_only, scratch

Words = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]


def draw(seed: int, first: int, count: int) -> Wide:
    out = np.empty(count, np.uint64)
    _draw(np.uint64(seed), np.uint64(first), out)
    return out


@compile_loop
def _draw(seed: Any, first: Any, out: Any) -> None:
    place = seed + first * np.uint64(0x9E3779B97F4A7C15)
    for i in range(out.size):
        x = (place ^ (place >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[i] = x ^ (x >> np.uint64(31))
        place += np.uint64(0x9E3779B97F4A7C15)


def deal(
    source: Words,
    seed: int,
    first: int,
    starts: npt.NDArray[np.int64],
    out: Words | None = None,
) -> Words:
    out = np.empty_like(source) if out is None else out
    turns = scratch(_step(starts.size), np.uint64)
    _deal(read_only(source), np.uint64(seed), np.uint64(first), read_only(starts), turns, out)
    return out


@compile_loop
def _deal(source: Any, seed: Any, first: Any, starts: Any, turns: Any, out: Any) -> None:
    shards, whole = starts.size, source.size // starts.size
    for at in range(0, whole, turns.size):
        count = min(turns.size, whole - at)
        _turn(seed, first + np.uint64(at), np.uint64(shards), count, turns)
        block = source[at * shards :]
        for shard in range(shards):
            target = out[starts[shard] + at :]
            for i in range(count):
                place = np.uint64(np.uint64(shard) - turns[i])
                place = min(place, np.uint64(place + np.uint64(shards)))
                target[np.uint64(i)] = block[np.uint64(i) * np.uint64(shards) + place]
    last: Any = _below(seed, first + np.uint64(whole), shards)
    for i in range(whole * shards, source.size):
        out[starts[last] + whole] = source[i]
        last = last + 1 if last + 1 < shards else 0


def collect(parts: Words, seed: int, first: int, starts: npt.NDArray[np.int64]) -> Words:
    out = np.empty_like(parts)
    turns = scratch(_step(starts.size), np.uint64)
    _collect(read_only(parts), np.uint64(seed), np.uint64(first), read_only(starts), turns, out)
    return out


@compile_loop
def _collect(parts: Any, seed: Any, first: Any, starts: Any, turns: Any, out: Any) -> None:
    shards, whole = starts.size, out.size // starts.size
    for at in range(0, whole, turns.size):
        count = min(turns.size, whole - at)
        _turn(seed, first + np.uint64(at), np.uint64(shards), count, turns)
        block = out[at * shards :]
        for shard in range(shards):
            source = parts[starts[shard] + at :]
            for i in range(count):
                place = np.uint64(np.uint64(shard) - turns[i])
                place = min(place, np.uint64(place + np.uint64(shards)))
                block[np.uint64(i) * np.uint64(shards) + place] = source[np.uint64(i)]
    last: Any = _below(seed, first + np.uint64(whole), shards)
    for i in range(whole * shards, out.size):
        out[i] = parts[starts[last] + whole]
        last = last + 1 if last + 1 < shards else 0


def _step(shards: int) -> int:
    """The blocks of a step, as measured: few streams want few, many want long runs of each."""
    return 128 if shards <= 32 else 512


@compile_loop
def _turn(seed: Any, first: Any, bound: Any, count: Any, turns: Any) -> None:
    """The rotations of some blocks."""
    place = seed + first * np.uint64(0x9E3779B97F4A7C15)
    for i in range(count):
        x = (place ^ (place >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        turns[i] = ((x >> np.uint64(32)) * bound) >> np.uint64(32)
        place += np.uint64(0x9E3779B97F4A7C15)


@compile_loop
def _below(seed: Any, place: Any, bound: Any) -> Any:
    x = seed + place * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.int64(((x >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


def take_one_in(source: Words, seed: int, first: int, one_in: int, count: int) -> Words:
    out = np.empty(count, np.uint32)
    _take_one_in(read_only(source), np.uint64(seed), np.uint64(first), one_in, out)
    return out


@compile_loop
def _take_one_in(source: Any, seed: Any, first: Any, one_in: Any, out: Any) -> None:
    for block in range(out.size):
        out[block] = source[block * one_in + _below(seed, first + np.uint64(block), one_in)]


def warm() -> None:
    """Compile every loop of this module."""
    words = np.zeros(1, np.uint32)
    starts = np.zeros(1, np.int64)
    draw(1, 0, 1)
    deal(words, 1, 0, starts)
    collect(words, 1, 0, starts)
    take_one_in(words, 1, 0, 1, 1)
