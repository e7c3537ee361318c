"""The messages of affinity propagation, as scikit-learn passes them, a round at a time.

scikit-learn's own loop returns once it is over, minutes later for some thousand models. This one
can be stopped between two rounds. It keeps one matrix less, reads and writes each message once a
round, and each number is the same as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from modelkin.core.kernels.choice import kernels

__all__ = ["propagate"]

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


def propagate(
    similarity: Floats,
    preference: float,
    *,
    damping: float,
    convergence_rounds: int,
    max_rounds: int,
    seed: int,
    check: Callable[[], None],
    noise: float = 0.0,
) -> tuple[Labels | None, int]:
    """Cluster by affinity propagation.

    Returns the labels, shape ``(n,)``, and the number of rounds; None instead of labels if the
    exemplars have not settled within ``max_rounds``.

    Args:
        similarity: S of all pairs, ``(n, n)``, n from 2 on.
        preference: the similarity of a model to itself.
        damping: the share of the last message in the next, .5 to 1.
        convergence_rounds: rounds without a change of exemplars after which they have settled.
        max_rounds: after which the algorithm gives up.
        seed: of the noise that breaks ties.
        check: called before each round; an error that it raises ends the computation.
        noise: the standard deviation of what breaks ties, beyond scikit-learn's in the last bit.
    """
    same = _all_alike(similarity, preference)
    if same is not None:
        return same, 0
    messages = _Messages(_without_ties(similarity, preference, seed, noise), damping)
    history = np.zeros((len(similarity), convergence_rounds), bool)
    for number in range(max_rounds):
        check()
        is_exemplar = messages.pass_round()
        history[:, number % convergence_rounds] = is_exemplar
        if number >= convergence_rounds and is_exemplar.any():
            rounds = history.sum(axis=1)
            if np.all((rounds == 0) | (rounds == convergence_rounds)):
                return messages.labels(np.flatnonzero(is_exemplar)), number + 1
    return None, max_rounds


def _all_alike(similarity: Floats, preference: float) -> Labels | None:
    """The labels of models that are all equally similar, which no messages distinguish."""
    n = len(similarity)
    if np.any(similarity[0, 1:] != similarity[0, 1]):  # so it is nearly always
        return None
    others = similarity[~np.eye(n, dtype=bool)]
    if np.any(others != others[0]):
        return None
    return np.arange(n) if preference > similarity[0, n - 1] else np.zeros(n, np.int64)


class _Messages:
    """The responsibilities and availabilities of n models.

    Args:
        s: the similarities of all pairs without ties, preferences on the diagonal, ``(n, n)``.
        damping: see :func:`propagate`.
    """

    def __init__(self, s: Floats, damping: float) -> None:
        n = len(s)
        self._s = s
        self._a = np.zeros((n, n))
        self._r = np.zeros((n, n))
        self._support = np.zeros(n)
        self._damping = damping

    def pass_round(self) -> npt.NDArray[np.bool_]:
        """Update all messages, and return which models are exemplars now; shape ``(n,)``.

        The availabilities follow with the next round, when each message is read anyway: only
        those of the models to themselves are needed now.
        """
        kernels().pass_messages(self._s, self._a, self._r, self._support, self._damping)
        r = np.diagonal(self._r)
        a = np.diagonal(self._a) * self._damping - (r - self._support) * (1 - self._damping)
        return a + r > 0

    def labels(self, exemplars: Labels) -> Labels:
        """The cluster of each model, whose exemplar becomes its most central member."""
        s = self._s
        nearest = _nearest(s, exemplars)
        for number in range(exemplars.size):
            members = np.flatnonzero(nearest == number)
            exemplars[number] = members[np.argmax(s[np.ix_(members, members)].sum(axis=0))]
        labels = exemplars[_nearest(s, exemplars)]
        return np.searchsorted(np.unique(labels), labels).astype(np.int64)


def _without_ties(similarity: Floats, preference: float, seed: int, noise: float) -> Floats:
    """A copy with the preference on its diagonal, and noise, at least of the last bit."""
    s = similarity.copy()
    np.fill_diagonal(s, preference)
    drawn = np.random.RandomState(seed).standard_normal(size=s.shape)
    drawn *= np.finfo(s.dtype).eps * s + np.finfo(s.dtype).tiny * 100 + noise
    s += drawn
    return s


def _nearest(s: Floats, exemplars: Labels) -> Labels:
    """The number of the exemplar that each model is most similar to; its own for an exemplar."""
    nearest: Labels = np.argmax(s[:, exemplars], axis=1)
    nearest[exemplars] = np.arange(exemplars.size)
    return nearest
