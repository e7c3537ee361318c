"""Ordered supports for tests, and what their ranks, octaves and similarity are by definition."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from modelkin.core.support import Support

__all__ = ["cosine", "octave", "ordered_supports", "ranked"]


def octave(rank: int) -> int:
    """floor(log2(rank)), by doubling."""
    found = 0
    while 2 ** (found + 1) <= rank:
        found += 1
    return found


def ranked(indices: Sequence[int], num_parameters: int) -> Support:
    """The ordered support of indices by falling importance."""
    octaves = {index: octave(rank) for rank, index in enumerate(indices, 1)}
    return Support(
        sorted(indices), num_parameters, octaves=[octaves[index] for index in sorted(indices)]
    )


def cosine(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """The cosine of two lists of indices by falling importance, each index with its weight."""
    a, b = (
        {index: 2.0 ** (-octave(rank) / 2) for rank, index in enumerate(indices, 1)}
        for indices in (ours, theirs)
    )
    lengths = math.fsum(w * w for w in a.values()), math.fsum(w * w for w in b.values())
    return math.fsum(a[i] * b[i] for i in a.keys() & b.keys()) / math.sqrt(math.prod(lengths))


@st.composite
def ordered_supports(draw: st.DrawFn, num_parameters: st.SearchStrategy[int]) -> Support:
    """Ordered supports of 1 to 70 indices."""
    m = draw(num_parameters)
    near_the_end = st.integers(max(0, m - 300), m - 1)
    indices = draw(st.sets(st.integers(0, m - 1) | near_the_end, min_size=1, max_size=70))
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(len(indices))
    return ranked([sorted(indices)[at] for at in order], m)
