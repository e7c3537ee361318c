"""Models in known groups: each support keeps a share of the indices common to its group."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelkin import Support

__all__ = ["GROUPS", "M", "Labels", "member", "named", "planted"]

Labels = npt.NDArray[np.int64]

M, K = 4000, 300
GROUPS = (12, 10, 8, 6)
"""How many models each of the groups has, where nothing else is said."""


def planted(
    sizes: tuple[int, ...] = GROUPS, *, keep: float = 0.7, alone: int = 0, seed: int = 0
) -> tuple[list[Support], Labels]:
    """Shuffled supports in groups, and the group of each.

    Args:
        sizes: of the groups.
        keep: the share of the common indices that each member has.
        alone: number of additional supports, each a group by itself.
        seed: of all random numbers.
    """
    rng = np.random.default_rng(seed)
    bases = [rng.choice(M, K, replace=False) for _ in range(len(sizes) + alone)]
    labels = np.repeat(np.arange(len(bases)), [*sizes, *[1] * alone])
    labels = rng.permutation(labels)
    return [member(rng, bases[label], keep) for label in labels], labels


def member(rng: np.random.Generator, base: npt.NDArray[np.int64], keep: float) -> Support:
    """A support of ``K`` indices that keeps a share of ``base``."""
    kept = rng.choice(base, int(K * keep), replace=False)
    others = np.setdiff1d(np.arange(M), kept, assume_unique=True)
    drawn = rng.choice(others, K - kept.size, replace=False)
    return Support.from_indices(np.sort(np.concatenate([kept, drawn])), M)


def named(supports: list[Support]) -> dict[str, Support]:
    """The supports by name, in their order."""
    return {f"org/m{number:03d}": support for number, support in enumerate(supports)}
