"""Draws, partition, thinning, rounding and mean of tensors on any device, bit for bit as in numpy.

Tensors on the CPU go through the compiled loops of ``modelkin.federation.shards`` without a copy.
On other devices the same integers are computed by torch: int64 wraps as uint64 does, and a shift to
the right is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from modelkin.federation.shards import combine
from modelkin.federation.shards import draws as core_draws
from modelkin.federation.shards.partition import Partition
from modelkin.federation.shards.quantization import BUCKET, LEVELS, Quantized
from modelkin.federation.shards.quantization import quantize as core_quantize
from modelkin.federation.shards.thinning import Thinning
from modelkin.torch.words import shift_right, to_signed_int

__all__ = [
    "dequantize",
    "draws",
    "join_stretch",
    "mean",
    "positions",
    "quantize",
    "split_stretch",
    "spread",
    "take",
]

STEP: int = 1 << 20
"""The number of values whose draws are computed at a time: 8 MiB an integer array."""


_GOLDEN: Final = to_signed_int(0x9E3779B97F4A7C15)
_FACTORS: Final = (to_signed_int(0xBF58476D1CE4E5B9), to_signed_int(0x94D049BB133111EB))


def draws(seed: int, count: int, first: int, device: torch.device) -> Tensor:
    """Numbers of a stream, as int64 with the bits of the core's uint64, shape ``(count,)``."""
    x = torch.arange(first, first + count, device=device)
    x = x.mul_(_GOLDEN).add_(to_signed_int(seed))
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        x = (x ^ shift_right(x, shift)).mul_(factor)
    return x ^ shift_right(x, 31)


def below(bits: Tensor, bound: int) -> Tensor:
    """Draws from 0 to ``bound - 1``, for a bound up to 2^31."""
    return shift_right(shift_right(bits, 32) * bound, 32)


def split_stretch(partition: Partition, values: Tensor, first_block: int) -> list[Tensor]:
    """The shards' parts of whole blocks of a vector, as :meth:`Partition.split_stretch`.

    Args:
        partition: deals the whole vector, of which the values are a stretch.
        values: the values of the blocks, four bytes an entry, shape ``(n,)``.
        first_block: the number of the first block.
    """
    if on_host(values):
        parts = partition.split_stretch(values.detach().numpy(), first_block)
        return [torch.from_numpy(part) for part in parts]
    return _dealt(partition, values, first_block)


def join_stretch(partition: Partition, parts: Sequence[Tensor], first_block: int) -> Tensor:
    """The inverse of :func:`split_stretch`."""
    if on_host(parts[0]):
        joined = partition.join_stretch([part.numpy() for part in parts], first_block)
        return torch.from_numpy(joined)
    return _collect(partition, parts, first_block)


def positions(thinning: Thinning, device: torch.device) -> Tensor:
    """The kept positions, ascending, int64 of shape ``(count,)``, as :attr:`Thinning.positions`."""
    at = torch.arange(thinning.count, device=device)
    if thinning.one_in == 1:
        return at
    drawn = draws(thinning.seed, len(at), thinning.first_block, device)
    return at * thinning.one_in + below(drawn, thinning.one_in)


def take(thinning: Thinning, values: Tensor) -> Tensor:
    """Take the kept values of some float32 values, as :meth:`Thinning.take`."""
    if thinning.one_in == 1:
        return values
    if on_host(values):
        return torch.from_numpy(thinning.take(values.numpy()))
    return values[positions(thinning, values.device)]


def spread(thinning: Thinning, kept: Tensor) -> Tensor:
    """The inverse of :func:`take`, with zeros at other positions, shape ``(size,)``."""
    if thinning.one_in == 1:
        return kept
    values = torch.zeros(thinning.size, dtype=kept.dtype, device=kept.device)
    values[positions(thinning, kept.device)] = kept
    return values


