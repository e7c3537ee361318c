"""``distinct`` and ``present``: keys that are ascending, as those of fingerprints are.

So neither needs a sort or a table, which take ten times as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["distinct", "present"]

Keys = npt.NDArray[np.uint64]


def distinct(keys: Keys) -> Keys:
    """The keys, each once, ascending."""
    is_first = np.ones(keys.size, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]


def present(keys: Keys, others: Keys) -> npt.NDArray[np.bool_]:
    """Which of the keys are among others, which are ascending; shape ``(n,)``."""
    if not others.size:
        return np.zeros(keys.size, np.bool_)
    at = np.searchsorted(others, keys)
    at[at == others.size] = 0
    found: npt.NDArray[np.bool_] = others[at] == keys
    return found
