"""``Aggregator``: opens the cells of one shard, checks them, and combines them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from modelkin.errors import InvalidCell, InvalidParameter, ModelkinError
from modelkin.federation.shards.combine import combine
from modelkin.federation.shards.fixed_point import FixedPoint
from modelkin.federation.shards.public_keys import LOW_ORDER
from modelkin.federation.shards.quantization import LEVELS, Quantized
from modelkin.federation.shards.roster import Roster, Round
from modelkin.federation.shards.shifts import Shift, gamma
from modelkin.federation.shards.thinning import omega
from modelkin.federation.sharing import sealing
from modelkin.federation.sharing.shift_state import pack_shifts, unpack_shifts
from modelkin.wire.cell import CellHeader, Kind, Sealing, decode_cell, encode_cell

__all__ = ["Aggregator", "Combined"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """One piece of one shard, or the reason why there is none.

    Attributes:
        values: what is kept of the piece, or all of it where ``Plan.masks`` is ``"own"``; None
            if a cell was refused, or the pairwise masks do not cancel.
        refused: why a member's cell does not count, by its place.
        failed: why no result can be had of cells that all look right.
    """

    values: Floats | None
    refused: Mapping[int, str] = field(default_factory=dict)
    failed: str | None = None


class Aggregator:
    """One aggregator of a roster, for all shards that it holds.

    Args:
        roster: the plan, all parties and their keys, alike for each of them.
        place: the aggregator's own place in it.
        private_key: 32 bytes (X25519), for the public key at ``place``.
        group_secret: as the members have it.

    Raises:
        InvalidParameter: the key is of another party, or the roster has keys that cannot be
            (:meth:`Roster.check_keys`).
    """

    def __init__(
        self, roster: Roster, place: int, private_key: bytes, *, group_secret: bytes | None = None
    ) -> None:
        if sealing.public_key(private_key) != roster.parties[place].public_key:
            message = f"this is not the key of {roster.parties[place].id!r} in the roster"
            raise InvalidParameter(message, field="private_key")
        roster.check_keys()
        self._roster, self._place, self._private_key = roster, place, private_key
        self._group_secret = sealing.check_group_secret(group_secret)
        self._shifts: dict[tuple[int, int], Shift] = {}

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards that the aggregator holds."""
        return self._roster.shards_of(self._place)

    def combine(
        self, shard: int, piece: int, cells: Mapping[int, bytes], current: Round
    ) -> Combined:
        """Combine the cells of all members of a round, or name those whose cell does not count.

        Nothing is combined while a cell is missing or refused: a member counts in all shards or in
        none, so all aggregators combine again without it.

        Args:
            shard: one that it holds.
            piece: which stretch.
            cells: the members' cells as they were sent, by place.
            current: the round.

        Raises:
            InvalidParameter: a shard of another holder, or a round that cannot be.
        """
        self._roster.check_round(current)
        if shard not in self.shards:
            message = f"shard {shard} is of another aggregator"
            raise InvalidParameter(message, field="shard")
        opened: dict[int, Any] = {}
        refused: dict[int, str] = {}
        for place in current.taking_part:
            if place in self._roster.low_order:
                refused[place] = LOW_ORDER
                continue
            try:
                opened[place] = self._open(cells.get(place), shard, piece, place, current)
            except ModelkinError as error:
                refused[place] = str(error)
        if refused:
            return Combined(None, refused)
        if self._roster.plan.conceal:
            return self._sum(opened, current)
        if self._roster.plan.shifted:
            return Combined(self._add_shift(opened, shard, piece, current))
        weights = [current.weights[place] for place in opened]
        return Combined(combine(self._roster.plan.rule, list(opened.values()), weights))

    def seal_result(self, shard: int, piece: int, values: Floats, current: Round) -> bytes:
        """A result that every party of the roster can open, and no carrier."""
        roster = self._roster
        header = CellHeader(
            Kind.FLOAT32, Sealing.WRAPPED, shard, piece, current.number, current.attempt,
            len(roster.parties), self._place, values.size, roster.digest,
        )  # fmt: skip
        keys = [
            None if place in roster.low_order else party.public_key
            for place, party in enumerate(roster.parties)
        ]
        info = sealing.binding(header.pack(), self._group_secret)
        return encode_cell(header, sealing.wrap(values.astype("<f4").tobytes(), keys, info))

    def settle(self, round_number: int, counted: Iterable[int]) -> None:
        """Take the receipts of a round: the shards whose results counted."""
        shards = set(counted)
        for (shard, _), shift in self._shifts.items():
            shift.settle(round_number, counted=shard in shards)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The state that lasts between rounds, as arrays, for a process that ends in between."""
        return pack_shifts(self._shifts)

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on with the arrays of :meth:`state`, of the same roster."""
        self._shifts = unpack_shifts(arrays)

    def _open(
        self, data: bytes | None, shard: int, piece: int, place: int, current: Round
    ) -> npt.NDArray[Any]:
        """The values of a member's cell.

        Raises:
            InvalidCell: it is missing, of something else, does not open, or is not finite.
        """
        if data is None:
            raise InvalidCell("it sent no cell")
        header, payload = decode_cell(data)
        expected = self._expected_header(shard, piece, place, current)
        check_header(header, expected)
        info = sealing.binding(header.pack(), self._group_secret)
        return _values(header, sealing.unseal(payload, self._private_key, info))

    def _expected_header(self, shard: int, piece: int, place: int, current: Round) -> CellHeader:
        plan = self._roster.plan
        count = self._roster.cell_count(shard, piece, current.number, place)
        kind = Kind.FLOAT32 if plan.quantize is None else Kind.INT8
        if plan.conceal:
            kind = Kind.UINT32
        return CellHeader(
            kind, Sealing.SEALED, shard, piece, current.number, current.attempt, 0, place, count,
            self._roster.digest,
        )  # fmt: skip

    def _sum(self, opened: Mapping[int, npt.NDArray[Any]], current: Round) -> Combined:
        total: npt.NDArray[np.uint32] | None = None
        for words in opened.values():
            total = words.copy() if total is None else np.add(total, words, out=total)
        assert total is not None  # a round has members
        assert current.peak is not None  # checked with the round
        values = FixedPoint(current.peak).decode(total, len(opened))
        if values is None:
            named = ", ".join(self._roster.parties[place].id for place in opened)
            return Combined(
                None,
                failed=f"the masks do not cancel: a cell of {named} is not what it ought to be",
            )
        return Combined(values)

    def _add_shift(
        self, opened: Mapping[int, Floats], shard: int, piece: int, current: Round
    ) -> Floats:
        """``s + v`` of cells at their own places; the step of s waits for its receipt."""
        plan, size = self._roster.plan, self._roster.piece_size(shard, piece)
        shift = self._shifts.setdefault((shard, piece), Shift.zeros(size))
        summed = np.zeros(size)
        for place, values in opened.items():
            thinning = self._roster.thinning(shard, piece, current.number, place)
            summed[thinning.positions] += values.astype(np.float64) * current.weights[place]
        summed /= current.total
        step = gamma(omega(plan.one_in, quantized=plan.quantize is not None)) * current.presence
        shift.propose(current.number, (step * summed).astype(np.float32))
        estimate: Floats = (summed + shift.values).astype(np.float32)
        return estimate


