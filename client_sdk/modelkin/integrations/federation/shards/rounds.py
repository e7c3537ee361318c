"""``ShardRound``: one round of averaging in shards, led by its server, without any engine.

A carrier sends the questions of the round, and returns the answers. The round routes sealed cells,
refuses members, repeats once without them, compares replicas, and opens nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from modelkin.errors import InvalidInput, InvalidParameter, ModelkinError
from modelkin.federation.layouts import MOST_EXACT
from modelkin.federation.shards.fixed_point import least_power
from modelkin.federation.shards.plan import MAX_ATTEMPT
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.sharing import Combined, SentCell, assemble
from modelkin.integrations.federation.shards.results import Floats, HeldResults, Piece, Results
from modelkin.wire.cell import read_cell_header

__all__ = [
    "Answer",
    "Ask",
    "CombineAsk",
    "ReleaseAsk",
    "SendAsk",
    "ShardRound",
    "Trained",
    "check_examples",
]

BUNDLE_BYTES: Final = 1 << 28
"""The bytes of cells in a message to an aggregator, about: memory does not grow with the model."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A member's reply to the round's training.

    Attributes:
        examples: the member's weight, 1 to 2^53.
        peak: the member's largest absolute value, where sums are concealed.
        cells: the member's sealed cells, where sums are not concealed.
        tags: a proof for each holder that the examples are the member's own, beside ``cells``.
        staleness: the rounds between the one that the member trained in and this one.
        sends_later: whether the member keeps its cells until they are asked for.
    """

    examples: int
    peak: float | None = None
    cells: Sequence[SentCell] = ()
    tags: Mapping[int, bytes] = field(default_factory=dict)
    staleness: int = 0
    sends_later: bool = False


@dataclass(frozen=True, slots=True)
class SendAsk:
    """Ask a member for cells that it keeps: concealed ones, of a round whose members are fixed."""

    place: int
    round: Round


@dataclass(frozen=True, slots=True)
class CombineAsk:
    """Ask an aggregator to combine cells, by shard and piece and by the place of their member.

    The aggregator checks the cells, and sends its results only if ``release`` is set.
    """

    place: int
    round: Round
    cells: Mapping[Piece, Mapping[int, bytes]]
    release: bool
    tags: Mapping[int, bytes]


@dataclass(frozen=True, slots=True)
class ReleaseAsk:
    """Ask an aggregator for its results, since no aggregator refused a cell."""

    place: int
    round: Round
    pieces: tuple[Piece, ...]


Ask = SendAsk | CombineAsk | ReleaseAsk
Answer = Sequence[SentCell] | Mapping[Piece, Combined] | str
"""A member's cells, an aggregator's results, or the reason why there is no answer."""

Steps = Generator[Sequence[Ask], Mapping[int, Answer], None]


def check_examples(value: object) -> int:
    """Check a member's number of examples, and return it.

    Raises:
        InvalidParameter: the value is not a whole number from 1 to 2^53.
    """
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole or not 1 <= value <= MOST_EXACT:  # type: ignore[operator]  # a number
        raise InvalidParameter(
            f"its examples are {value!r}, not a whole number from 1 to 2^53", field="examples"
        )
    return int(value)  # type: ignore[call-overload,no-any-return]  # a number


@dataclass(slots=True, eq=False)
class ShardRound:
    """A round of shards over one set of members.

        steps = round.steps()
        asks = next(steps)
        while True:
            asks = steps.send(answers_of(asks))  # until StopIteration

    A batch asks each party once at most. A member counts in all shards that changed, or in none.

    Args:
        roster: the epoch's roster.
        number: the round's number; never repeated within a roster.
        trained: the members' replies, by place.
        roster_total: the weight of the whole roster, where shifts need it.

    Attributes:
        members: the places that count; none if nothing changes.
        refused: the reasons why other members do not count, by place.
        lost: the reasons why aggregators gave no result, or another one than most, by place.
        kept: the reasons why shards keep their values, by shard.
        values: the results, by shard and piece.
        attempts: the number of times that cells were combined, or asked for.
        num_bytes: the bytes of sealed cells received and relayed, and of results received.
    """

    roster: Roster
    number: int
    trained: Mapping[int, Trained]
    roster_total: float | None = None
    refused: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    members: tuple[int, ...] = ()
    values: dict[int, dict[int, Floats]] = field(default_factory=dict)
    attempts: int = 0
    num_bytes: int = 0
    round: Round | None = None

    @property
    def update(self) -> Floats | None:
        """The mean update, shape ``(num_parameters,)``, zero in shards that keep their values.

        None if nothing changes.
        """
        if self.round is None or not self.values:
            return None
        return assemble(self.roster, self.round, self.values)

    def steps(self) -> Steps:
        """Yield the questions, batch by batch; the answers are sent in, by place."""
        conceal, found = self.roster.plan.conceal, dict(self.trained)
        cells = {p: each.cells for p, each in found.items() if not each.sends_later}
        if not conceal and len(cells) < len(found):
            self.round = self._round(sorted(found), 0)
            cells |= yield from self._ask_for_cells(sorted(found.keys() - cells.keys()))
        for attempt in range(MAX_ATTEMPT + 1):
            if not conceal:
                self._check_cells(cells, 0)
            taking_part = sorted(found.keys() - self.refused.keys())
            if not self._are_enough(taking_part):
                return
            self.attempts, self.round = attempt + 1, self._round(taking_part, attempt)
            if conceal:
                cells = yield from self._ask_for_cells(taking_part)
                self._check_cells(cells, attempt)
                if self.refused.keys() & set(taking_part):
                    continue
            routed = self._route({place: cells[place] for place in taking_part})
            last = attempt == MAX_ATTEMPT
            results = yield from self._combine(routed, release=last)
            refused = _refusals(results)
            if refused and not last:
                self.refused.update(refused)
                continue
            if not last:
                yield from self._release(results)
            self._settle(taking_part, results)
            return
        self._keep_all("a member did not send its cells in the second attempt either")

    def _are_enough(self, taking_part: Sequence[int]) -> bool:
        least = self.roster.plan.min_members
        if len(taking_part) >= least:
            return True
        self._keep_all(f"{len(taking_part)} members take part, {least} at least are averaged")
        return False

    def _keep_all(self, why: str) -> None:
        self.round, self.kept = None, dict.fromkeys(range(self.roster.plan.shards), why)

    def _round(self, places: Sequence[int], attempt: int) -> Round:
        weights = {place: self.trained[place].examples for place in places}
        if not self.roster.plan.conceal:
            return Round(self.number, weights, roster_total=self.roster_total)
        peak = max(self.trained[place].peak or 0.0 for place in places)
        return Round(self.number, weights, attempt=attempt, peak=least_power(peak))

    def _ask_for_cells(
        self, places: Sequence[int]
    ) -> Generator[Sequence[Ask], Mapping[int, Answer], dict[int, Sequence[SentCell]]]:
        assert self.round is not None
        answers = yield [SendAsk(place, self.round) for place in places]
        cells: dict[int, Sequence[SentCell]] = {}
        for place in places:
            answer = answers.get(place, "it did not answer in time")
            if isinstance(answer, str):
                self.refused[place] = answer
            elif not isinstance(answer, Mapping):
                cells[place] = answer
        return cells

    def _check_cells(self, cells: Mapping[int, Sequence[SentCell]], attempt: int) -> None:
        """Refuse members whose cells are not exactly those that the aggregators need."""
        expected = {
            (shard, piece, holder)
            for shard in range(self.roster.plan.shards)
            for piece in range(self.roster.plan.pieces)
            for holder in self.roster.holders(shard)
        }
        for place, sent in cells.items():
            if place in self.refused:
                continue
            self.num_bytes += sum(len(cell.data) for cell in sent)
            if {(c.shard, c.piece, c.holder) for c in sent} != expected or len(sent) > len(
                expected
            ):
                self.refused[place] = "it did not send one cell for each shard and holder"
                continue
            try:
                for cell in sent:
                    self._check_header(place, cell, attempt)
            except ModelkinError as error:
                self.refused[place] = str(error)

    def _check_header(self, place: int, cell: SentCell, attempt: int) -> None:
        header = read_cell_header(cell.data)
        stated = (header.shard, header.piece, header.place, header.round, header.attempt)
        if stated != (cell.shard, cell.piece, place, self.number, attempt):
            raise InvalidParameter(
                "a cell's header is of another shard, member, round or attempt", field="cells"
            )

    def _route(
        self, cells: Mapping[int, Sequence[SentCell]]
    ) -> dict[int, dict[Piece, dict[int, bytes]]]:
        """Sort the cells of all members by holder, by shard and piece, and by member."""
        routed: dict[int, dict[Piece, dict[int, bytes]]] = {}
        for place in sorted(cells):
            for cell in cells[place]:
                pieces = routed.setdefault(cell.holder, {})
                pieces.setdefault((cell.shard, cell.piece), {})[place] = cell.data
        return routed

    def _combine(
        self, routed: Mapping[int, Mapping[Piece, Mapping[int, bytes]]], *, release: bool
    ) -> Generator[Sequence[Ask], Mapping[int, Answer], Results]:
        assert self.round is not None
        results: Results = {}
        waiting = {h: list(_bundles(p)) for h, p in routed.items() if h not in self.lost}
        while waiting:
            asks = [
                CombineAsk(holder, self.round, bundles.pop(0), release, self._tags(holder))
                for holder, bundles in waiting.items()
            ]
            for ask in asks:
                self.num_bytes += sum(len(c) for p in ask.cells.values() for c in p.values())
            answers = yield asks
            for ask in asks:
                self._take(ask.place, ask.cells, answers, results)
            waiting = {h: b for h, b in waiting.items() if b and h not in self.lost}
        return results

    def _tags(self, holder: int) -> dict[int, bytes]:
        assert self.round is not None
        tags = {place: self.trained[place].tags for place in self.round.taking_part}
        return {place: found[holder] for place, found in tags.items() if holder in found}

    def _release(self, results: Results) -> Steps:
        """Ask all aggregators with results for them, in place of their verdicts."""
        assert self.round is not None
        at_once = max(1, BUNDLE_BYTES // (4 * self.roster.plan.piece_blocks))
        waiting = {
            holder: sorted(piece for piece, found in pieces.items() if found.failed is None)
            for holder, pieces in results.items()
        }
        while waiting := {h: p for h, p in waiting.items() if p and h not in self.lost}:
            asks = [ReleaseAsk(h, self.round, tuple(p[:at_once])) for h, p in waiting.items()]
            waiting = {h: p[at_once:] for h, p in waiting.items()}
            answers = yield asks
            for ask in asks:
                self._take(ask.place, ask.pieces, answers, results)

    def _take(
        self, holder: int, pieces: Iterable[Piece], answers: Mapping[int, Answer], results: Results
    ) -> None:
        """Take an aggregator's answer about some pieces, or note that there is none.

        An aggregator can refuse only members of this round; other places are ignored.
        """
        assert self.round is not None
        answer, weights = answers.get(holder, "it did not answer in time"), self.round.weights
        if isinstance(answer, Mapping):
            found = {piece: _among(answer[piece], weights) for piece in pieces if piece in answer}
            results.setdefault(holder, {}).update(found)
        else:
            self.lost[holder] = answer if isinstance(answer, str) else "it sent cells"

    def _settle(self, places: Sequence[int], results: Results) -> None:
        """Take each shard's values from its holders, and name the holders with other values."""
        held = HeldResults(self.roster, self.number, results, self.lost)
        for shard in range(self.roster.plan.shards):
            try:
                self.values[shard] = held.agreed(shard)
            except InvalidInput as error:
                self.kept[shard] = str(error)
        self.num_bytes += held.num_bytes
        self.lost = {**held.odd, **self.lost}
        if self.values:
            self.members = tuple(places)
        else:
            self.round = None


def _bundles(
    pieces: Mapping[Piece, Mapping[int, bytes]],
) -> Iterator[dict[Piece, Mapping[int, bytes]]]:
    """Cut an aggregator's cells into messages of about :data:`BUNDLE_BYTES`."""
    bundle, size = dict[Piece, Mapping[int, bytes]](), 0
    for piece in sorted(pieces):
        bundle[piece] = pieces[piece]
        size += sum(map(len, pieces[piece].values()))
        if size >= BUNDLE_BYTES:
            yield bundle
            bundle, size = {}, 0
    if bundle:
        yield bundle


def _among(combined: Combined, places: Collection[int]) -> Combined:
    """The result without refusals of other places."""
    refused = {place: why for place, why in combined.refused.items() if place in places}
    return replace(combined, refused=refused)


def _refusals(results: Results) -> dict[int, str]:
    """The members that aggregators refuse, with the reasons."""
    found: dict[int, str] = defaultdict(str)
    for pieces in results.values():
        for combined in pieces.values():
            for place, why in combined.refused.items():
                found.setdefault(place, why)
    return dict(found)
