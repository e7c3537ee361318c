"""Weights of the members of a mean by what each adds to the others, known by supports alone.

An index of a support stands for something that a member's data ask of the model. What few members
hold, the mean would hear least of. Neither weight asks how many samples a member claims.

``cover``: the share of its own indices that a member adds to the members before it, in the mean
over all orders. In an order an index counts for the first of its c holders, and each is the first
as often, so this is the mean of ``1 / c``. It is a member's Shapley value in the game of coverage
(Shapley, 1953), over its K. The greedy order of ``modelkin.core.kinship.cover`` would give its
first member all, whom a tie decides, and equal members after it nothing.

``rarity``: one, and the mean rarity of a member's indices over that of indices which it alone
holds (``modelkin.core.similarity.rarity``).

So equal members have equal weights, and no weight is 0. In the cover of n members the largest is at
most n times the least, and with supports of one size no share is above a half (of unlike sizes,
above ``n / (2 n - 1)``). In rarity the largest is at most twice the least.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from modelkin.core.similarity.rarity import rarity_of
from modelkin.core.sketching.signature import Signature
from modelkin.core.support import Support
from modelkin.errors import SpaceMismatch

__all__ = ["cover", "holders", "rarity"]

Counts = npt.NDArray[np.int64]


def holders(contents: Sequence[Support | Signature]) -> list[Counts]:
    """How many members hold each index of a member; one array a member.

    With a signature among them all are compared by signatures. Then the counts are of a sample of
    each member's indices: those that are the least of all under one of h permutations. A member may
    have none.

    Args:
        contents: at least one, of one M; signatures of one scheme, h and seed.

    Raises:
        SpaceMismatch: the contents cannot be compared.
    """
    if len({content.num_parameters for content in contents}) != 1:
        raise SpaceMismatch("supports of different numbers of parameters cannot be compared")
    signed = next((each for each in contents if isinstance(each, Signature)), None)
    if signed is None:
        return _exact([each for each in contents if isinstance(each, Support)])
    h, seed, scheme = signed.num_perm, signed.seed, signed.scheme
    rows = [
        each if isinstance(each, Signature) else each.signature(h, seed, scheme)
        for each in contents
    ]
    if any((row.num_perm, row.seed, row.scheme) != (h, seed, scheme) for row in rows):
        raise SpaceMismatch("signatures of different scheme, h or seed cannot be compared")
    values = np.stack([row.values for row in rows])
    held = values == values.min(axis=0)
    counts = held.sum(axis=0)
    return [counts[row] for row in held]


def _exact(supports: Sequence[Support]) -> list[Counts]:
    counts = np.zeros(supports[0].num_parameters, np.int32)
    for support in supports:
        counts[support.indices] += 1  # no index is in a support twice
    return [counts[support.indices].astype(np.int64) for support in supports]


def cover(held: Sequence[Counts]) -> list[float | None]:
    """The cover of each member, ``1 / n`` to 1; None for one without an index in the sample."""
    return [float(np.mean(1.0 / counts)) if counts.size else None for counts in held]


def rarity(held: Sequence[Counts]) -> list[float | None]:
    """The rarity of each member, 1 to 2; None for one without an index in the sample."""
    n = len(held)
    table = np.array([rarity_of(n, c) for c in range(n + 1)])
    most = table[1] if n > 1 else 1.0
    return [
        1.0 + float(np.mean(table[counts])) / float(most) if counts.size else None
        for counts in held
    ]