def check_header(header: CellHeader, expected: CellHeader) -> None:
    """Compare the header of a cell with the header that it has to have.

    Raises:
        InvalidCell: names the first field that differs.
    """
    for name in CellHeader.__slots__:
        found, wanted = getattr(header, name), getattr(expected, name)
        if found != wanted:
            shown = (found.hex(), wanted.hex()) if name == "digest" else (found, wanted)
            raise InvalidCell(f"its {name} is {shown[0]!s}, and {shown[1]!s} is expected")


def _values(header: CellHeader, opened: bytes) -> npt.NDArray[Any]:
    if header.kind is Kind.UINT32:
        return np.frombuffer(opened, "<u4").astype(np.uint32, copy=False)
    if header.kind is Kind.INT8:
        codes = np.frombuffer(opened, np.int8, header.count)
        scales = np.frombuffer(opened, "<f4", offset=header.count).astype(np.float32)
        if (codes < -LEVELS).any() or not (np.isfinite(scales) & (scales >= 0)).all():
            raise InvalidCell("its scales are not finite, or its codes beyond -127 to 127")
        with np.errstate(over="ignore"):
            values = Quantized(codes, scales).values()
    else:
        values = np.frombuffer(opened, "<f4").astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise InvalidCell("it has values that are not finite")
    return values
