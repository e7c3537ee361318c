"""The success of an attack on membership: AUC, TPR at 1% FPR and a bound on epsilon."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["auc", "auc_error", "epsilon_bound", "true_positive_rate"]

Floats = npt.NDArray[np.float64]
Truth = npt.NDArray[np.bool_]


def auc(scores: Floats, truth: Truth) -> float:
    """The probability that a member scores above a non-member; a tie counts one half."""
    inside, outside = scores[truth], scores[~truth]
    above = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
    return float(above)


def auc_error(value: float, inside: int, outside: int) -> float:
    """The standard error of an AUC.

    Source: Hanley and McNeil, The Meaning and Use of the Area under a ROC Curve (1982).
    """
    q1, q2 = value / (2 - value), 2 * value**2 / (1 + value)
    spread = value * (1 - value) + (inside - 1) * (q1 - value**2) + (outside - 1) * (q2 - value**2)
    return math.sqrt(max(spread, 0.0) / (inside * outside))


def true_positive_rate(scores: Floats, truth: Truth, false_positives: float = 0.01) -> float:
    """The share of members found, at the threshold with this share of false positives."""
    outside = np.sort(scores[~truth])[::-1]
    threshold = outside[int(false_positives * len(outside))]
    return float((scores[truth] > threshold).mean())


def epsilon_bound(scores: Floats, truth: Truth, confidence: float = 0.95) -> tuple[float, float]:
    """A lower bound on epsilon by one run, and the p-value of "nothing leaks".

    The top third is guessed to be in, the bottom third out, and the rest is not guessed; this rule
    does not depend on the scores. Under epsilon-differential privacy the number of right guesses is
    at most binomial with probability ``e^epsilon / (1 + e^epsilon)``.

    Args:
        scores: one a canary, whose membership a fair coin decided; high ones are guessed to be in.
        truth: whether each canary was in.
        confidence: the probability that the bound holds, above 0 and below 1.

    Returns:
        The largest epsilon that the guesses refute at that confidence, 0 where they refute no
        epsilon; the probability that coin tosses do as well.

    Source: Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run (2023).
    """
    order, third = np.argsort(-scores, kind="stable"), len(scores) // 3
    if third == 0:
        return 0.0, 1.0
    right = int(truth[order[:third]].sum() + (~truth[order[-third:]]).sum())
    guesses = 2 * third
    low, high = 0.0, 20.0
    if binomial_tail(right, guesses, 0.5) > 1 - confidence:
        return 0.0, binomial_tail(right, guesses, 0.5)
    for _ in range(60):
        middle = (low + high) / 2
        refuted = binomial_tail(right, guesses, 1 / (1 + math.exp(-middle))) <= 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return low, binomial_tail(right, guesses, 0.5)


def binomial_tail(least: int, trials: int, probability: float) -> float:
    """The probability of at least ``least`` successes in so many trials."""
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(probability)
        + (trials - k) * math.log1p(-probability)
        for k in range(least, trials + 1)
    ]
    return min(1.0, math.fsum(math.exp(value) for value in logs))
