"""Shared draws, and the moves of 32-bit words that they decide: dealing to shards, one in c."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Wide = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
BLOCK = 1 << 16
"""Draws a step: numpy's temporaries stay in the second-level cache."""


def draw(seed: int, first: int, count: int) -> Wide:
    """Numbers ``first`` to ``first + count - 1`` of a stream: ``mix(seed + i * GOLDEN)``."""
    out = np.empty(count, np.uint64)
    for at in range(0, count, BLOCK):
        place = np.arange(first + at, first + min(at + BLOCK, count), dtype=np.uint64)
        out[at : at + BLOCK] = mix(place * GOLDEN + np.uint64(seed))
    return out


def mix(x: Any) -> Wide:
    """Apply the finaliser of splitmix64, a bijection of 64-bit words.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    wide: Wide = x ^ (x >> np.uint64(31))
    return wide


def deal(
    source: Words,
    seed: int,
    first: int,
    starts: npt.NDArray[np.int64],
    out: Words | None = None,
) -> Words:
    """Deal each block of A words one to each shard, rotated by a draw.

    Args:
        source: whole blocks but for the last one, shape ``(n,)``.
        seed: 0 to 2^64 - 1; equal seeds rotate blocks alike.
        first: the block's number that the source begins with.
        starts: where each shard begins in the result, shape ``(A,)``.
        out: takes the result, shape ``(n,)``, contiguous; None for a new array.

    Returns:
        The words of each shard in ascending order, shape ``(n,)``.
    """
    out = np.empty_like(source) if out is None else out
    for target, place in _deal_places(source.size, seed, first, starts):
        out[target] = source[place]
    return out


def collect(parts: Words, seed: int, first: int, starts: npt.NDArray[np.int64]) -> Words:
    """The inverse of :func:`deal`."""
    out = np.empty_like(parts)
    for target, place in _deal_places(parts.size, seed, first, starts):
        out[place] = parts[target]
    return out


def _deal_places(n: int, seed: int, first: int, starts: npt.NDArray[np.int64]) -> Any:
    """Yield the places of some blocks' words in the shards, and in the vector."""
    shards = starts.size
    step = max(1, BLOCK // shards)
    for at in range(0, -(-n // shards), step):
        count = min(step, -(-n // shards) - at)
        turns = (draw(seed, first + at, count) >> np.uint64(32)) * np.uint64(shards)
        place = np.arange(at * shards, (at + count) * shards).reshape(count, shards)
        turn = (turns >> np.uint64(32)).astype(np.int64)[:, None]
        shard = (np.arange(shards) + turn) % shards
        target = starts[shard] + np.arange(at, at + count)[:, None]
        yield target[place < n], place[place < n]


def take_one_in(source: Words, seed: int, first: int, one_in: int, count: int) -> Words:
    """Take from each block of c words the one that is drawn, shape ``(count,)``.

    Args:
        source: shape ``(n,)``; the last block may be short, and then give none.
        seed: 0 to 2^64 - 1; equal seeds keep the same places.
        first: the block's number that the source begins with.
        one_in: c.
        count: how many words are kept.
    """
    out = np.empty(count, np.uint32)
    for at in range(0, count, BLOCK):
        blocks = np.arange(at, min(at + BLOCK, count))
        places = (draw(seed, first + at, blocks.size) >> np.uint64(32)) * np.uint64(one_in)
        out[blocks] = source[blocks * one_in + (places >> np.uint64(32)).astype(np.int64)]
    return out
