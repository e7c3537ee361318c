"""The gains of ordered supports over plain ones, what they show, and whether that is enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.cells import Cell
from studies.measures import Paired
from studies.sections import paragraphs
from studies.sections.summaries import difference, spread
from studies.settings import DIRICHLET, Setting
from studies.tables.ordered import GAIN, LIKENESSES, MEANS, row

__all__ = ["gaining", "ordered"]

_NEEDED = 2
"""Networks that must gain."""
_BOTH = tuple(row("A", likeness) for likeness in LIKENESSES[:2])
_REST = (("B", LIKENESSES[1]), *(("A", likeness) for likeness in LIKENESSES[2:]))


def gaining(cells: Sequence[Cell]) -> list[str]:
    """The networks with a gain of at least 0.04 on each split, and an interval above 0."""
    return _gaining(cells, LIKENESSES[1])


def ordered(cells: Sequence[Cell]) -> Iterator[str]:
    """R@8 by plain and by ordered supports, the rule, and what gains nothing."""
    yield (
        "An ordered support has its indices by falling importance. Rank r counts 2^(-l/2), with "
        "l = floor(log2 r), and two supports are as similar as the cosine of these weights. No "
        "value is sent, and about two bits more an index. K is 10% of M, the importance one of "
        "gradients: nothing here is about weights. Ordered supports went up to an ordered space, "
        "and S and the ordered similarity came back over HTTP, as in all of the evidence. The "
        "service computes no overlap by rarity: it was computed beside it."
    )
    yield paragraphs.table(
        ("R@8", "split", "plain", "ordered", "ordered less plain"),
        (_compared(network, own) for network, own in _splits(cells)),
    )
    yield _verdict(cells)
    yield (
        "B, importance over eight local epochs, and two more changes of S: indices weighed by "
        "log(N / n), where n of N clients have them; and the mean of S at K = 1, 5, 10, 15 and 25%."
    )
    heads = ("R@8 less plain", "split", *(": ".join(each) for each in _REST))
    yield paragraphs.table(heads, _others(cells))
    yield _dropped(cells)
    yield (
        "An order shows more, too: label presence, the AUC of the outsider of [what a support "
        "gives away](privacy.md#what-a-support-gives-away)."
    )
    yield paragraphs.table(
        ("label presence", "split", "plain", "ordered"),
        (
            [network, held[0].setting.split, *(spread(held, n, "label presence") for n in _BOTH)]
            for network, held in _splits(cells)
        ),
    )


def _compared(network: str, own: Sequence[Cell]) -> list[str]:
    means = (spread(own, name, "R@8") for name in _BOTH)
    return [network, own[0].setting.split, *means, str(_gain(own, "A", LIKENESSES[1]))]


def _others(cells: Sequence[Cell]) -> Iterator[list[str]]:
    for network, own in _splits(cells):
        gains = (_gain(own, *each) for each in _REST)
        spreads = (gain.spread for gain in gains)
        yield [network, own[0].setting.split, *spreads]


def _verdict(cells: Sequence[Cell]) -> str:
    networks = [network for network, _ in _networks(cells)]
    gained = gaining(cells)
    rule = (
        f"Ordered supports are worth a second format where R@8 gains at least {GAIN:.2f} on both "
        "splits, with an interval above 0, for two of three networks. "
    )
    seen = f"It does for {len(gained)} of {len(networks)} ({', '.join(gained) or 'no network'})"
    if len(gained) >= _NEEDED:
        found = "**ordered spaces have them** (`measure=ordered`)"
        return f"{rule}{seen}: {found}. {_epochs(cells)}"
    return f"{rule}{seen}: **not worth it**. Prefer plain spaces."


def _epochs(cells: Sequence[Cell]) -> str:
    gains = [_gain(own, "B", LIKENESSES[1]) for _, own in _splits(cells)]
    return (
        "That is importance at the common weights. Over local epochs (B) it gains so much in "
        f"{sum(map(_enough, gains))} of {len(gains)} rows."
    )


def _dropped(cells: Sequence[Cell]) -> str:
    """The gains of the two other changes, judged by the same rule."""
    seen = []
    for likeness in LIKENESSES[2:]:
        means = [_gain(own, "A", likeness).mean for _, own in _splits(cells)]
        networks = len(_gaining(cells, likeness))
        spread = f"{min(means):+.3f} to {max(means):+.3f}"
        seen.append(f"{likeness} changes R@8 by {spread} and is worth it for {networks} networks")
    return (
        f"By the same rule, {'; '.join(seen)}. The product has neither; a mean over K takes "
        f"supports of {len(MEANS)} sizes."
    )


def _networks(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    for (data, network), own in paragraphs.federations(cells):
        yield network if data == Setting().data else f"{data}, {network}", own


def _splits(cells: Sequence[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    for network, own in _networks(cells):
        for split in DIRICHLET:
            held = paragraphs.of_split(own, split)
            if held:
                yield network, held


def _gaining(cells: Sequence[Cell], likeness: str) -> list[str]:
    return [
        network
        for network, own in _networks(cells)
        if all(
            _enough(_gain(paragraphs.of_split(own, split), "A", likeness)) for split in DIRICHLET
        )
    ]


def _enough(gain: Paired) -> bool:
    return gain.mean >= GAIN and gain.mean > gain.margin


def _gain(own: Sequence[Cell], procedure: str, likeness: str) -> Paired:
    ours, plain = row(procedure, likeness), row(procedure, LIKENESSES[0])
    return difference(own, ours, plain, "R@8")
