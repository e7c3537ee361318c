"""Turn secretly rotated fingerprints back, as a reader can who has samples like the clients'.

All clients rotate their features by one secret matrix, which leaves S as it is. The sums of their
class blocks have the spectra of the public ones, so the first directions of both sums are the same
but for signs, and the signs follow from the blocks of single classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.dfl2g.measures import fitted
from demo.planted import CLASSES, Data, images
from modelkin import Subspace

__all__ = ["turned_back"]

DIRECTIONS: Final[dict[Data, int]] = {"digits": 12, "synthetic": 20}
"""That are aligned."""
CLIENTS, LEAST, PASSES = 40, 3, 20

Floats = npt.NDArray[np.float64]


def turned_back(data: Data, seed: int) -> tuple[float, float]:
    """Cosines of classes' first directions with their mean samples.

    A fifth of the samples is public, and the others are dealt to forty clients.

    Returns:
        The mean over clients and classes, of rotated ones as they are, and turned back.
    """
    drawn, labels = images(data, seed)
    x = drawn.reshape(len(drawn), -1).astype(np.float64)
    rng = np.random.default_rng([seed, 24])
    held = len(labels) // 5
    parts = np.array_split(rng.permutation(np.arange(held, len(labels))), CLIENTS)
    size = x.shape[1] + 1
    secret = np.linalg.qr(rng.normal(size=(size, size)))[0]
    clients = [fitted(x[own], labels[own]) for own in parts]
    public = fitted(x[:held], labels[:held], rank=5)
    back = _alignment(_moments(clients, secret), _moments([public], np.eye(size)), DIRECTIONS[data])
    cosines = []
    for own, client in zip(parts, clients, strict=True):
        for block in client.of("classes"):
            members = x[own][labels[own] == block.label]
            if len(members) < LEAST:
                continue
            mean = (members / np.linalg.norm(members, axis=1, keepdims=True)).mean(axis=0)
            rotated = secret @ block.columns[0].astype(np.float64)
            cosines.append([_cosine(rotated[:-1], mean), _cosine((back @ rotated)[:-1], mean)])
    before, after = np.mean(cosines, axis=0).tolist()
    return before, after


def _moments(made: Sequence[Subspace], rotation: Floats) -> Floats:
    """The moment of each class, summed over clients and rotated, shape ``(classes, m, m)``."""
    size = len(rotation)
    found = np.zeros((CLASSES, size, size))
    for each in made:
        for block in each.of("classes"):
            columns = (rotation @ block.columns.T.astype(np.float64)) * block.weights
            found[block.label] += columns @ columns.T
    return found


def _alignment(rotated: Floats, public: Floats, directions: int) -> Floats:
    """The rotation that takes the first directions of all classes together to the public ones."""
    from_, to = (np.linalg.eigh(each.sum(axis=0))[1][:, ::-1][:, :directions] for each in
                 (rotated, public))  # fmt: skip
    products = np.zeros((directions, directions))
    for mine, other in zip(rotated, public, strict=True):
        seen, known = from_.T @ mine @ from_, to.T @ other @ to
        products += seen / np.trace(mine) * known / np.trace(other)
    np.fill_diagonal(products, 0.0)
    signs = np.ones(directions)
    for _ in range(PASSES):
        for at in range(directions):
            signs[at] = 1.0 if products[at] @ signs >= 0 else -1.0
    return np.asarray((to * signs) @ from_.T)


def _cosine(a: Floats, b: Floats) -> float:
    return float(abs(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b)))