def mean(cells: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """``sum(w * v) / sum(w)`` in float64 in the given order, rounded once to float32."""
    if on_host(cells[0]):
        return torch.from_numpy(combine.mean([cell.numpy() for cell in cells], weights))
    summed = torch.zeros(cells[0].shape, dtype=torch.float64, device=cells[0].device)
    for values, weight in zip(cells, weights, strict=True):
        summed += values.double() * weight  # add_(alpha=) may fuse, and round once less
    return (summed / float(sum(weights))).float()


def quantize(values: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Round float32 values at random to int8: codes and scales, as the core's ``quantize``."""
    if on_host(values):
        rounded = core_quantize(values.numpy(), seed)
        return torch.from_numpy(rounded.codes), torch.from_numpy(rounded.scales)
    buckets = -(-len(values) // BUCKET)
    padded = values.new_zeros(buckets * BUCKET)
    padded[: len(values)] = values
    scales = padded.view(buckets, BUCKET).abs().amax(1) if buckets else values.new_zeros(0)
    divisor = torch.where(scales > 0, scales, 1.0).repeat_interleave(BUCKET)[: len(values)]
    steps = values / divisor * float(LEVELS)
    bits = shift_right(draws(seed, len(values), 0, values.device), 40)
    low = steps.floor()
    return (low + (bits.float() * 2.0**-24 < steps - low)).to(torch.int8), scales


def dequantize(codes: Tensor, scales: Tensor) -> Tensor:
    """The rounded values, float32, as the core's ``Quantized.values``."""
    if on_host(codes):
        return torch.from_numpy(Quantized(codes.numpy(), scales.numpy()).values())
    return codes.float() * (scales / float(LEVELS)).repeat_interleave(BUCKET)[: len(codes)]


def on_host(values: Tensor) -> bool:
    """Whether numpy reads the tensor's own memory."""
    return values.device.type == "cpu"


def _dealt(partition: Partition, values: Tensor, first_block: int) -> list[Tensor]:
    shards = partition.shards
    if shards == 1:
        return [values]
    parts = list(torch.empty_like(values).split(_sizes(partition, len(values), first_block)))
    for at, columns in _columns(partition, len(values), first_block, values.device):
        block = values[at * shards : (at + len(columns)) * shards].view(-1, shards)
        dealt = block.gather(1, columns)
        for shard, part in enumerate(parts):
            part[at : at + len(columns)] = dealt[:, shard]
    for place, shard in _last_block(partition, len(values), first_block):
        parts[shard][-1] = values[place]
    return parts


def _collect(partition: Partition, parts: Sequence[Tensor], first_block: int) -> Tensor:
    shards, size = partition.shards, sum(len(part) for part in parts)
    if shards == 1:
        return parts[0]
    values = parts[0].new_empty(size)
    for at, columns in _columns(partition, size, first_block, values.device):
        dealt = torch.stack([part[at : at + len(columns)] for part in parts], dim=1)
        block = values[at * shards : (at + len(columns)) * shards].view(-1, shards)
        block.scatter_(1, columns, dealt)
    for place, shard in _last_block(partition, size, first_block):
        values[place] = parts[shard][-1]
    return values


def _columns(partition: Partition, size: int, first_block: int, device: torch.device) -> Any:
    """Yield, for some whole blocks at a time, the first one and the columns of shards' values."""
    shards, whole = partition.shards, size // partition.shards
    seed = core_draws.stream(partition.seed, core_draws.Label.ROTATIONS)
    step = max(1, STEP // shards)
    shard = torch.arange(shards, device=device)
    for at in range(0, whole, step):
        count = min(step, whole - at)
        turns = below(draws(seed, count, first_block + at, device), shards)
        yield at, (shard - turns[:, None]) % shards


def _last_block(partition: Partition, size: int, first_block: int) -> list[tuple[int, int]]:
    """Each place of a short last block, with its shard."""
    shards, (whole, rest) = partition.shards, divmod(size, partition.shards)
    seed = core_draws.stream(partition.seed, core_draws.Label.ROTATIONS)
    turn = int(core_draws.below(core_draws.draws(seed, 1, first_block + whole), shards)[0])
    return [(whole * shards + i, (turn + i) % shards) for i in range(rest)]


def _sizes(partition: Partition, size: int, first_block: int) -> list[int]:
    sizes: list[int] = partition.sizes(first_block, size).tolist()
    return sizes
