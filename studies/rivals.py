"""Which ways of training beat the models of clusters by index overlaps, and where none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from studies import baselines
from studies.cells import Cell, Cells
from studies.measures import Paired
from studies.sections import first, of_split
from studies.summaries import difference, mean, values
from studies.tables import clusters, personal

__all__ = ["RIVALS", "Contest", "beaten", "best", "contests", "cosines", "splits"]

RIVALS: Final = (clusters.GLOBAL, clusters.ALONE, clusters.IFCA, clusters.CFL)
_FOUND: Final = 0.95
"""The ARI from which groups count as found."""
_POINT: Final = 0.01
"""Accuracy by which clusters must be ahead to be recommended."""
_KNOWN: Final = "with the number of clusters known"
_FREE: Final = "with the number of clusters free"
_BOTH: Final = "with the number of clusters known or free"


@dataclass(frozen=True)
class Contest:
    """Clusters by index overlaps on one split, beside everything else.

    Attributes:
        split: of the clients.
        cells: of the split.
        ours: the row of index overlaps.
        cosine: the row of a cosine of importances that clusters in the same way.
        number: in words, whether the number of clusters is known.
    """

    split: str
    cells: list[Cell]
    ours: str
    cosine: str
    number: str

    @property
    def accuracy(self) -> float:
        """Of clusters by index overlaps."""
        return mean(self.cells, self.ours, "accuracy")

    @property
    def agreement(self) -> float:
        """The ARI of these with the groups; not a number where there are none."""
        return mean(self.cells, self.ours, "ARI")

    def lead(self, rival: str) -> Paired:
        """How much more accurate a rival is, on the same seeds."""
        return difference(self.cells, rival, self.ours, "accuracy")

    def won(self) -> bool:
        """Whether clusters by index overlaps are ahead of each rival by a point of accuracy."""
        return self.lead(self.runner_up()).mean <= -_POINT

    def winners(self) -> list[str]:
        """The rivals that are more accurate in the third decimal, the best first."""
        found = [name for name in RIVALS if round(self.lead(name).mean, 3) > 0]
        return sorted(found, key=lambda name: -self.lead(name).mean)

    def runner_up(self) -> str:
        """The most accurate rival."""
        return max(RIVALS, key=lambda name: self.lead(name).mean)


def contests(cells: Cells) -> list[Contest]:
    """Of each split of Table 1 with the number known and free, and of Table 8 with it free.

    Splits without groups have no number to know.
    """
    found = []
    held = first(cells.of(clusters.NAME))
    cosine = baselines.PLAIN_COSINE
    ways = (
        (clusters.KNOWN, clusters.row(cosine, clusters.LINKED), _KNOWN),
        (clusters.FREE, clusters.row(cosine, clusters.PROPAGATED), _FREE),
    )
    for split in splits(held):
        own, planted = of_split(held, split), split in clusters.PLANTED
        found += [Contest(split, own, *way) for way in ways[0 if planted else 1 :]]
    held = first(cells.of(personal.NAME))
    for split in splits(held):
        own = of_split(held, split)
        found.append(Contest(split, own, personal.ios("K*"), cosine, _FREE))
    return found


def splits(cells: Sequence[Cell]) -> list[str]:
    """Of some cells, those with planted groups first."""
    found = dict.fromkeys(cell.setting.split for cell in cells)
    return sorted(found, key=lambda split: split not in clusters.PLANTED)


def beaten(cells: Cells) -> Iterator[str]:
    """Where a rival is more accurate than clusters by index overlaps, and by how much."""
    for contest in _joined(contests(cells)):
        winners = contest.winners()
        if winners:
            title, rest = winners[0], winners[1:]
            others = ", ".join(f"{name} ({_by(contest.lead(name))})" for name in rest)
            yield (
                f"**{title[0].upper()}{title[1:]} is more accurate on {contest.split} than index "
                f"overlaps {contest.number}**: {mean(contest.cells, title, 'accuracy'):.3f} and "
                f"{contest.accuracy:.3f} ({_by(contest.lead(title))}){_though(contest)}"
                + (f". So {'is' if len(rest) == 1 else 'are'} {others}" if rest else "")
                + "."
            )


def best(cells: Cells) -> Iterator[tuple[str, str, str]]:
    """Splits where each rival is a point behind, whether the number is known, and figures."""
    every = [each for each in contests(cells) if each.split in clusters.PLANTED]
    for number in (_KNOWN, _FREE):
        won = [each for each in every if each.number == number and each.won()]
        if won:
            yield ", ".join(each.split for each in won), number, "; ".join(map(_lead, won))


def cosines(cells: Cells) -> Iterator[str]:
    """Where clusters by a cosine of values train worse models than by overlaps, and better ones."""
    every = contests(cells)
    for word, sign in (("worse", 1), ("better", -1)):
        parts = []
        for number in (_KNOWN, _FREE):
            found = [_over_cosine(each, sign) for each in every if each.number == number]
            if any(found):
                parts.append(f"{number}, on {', '.join(filter(None, found))}")
        if parts:
            yield (
                f"**Clusters by that cosine train {word} models than those by IOS** "
                f"{'; '.join(parts)}."
            )


def _over_cosine(contest: Contest, sign: int) -> str:
    """A split where the gain has this sign, else nothing."""
    gain = difference(contest.cells, contest.ours, contest.cosine, "accuracy")
    if round(sign * gain.mean, 3) <= 0:
        return ""
    theirs = mean(contest.cells, contest.cosine, "accuracy")
    return f"{contest.split} ({theirs:.3f}, IOS {contest.accuracy:.3f}, {_short(gain)})"


def _joined(every: Sequence[Contest]) -> Iterator[Contest]:
    """One contest in place of two where both numbers give the same models."""
    previous: Contest | None = None
    for contest in every:
        if previous and previous.split == contest.split and _same(previous, contest):
            previous = replace(previous, number=_BOTH)
            continue
        if previous:
            yield previous
        previous = contest
    if previous:
        yield previous


def _same(one: Contest, other: Contest) -> bool:
    return all(
        values(one.cells, one.ours, column) == values(other.cells, other.ours, column)
        for column in ("accuracy", "ARI")
    )


def _though(contest: Contest) -> str:
    """Whether overlaps find the groups; nothing where there are none."""
    if contest.split not in clusters.PLANTED:
        return ""
    if contest.agreement >= _FOUND:
        return f", though overlaps find the groups (ARI {contest.agreement:.2f})"
    return f", and overlaps do not find all groups (ARI {contest.agreement:.2f})"


def _lead(contest: Contest) -> str:
    """A won split: both accuracies, and what overlaps and a cosine see of the groups."""
    rival = contest.runner_up()
    ours = difference(contest.cells, contest.ours, rival, "accuracy")
    return (
        f"{contest.split} {contest.accuracy:.3f}, and {mean(contest.cells, rival, 'accuracy'):.3f} "
        f"by the next, {rival} ({_by(ours)}); ARI {contest.agreement:.2f}, "
        f"{mean(contest.cells, contest.cosine, 'ARI'):.2f} by a cosine"
    )


def _short(found: Paired) -> str:
    return str(found) if found.seeds == 1 else f"{found.mean:+.3f} ± {found.margin:.3f}"


def _by(found: Paired) -> str:
    return str(found) if found.seeds == 1 else f"{found} seeds"
