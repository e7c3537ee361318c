"""Scores of membership: was a sample among those that a client's message was computed from?

The outsider has the weights, or a shadow model, and a few samples of its own. Rows are samples or
clients, columns parameters. What samples of one class have in common says nothing of a single one,
so the stronger score takes from a candidate whatever the outsider's own samples explain.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

__all__ = [
    "accuracy",
    "area",
    "cosine",
    "overlap",
    "partial_correlation",
    "shares_of",
    "top",
]

Scores = npt.NDArray[np.float64]

_RANK: Final = 1e-6
"""Own samples that the others explain up to this share of the largest say nothing more."""


def top(values: Tensor, k: int) -> Tensor:
    """True at the k largest of each row, shape ``(n, M)``; never where a value is 0."""
    found = torch.zeros(values.shape, dtype=torch.bool)
    found.scatter_(1, values.topk(k, dim=1).indices, True)
    return found & (values > 0)


def shares_of(gradients: Tensor) -> Tensor:
    """The magnitudes of each row, as shares of their sum: how they are divided, not how large."""
    magnitudes = gradients.abs()
    return magnitudes / magnitudes.sum(dim=-1, keepdim=True).clamp_min(1e-30)


def cosine(candidates: Tensor, seen: Tensor) -> Scores:
    """The cosine of each candidate ``(c, M)`` and what was seen of a client, ``(M,)``."""
    return _array(torch.nn.functional.cosine_similarity(candidates, seen[None]))


def overlap(candidates: Tensor, seen: Tensor) -> Scores:
    """S of sets as masks ``(c, M)`` and ``(M,)``: twice what is common, of both sizes."""
    common = (candidates & seen).sum(dim=1)
    return _array(2 * common / (candidates.sum(dim=1) + seen.sum()).clamp_min(1))


def partial_correlation(candidates: Tensor, known: Tensor, seen: Tensor) -> Scores:
    """The correlation over parameters of candidates and clients, given the known samples.

    Args:
        candidates: of each client, ``(N, c, M)``.
        known: the outsider's own samples, ``(r, M)``.
        seen: what was seen of each client, ``(N, s, M)``; a mask is 0 and 1.

    Returns:
        ``(N, s, c)``.
    """
    own, known, seen = (_standard(rows) for rows in (candidates, known, seen.to(known.dtype)))
    inverse = np.linalg.pinv(_array(known @ known.T), rcond=_RANK, hermitian=True)
    whole = _array(seen @ own.mT)
    by_own, by_seen = _array(own @ known.T), _array(seen @ known.T)
    explained = by_own @ inverse
    left = [1 - np.sum(a @ inverse * a, axis=-1) for a in (by_own, by_seen)]
    of_own, of_seen = (np.sqrt(np.maximum(each, _RANK)) for each in left)
    found: Scores = whole - by_seen @ explained.swapaxes(1, 2)
    found /= of_seen[:, :, None] * of_own[:, None, :]
    return found


def _standard(rows: Tensor) -> Tensor:
    """With mean 0 and length 1."""
    centred = rows - rows.mean(dim=-1, keepdim=True)
    lengths: Tensor = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
    return centred / lengths.clamp_min(1e-30)


def area(scores: Scores) -> float:
    """The mean over clients of the area under the ROC curve.

    Args:
        scores: ``(N, 2 c)``; the first half of each row is of members.
    """
    truth = _truth(scores)
    return float(np.mean([roc_auc_score(truth, row) for row in scores]))


def accuracy(scores: Scores) -> float:
    """The share that one threshold for all clients divides right, with scores as in :func:`area`.

    It is the best one of every other client, and judged on those between.
    """
    halves = (scores[::2], scores[1::2])
    found = [_divided(judged, _threshold(fitted)) for fitted, judged in (halves, halves[::-1])]
    return float(np.mean(found))


def _threshold(scores: Scores) -> float:
    """In the middle between two scores."""
    values = np.unique(scores)
    middles = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2])
    return float(max(middles, key=lambda least: _divided(scores, least)))


def _divided(scores: Scores, least: float) -> float:
    return float(((scores > least) == _truth(scores)).mean())


def _truth(scores: Scores) -> npt.NDArray[np.bool_]:
    """True for the members of a row."""
    count = scores.shape[-1]
    found: npt.NDArray[np.bool_] = np.arange(count) < count // 2
    return found


def _array(values: Tensor) -> Scores:
    return np.asarray(values.double().numpy(), np.float64)
