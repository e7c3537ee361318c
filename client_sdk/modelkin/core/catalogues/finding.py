"""Candidates: the bases of a catalogue that have keys of a checkpoint.

They are found in rounds. The family of a popular base has the checkpoint's keys, too, and would
hide a second parent with few of them: so the keys that are explained are left out, and those that
remain are looked up again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from modelkin.core.fingerprints.fingerprint import Fingerprint

__all__ = ["candidates"]

_LEAST_KEYS: Final = 2
"""Keys in common from which on a base is compared as a whole: the few of strangers are chance."""
_OF_A_ROUND: Final = 20
_ROUNDS: Final = 4


def candidates(
    keys: npt.NDArray[np.uint64], owners: npt.NDArray[np.uint32], bases: int, child: Fingerprint
) -> list[int]:
    """The numbers of the bases that a checkpoint is compared with, those of a round together.

    All keys of the checkpoint are looked up, and not its finding keys alone: its sample may be
    finer than that of a base, or coarser.

    Args:
        keys: the finding keys of all bases, ascending.
        owners: the base of each.
        bases: how many there are.
        child: the checkpoint.
    """
    asked = child.distinct
    begin = np.searchsorted(keys, asked, "left")
    counts = np.searchsorted(keys, asked, "right") - begin
    of_key = np.repeat(np.arange(asked.size), counts)
    nth = np.arange(of_key.size) - np.repeat(np.cumsum(counts) - counts, counts)
    of_base = owners[begin[of_key] + nth].astype(np.int64)
    found = list[int]()
    left = np.ones(asked.size, np.bool_)
    for _ in range(_ROUNDS):
        open_keys = left[of_key]
        common = np.bincount(of_base[open_keys], minlength=bases)
        common[found] = 0
        best = np.argsort(-common, kind="stable")[:_OF_A_ROUND]
        best = best[common[best] >= _LEAST_KEYS]
        if not best.size:
            break
        found += best.tolist()
        left[of_key[np.isin(of_base, best)]] = False
    return found
