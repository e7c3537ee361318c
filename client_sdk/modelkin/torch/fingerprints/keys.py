"""The keys of lines and their sets on their own device, in plain torch operations.

They equal those of ``modelkin.core.kernels.reference.lines``, bit for bit. Ranks and keys are words
of 64 bits, which are signed here. Of equal magnitudes torch sorts any first, so no place is taken
from an order where some are equal.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor

from modelkin.core.fingerprints.lines import members_of_key, size_of_set, walk
from modelkin.torch.words import shift_right, to_signed_int

__all__ = ["keys_of", "members_of", "ranks_of_places", "sets_of"]

_NO_RANK: Final = 0xFFFFFFFF
_STEP: Final = to_signed_int(0x9E3779B97F4A7C15)
_FACTORS: Final = (to_signed_int(0xFF51AFD7ED558CCD), to_signed_int(0xC4CEB9FE1A85EC53))


def ranks_of_places(length: int, device: torch.device) -> Tensor:
    """The rank of each place in the walk, int64 of shape ``(length,)``."""
    return torch.from_numpy(walk(length).astype(np.int64)).to(device)


def sets_of(magnitudes: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """The members of each line's set that make its key, and the least magnitude of the set.

    Args:
        magnitudes: scaled, shape ``(m, n)``.
        ranks: of the places, shape ``(n,)``.

    Returns:
        The first ranks of the members, ascending, shape ``(m, r)``, and float32 of shape ``(m,)``,
        0 for lines without a set.
    """
    length = ranks.numel()
    size, members = size_of_set(length), members_of_key(length)
    largest, places = magnitudes.topk(size, dim=1, sorted=False)
    least = largest.amin(dim=1)
    held = (magnitudes >= least[:, None]).sum(dim=1)
    has = (least > 0) & (held <= 2 * size)
    first = _first(ranks[places], members)
    tied = torch.nonzero(has & (held > size))[:, 0]
    if tied.numel():
        inside = magnitudes[tied] >= least[tied, None]
        first[tied] = _first(torch.where(inside, ranks, _NO_RANK), members)
    return first, torch.where(has, least, 0)


def keys_of(first: Tensor, least: Tensor, length: int) -> Tensor:
    """The keys of lines, int64 with the bits of theirs, shape ``(m,)``; 0 for those without a set.

    Args:
        first: as of :func:`sets_of`, also for ``least``.
        length: of the lines.
    """
    keys = torch.full_like(first[:, 0], length)
    for each in first.unbind(dim=1):
        keys = _mixed(keys * _STEP + each)
    return torch.where(least > 0, keys, 0)


def members_of(magnitudes: Tensor, least: Tensor) -> Tensor:
    """The members of the sets of lines, as indices of the flat values; int64, ascending.

    Args:
        magnitudes: as of :func:`sets_of`.
        least: what it returns.
    """
    bounds = torch.where(least > 0, least, torch.nan)
    return torch.nonzero((magnitudes >= bounds[:, None]).view(-1))[:, 0]


def _first(ranks: Tensor, members: int) -> Tensor:
    """The first ranks of each line in the walk, ascending."""
    return ranks.topk(members, dim=1, largest=False, sorted=True).values


def _mixed(x: Tensor) -> Tensor:
    for factor in _FACTORS:
        x = (x ^ shift_right(x, 33)) * factor
    return x ^ shift_right(x, 33)
