"""Which ways of training beat the models of clusters by index overlaps, and where none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from demo.planted import DRAWN
from studies import baselines
from studies.cells import Cell, Cells
from studies.measures import Paired
from studies.sections.paragraphs import first, of_split, table
from studies.sections.summaries import difference, mean, values
from studies.settings import DIRICHLET
from studies.tables import clusters, personal

__all__ = [
    "RIVALS",
    "Contest",
    "beaten",
    "best",
    "contests",
    "gains",
    "listed",
    "lost",
    "named",
    "shown",
    "short",
    "splits",
    "titled",
]

RIVALS: Final = (clusters.GLOBAL, clusters.ALONE, clusters.IFCA, clusters.CFL)
_BY_CHANCE: Final = "drawn "
_POINT: Final = 0.01
"""Accuracy by which clusters must be ahead to be recommended."""
_KNOWN: Final = "known"
_FREE: Final = "free"
_EITHER: Final = "either"
_HEADS: Final = (
    "split",
    "number of clusters",
    "index overlaps",
    "better",
    "its accuracy",
    "difference, seeds ahead",
    "ARI",
    "also ahead",
)


@dataclass(frozen=True)
class Contest:
    """Clusters by index overlaps on one split, beside everything else.

    Attributes:
        cells: of the split.
        ours: the row of index overlaps.
        number: of clusters: known, free, or either where both give the same models.
        way: how clusters are made of any similarity; none where the table has one way.
    """

    cells: list[Cell]
    ours: str
    number: str
    way: str = ""

    @property
    def split(self) -> str:
        """The split of the clients, without its table."""
        return shown(self.cells[0].setting.split)

    @property
    def grouped(self) -> bool:
        """Whether the clients have groups."""
        return self.cells[0].setting.split in clusters.GROUPED

    @property
    def drawn(self) -> bool:
        """Whether clients have labels by chance."""
        return self.cells[0].setting.split.endswith(DRAWN)

    @property
    def concept(self) -> str:
        """The split where labels are not by chance."""
        return self.split.removeprefix(_BY_CHANCE)

    @property
    def place(self) -> str:
        """The split, with the number of clusters where that is one of two."""
        one = self.grouped and self.number != _EITHER
        return f"{self.split} (number {self.number})" if one else self.split

    @property
    def accuracy(self) -> float:
        """The accuracy with clusters by index overlaps."""
        return mean(self.cells, self.ours, "accuracy")

    @property
    def agreement(self) -> float:
        """The ARI of these with the groups; not a number where there are none."""
        return mean(self.cells, self.ours, "ARI")

    def gain(self, similarity: str) -> Paired:
        """How much more accurate they are than clusters by another similarity."""
        theirs = clusters.row(similarity, self.way) if self.way else similarity
        return difference(self.cells, self.ours, theirs, "accuracy")

    def lead(self, rival: str) -> Paired:
        """How much more accurate a rival is, on the same seeds."""
        return difference(self.cells, rival, self.ours, "accuracy")

    def won(self) -> bool:
        """Whether they are decidedly ahead of the next, and by a point of accuracy."""
        lead = self.lead(self.runner_up())
        return lead.decided and lead.mean <= -_POINT

    def winners(self) -> list[str]:
        """The rivals that are more accurate in the third decimal, the best first."""
        found = [name for name in RIVALS if round(self.lead(name).mean, 3) > 0]
        return sorted(found, key=lambda name: -self.lead(name).mean)

    def runner_up(self) -> str:
        """The most accurate rival."""
        return max(RIVALS, key=lambda name: self.lead(name).mean)


def contests(cells: Cells) -> list[Contest]:
    """The contests of Table 1, with the number known and free, and of Table 8, with it free.

    Splits without groups have no number to know.
    """
    found = []
    held = first(cells.of(clusters.NAME))
    ways = (
        (clusters.KNOWN, _KNOWN, clusters.LINKED),
        (clusters.FREE, _FREE, clusters.PROPAGATED),
    )
    for split in splits(held):
        own, grouped = of_split(held, split), split in clusters.GROUPED
        found += [Contest(own, *way) for way in ways[0 if grouped else 1 :]]
    held = first(cells.of(personal.NAME))
    found += [Contest(of_split(held, split), personal.ios("K*"), _FREE) for split in splits(held)]
    return found


def splits(cells: Sequence[Cell]) -> list[str]:
    """The splits of some cells, those with planted groups first."""
    found = dict.fromkeys(cell.setting.split for cell in cells)
    return sorted(found, key=lambda split: split not in clusters.GROUPED)


def shown(split: str) -> str:
    """A split's name for readers: Table 1 deals its Dirichlet splits otherwise than Table 8."""
    if split == clusters.IID:
        return "IID"
    if split.endswith(DRAWN):
        return f"{_BY_CHANCE}{split.removesuffix(DRAWN)}"
    kind, _, amount = split.partition(" ")
    return f"Dir({amount})" if kind == "dirichlet" else split


