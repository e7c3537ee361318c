"""A round of the messages of affinity propagation, in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def pass_messages(
    s: Floats, availability: Floats, responsibility: Floats, support: Floats, damping: float
) -> None:
    """Update the availabilities by the support so far, then the responsibilities and the support.

    Args:
        s: the similarities of all pairs, preferences on the diagonal, shape ``(n, n)``, n from 2.
        availability: of each exemplar, a column, to each model, a row; changed.
        responsibility: of each model, a row, for each exemplar, a column; changed.
        support: for each exemplar, the positive responsibilities of its column and its own
            whatever its sign, shape ``(n,)``; replaced.
        damping: the share of the last message in the next.
    """
    every = np.arange(len(s))
    new = _supporting(responsibility) - support
    own = new[every, every]
    new.clip(0, np.inf, out=new)
    new[every, every] = own
    availability *= damping
    availability -= new * (1 - damping)

    np.add(availability, s, out=new)
    best = np.argmax(new, axis=1)
    highest = new[every, best]
    new[every, best] = -np.inf
    second = new.max(axis=1)
    np.subtract(s, highest[:, None], out=new)
    new[every, best] = s[every, best] - second
    responsibility *= damping
    responsibility += new * (1 - damping)
    support[:] = _supporting(responsibility).sum(axis=0)


def _supporting(responsibility: Floats) -> Floats:
    found = np.maximum(responsibility, 0)
    np.fill_diagonal(found, np.diagonal(responsibility))
    return found
