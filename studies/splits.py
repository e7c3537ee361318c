"""How samples are dealt to clients: evenly, by Dirichlet mixes, or by whole classes."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from demo.data import CLASSES, CountsOf, Integers, Split, deal, dealt
from demo.planted import images
from studies.settings import Setting

__all__ = ["pathological", "split_of"]


def split_of(setting: Setting) -> Split:
    """The clients' samples of a setting: a fifth is kept for testing, no two clients share one.

    Raises:
        ValueError: no such data or split.
    """
    if setting.data == "digits":
        digits = load_digits()
        drawn, labels = digits.images.astype(np.float32), digits.target
    elif setting.data == "synthetic":
        drawn, labels = _synthetic(setting)
    else:
        raise ValueError(f"no data called {setting.data!r}")
    counts = _counts(setting.split, setting.clients)
    if setting.samples:
        counts = partial(_thinned, counts=counts, most=setting.samples * setting.clients)
    return dealt(drawn, labels, counts, setting.seed)


def _synthetic(setting: Setting) -> tuple[npt.NDArray[np.float32], Integers]:
    """Enough for the clients, beside a fifth for testing and what rounding leaves of each class."""
    if not setting.samples:
        return images("synthetic", setting.seed)
    count = round(1.25 * (setting.samples * setting.clients + 2 * CLASSES))
    return images("synthetic", setting.seed, count)


def _thinned(stock: Integers, *, rng: np.random.Generator, counts: CountsOf, most: int) -> Integers:
    """The counts of a stock of hardly more than ``most``, of the same mix."""
    return counts(np.ceil(stock * (most / stock.sum())).astype(np.int64), rng=rng)


def _counts(split: str, clients: int) -> CountsOf:
    kind, _, amount = split.rstrip(")").partition("(")
    if kind == "Dir":
        return partial(deal, num_clients=clients, alpha=float(amount))
    if kind == "Patho":
        return partial(pathological, clients=clients, share=float(amount.rstrip("%")) / 100)
    if kind == "IID":
        return partial(_even, clients=clients)
    raise ValueError(f"no split called {split!r}")


def _even(stock: Integers, *, clients: int, rng: np.random.Generator) -> Integers:
    """As many of each class for each client; ``rng`` chooses nothing."""
    del rng
    return np.tile(stock // clients, (clients, 1))


def pathological(
    stock: Integers, *, clients: int, share: float, rng: np.random.Generator
) -> Integers:
    """The paper's pathological split: each client has some whole classes, all equally many of them.

    Args:
        stock: available samples of each class, ``(10,)``.
        clients: N; N times the classes of each must be a multiple of 10.
        share: of the classes that each client has.
        rng: of the draw.

    Returns:
        ``(clients, 10)``, of at most two values: 0, and how many samples of a class a client has.
    """
    held = round(share * CLASSES)
    copies, rest = divmod(clients * held, CLASSES)
    if rest:
        raise ValueError(f"{clients} clients of {held} classes each do not share {CLASSES} evenly")
    cards = rng.permutation(np.repeat(np.arange(CLASSES), copies)).reshape(clients, held)
    while True:
        twice = [row for row in range(clients) if len(set(cards[row].tolist())) < held]
        if not twice:
            break
        # A card of a client that has one twice goes against any other, until none has.
        here, there = (twice[0], rng.integers(held)), (rng.integers(clients), rng.integers(held))
        cards[here], cards[there] = cards[there], cards[here]
    counts = np.zeros((clients, CLASSES), np.int64)
    np.put_along_axis(counts, cards, int(stock.min()) // copies, axis=1)
    return counts