def titled(cell: Cell) -> str:
    """The split of a cell, with its table where both tables have one of that name."""
    split = shown(cell.setting.split)
    number = 1 if cell.study == clusters.NAME else 8
    return f"{split} of Table {number}" if split in DIRICHLET else split


def listed(words: Sequence[str]) -> str:
    """Words with an "and" before the last."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def short(rival: str) -> str:
    """A rival without its authors."""
    return rival.partition(" (")[0]


def lost(cells: Cells) -> list[Contest]:
    """Where a rival is ahead of clusters by index overlaps."""
    return [contest for contest in _joined(contests(cells)) if contest.winners()]


def named(cells: Cells) -> str:
    """The best rivals where one is ahead, first where that is decided; nothing where none is.

    Labels drawn by chance are named where the same split without them is not.
    """
    found = lost(cells)
    plain = {contest.split for contest in found if not contest.drawn}
    every = [each for each in found if not each.drawn or each.concept not in plain]
    sure = [each for each in every if each.lead(each.runner_up()).decided]
    seen = {each.split for each in sure}
    rest = [each for each in every if each.split not in seen]
    parts = [f"better are {_by_rival(sure)}"] if sure else []
    if rest:
        parts.append(f"undecided on {listed([*dict.fromkeys(each.split for each in rest)])}")
    return "; ".join(parts)


def beaten(cells: Cells) -> str:
    """A table of the contests that are lost, each beside its best rival."""
    return table(_HEADS, map(_row, lost(cells)))


def best(cells: Cells) -> list[tuple[str, str]]:
    """Places where the next rival is a point behind, each with both accuracies."""
    return [
        (contest.place, _ahead(contest))
        for contest in _joined(contests(cells))
        if contest.grouped and not contest.drawn and contest.won()
    ]


def gains(
    cells: Cells, sign: int, similarity: str = baselines.PLAIN_COSINE, *, drawn: bool = False
) -> str:
    """The splits with a decided gain of this sign over clusters by another similarity.

    Args:
        cells: of Tables 1 and 8.
        sign: 1 or -1.
        similarity: which other one.
        drawn: with the splits whose labels are drawn by chance.
    """
    found: dict[str, list[str]] = {}
    for contest in contests(cells):
        gain = contest.gain(similarity)
        left_out = contest.drawn and not drawn
        if not left_out and gain.decided and round(sign * gain.mean, 3) > 0:
            number = f" ({contest.number})" if contest.grouped else ""
            said = f"{sign * gain.mean:+.3f}{number}"
            found.setdefault(titled(contest.cells[0]), []).append(said)
    return "; ".join(f"{split} {', '.join(said)}" for split, said in found.items())


def _joined(every: Sequence[Contest]) -> Iterator[Contest]:
    """One contest in place of two where both numbers give the same models."""
    previous: Contest | None = None
    for contest in every:
        if previous and previous.cells == contest.cells and _same(previous, contest):
            previous = replace(previous, number=_EITHER)
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


def _by_rival(every: Sequence[Contest]) -> str:
    """Each best rival with its places; a split that it has at both numbers goes without these."""
    found: dict[str, dict[str, list[str]]] = {}
    for contest in every:
        own = found.setdefault(short(contest.runner_up()), {})
        own.setdefault(contest.split, []).append(contest.place)
    return ", ".join(
        f"{rival} on "
        + listed([split if len(places) > 1 else places[0] for split, places in own.items()])
        for rival, own in found.items()
    )


def _row(contest: Contest) -> list[str]:
    title, *others = contest.winners()
    return [
        titled(contest.cells[0]),
        contest.number,
        f"{contest.accuracy:.3f}",
        short(title),
        f"{mean(contest.cells, title, 'accuracy'):.3f}",
        _judged(contest.lead(title)),
        f"{contest.agreement:.2f}" if contest.grouped else "none",
        ", ".join(short(name) + ("" if contest.lead(name).decided else "?") for name in others),
    ]


def _judged(lead: Paired) -> str:
    """A lead in little room, and whether it is decided."""
    if lead.seeds == 1:
        return f"{lead} ?"
    doubt = "" if lead.decided else " ?"
    return f"{lead.mean:+.3f} ± {lead.margin:.3f}, {lead.ahead}/{lead.seeds}{doubt}"


def _ahead(contest: Contest) -> str:
    rival = contest.runner_up()
    ours = difference(contest.cells, contest.ours, rival, "accuracy")
    return (
        f"{contest.accuracy:.3f} on {contest.place}, {mean(contest.cells, rival, 'accuracy'):.3f} "
        f"by the next, {short(rival)} ({ours.mean:+.3f} ± {ours.margin:.3f})"
    )
