"""How samples are dealt to clients: evenly, by Dirichlet mixes, or by whole classes."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from demo.cohort import BATCH
from demo.data import CountsOf, Integers, Split, deal, deal_images
from studies.loaders.folder import DataError
from studies.samples import samples_of
from studies.settings import Setting

__all__ = ["pathological", "split_of"]

_FEW: Final = 10
"""Classes, up to which exchanged cards soon leave no client with a class twice."""


def split_of(setting: Setting) -> Split:
    """The clients' samples of a setting: a fifth is kept for testing, no two clients share one.

    Raises:
        ValueError: no such data or split.
        DataError: the data are files, which are missing, damaged, or too few for the clients.
    """
    samples = samples_of(setting)
    values = samples.values
    if values.dtype == np.uint8:
        values = values.astype(np.float32)
    counts_of = _counts(setting.split, setting.clients)
    if setting.samples:
        counts_of = partial(_thinned, counts=counts_of, most=setting.samples * setting.clients)
    found = deal_images(values, samples.labels, counts_of, setting.seed, samples.classes)
    least = min(len(own) for own in found.clients)
    if least < BATCH:
        raise DataError(
            f"{setting.data} has {len(samples.labels):,} samples, {least} for some of "
            f"{setting.clients} clients on {setting.split}: each trains in batches of {BATCH}"
        )
    return found


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
        stock: available samples of each class, ``(classes,)``.
        clients: N; N times the classes of each must be a multiple of all classes.
        share: of the classes that each client has.
        rng: of the draw.

    Returns:
        ``(clients, classes)``, of at most two values: 0, and how many samples of a class a client
        has.
    """
    classes = len(stock)
    held = round(share * classes)
    copies, rest = divmod(clients * held, classes)
    if rest:
        raise DataError(f"{clients} clients of {held} classes each do not share {classes} evenly")
    cards = rng.permutation(np.repeat(np.arange(classes), copies)).reshape(clients, held)
    if classes <= _FEW:
        _exchange(cards, rng)
    else:
        _mend(cards, rng)
    counts = np.zeros((clients, classes), np.int64)
    np.put_along_axis(counts, cards, int(stock.min()) // copies, axis=1)
    return counts


def _exchange(cards: Integers, rng: np.random.Generator) -> None:
    """Any card of a client that has one twice goes against any other, until none has."""
    clients, held = cards.shape
    while True:
        twice = [row for row in range(clients) if len(set(cards[row].tolist())) < held]
        if not twice:
            break
        here, there = (twice[0], rng.integers(held)), (rng.integers(clients), rng.integers(held))
        cards[here], cards[there] = cards[there], cards[here]


def _mend(cards: Integers, rng: np.random.Generator) -> None:
    """The same for many classes: a second card goes against one that both clients lack."""
    for own in cards:
        while (second := _second(own)) is not None:
            fair = ~np.isin(cards, own) & ~(cards == own[second]).any(axis=1, keepdims=True)
            rows, columns = np.nonzero(fair)
            there = rng.integers(rows.size)
            other = (rows[there], columns[there])
            own[second], cards[other] = cards[other], own[second]


def _second(own: Integers) -> int | None:
    """Where a card is that comes before in the same row."""
    _, first = np.unique(own, return_index=True)
    rest = np.setdiff1d(np.arange(own.size), first)
    return int(rest[0]) if rest.size else None
