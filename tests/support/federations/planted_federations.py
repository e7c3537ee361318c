"""Clients whose groups are known: supports of an importance that is put together of parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin import Layout, Support, select_support

__all__ = ["APART", "FOUR", "LAYOUT", "M", "planted"]

M = 4000
LAYOUT = Layout.of((("a", (M // 2,)), ("b", (M // 2,))))


def planted(groups: npt.NDArray[np.int64], of_group: float, alone: float) -> list[Support]:
    """A support a client, of an importance that all have, and its group, and itself, in part."""
    draw = np.random.default_rng(1)
    common = draw.standard_normal(M)
    of_groups = draw.standard_normal((groups.max() + 1, M))
    own = draw.standard_normal((len(groups), M))
    values = common + of_group * of_groups[groups] + alone * own
    return [select_support(np.exp(row).astype(np.float32), fraction=0.1) for row in values]


FOUR = np.arange(20) % 4
APART = planted(FOUR, of_group=1.4, alone=0.6)
